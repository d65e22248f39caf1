"""Scores of every depth configuration of an encoder-decoder, teacher-forced or by what it writes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from ldsearch.bench import Bench
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import DataError, RunError
from ldsearch.options import Evaluate
from ldsearch.reports.heat_maps import draw_grid, draw_pruning_ratios
from ldsearch.reports.style import save_figure
from ldsearch.runs.folder import claim
from ldsearch.search.generation import decoded, decoding_of
from ldsearch.search.spaces import trained_assignment
from ldsearch.space.assignments import configurations
from ldsearch.subnet import Subnet
from ldsearch.tasks.metrics import METRICS, Metric, metric_named
from ldsearch.tasks.sequences import SequenceToSequence
from ldsearch.trials.intervals import Interval, Statistics, bootstrap
from ldsearch.work.progress import NO_PROGRESS, Progress

MARKER = "grid.json"
Depths = tuple[int, int]


@dataclass(frozen=True)
class GridResult:
    """Statistics of every depth configuration on the same examples.

    Args:
        metric: Turns them into scores.
        examples: Fingerprint of the examples, so that only grids on the same ones are compared.
        statistics: (encoder depth, decoder depth) to statistics of shape (examples,) or (examples, parts).
    """

    metric: Metric
    examples: str
    statistics: Mapping[Depths, Statistics]

    @property
    def scores(self) -> dict[Depths, float]:
        """The value of each configuration."""
        return {
            key: float(self.metric.of_means(np.asarray(rows.mean(axis=0))))
            for key, rows in self.statistics.items()
        }


def grid_metric(name: str) -> Metric:
    """A metric of texts or of teacher-forced likelihoods.

    Raises:
        DataError: If there is none of that name.
    """
    return metric_named("texts" if name in METRICS["texts"] else "language-model", name, 1)


def load_grid(folder: Path) -> GridResult:
    """Read a grid that ``measure_grid`` wrote.

    Raises:
        RunError: If it holds no finished grid.
    """
    try:
        fields = json.loads((folder / MARKER).read_text(encoding="utf-8"))["identity"]
        with (folder / "statistics.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            statistics = {(int(m), int(n)): arrays[f"{m}-{n}"] for m, n in (k.split("-") for k in arrays)}
        return GridResult(grid_metric(fields["metric"]), fields["examples"], statistics)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise RunError(
            f"{folder} holds no grid: run 'ldsearch evaluate --all-depths' for it first"
        ) from error


def mean_difference(first: GridResult, second: GridResult) -> Interval:
    """Interval of the difference of the two means over the grid, by a paired bootstrap over examples.

    Raises:
        DataError: If the grids are of other examples, metrics or depths.
    """
    same = (first.examples, first.metric.name) == (second.examples, second.metric.name)
    if not same or {*first.statistics} != {*second.statistics}:
        raise DataError("the grids are of other examples, metrics or depths: their difference means nothing")
    share = 1 / len(first.statistics)
    terms = [(share, rows) for rows in first.statistics.values()]
    terms += [(-share, second.statistics[key]) for key in first.statistics]
    return bootstrap(terms, first.metric.of_means)


def measure_grid(
    bench: Bench,
    folder: Path,
    options: Evaluate,
    baseline: GridResult | None = None,
    progress: Progress = NO_PROGRESS,
) -> GridResult:
    """Measure every depth configuration; what was measured before, in this folder, is not measured again.

    Args:
        bench: An encoder-decoder with a task of texts, opened on the split to measure.
        folder: Gets ``grid.csv``, ``grid.png``, ``pruning_ratios.png`` (the paper's Fig. 1),
            ``statistics.npz`` and the decoded texts.
        options: ``metric`` (None: nats), ``assignment`` (None: what was trained, else ``"optimal"``) and the
            options of decoding are read.
        baseline: To be drawn and tabled beside it.
        progress: Receives a step for each configuration.

    Raises:
        DataError: If the model or its task is another.
        RunError: If the folder holds another grid.
    """
    task, depths = bench.task, bench.supernet.depths
    if not isinstance(task, SequenceToSequence) or len(depths) != 2:
        raise DataError("a grid is of an encoder-decoder's depths, for translation or summarisation")
    name = options.metric or "nats"
    metric, texts = grid_metric(name), name in METRICS["texts"]
    assignment = options.assignment or trained_assignment(bench)
    examples = f"{task.splits[bench.evaluator.split].fingerprint}/{options.limit}"
    identity = {
        "metric": name,
        "assignment": assignment,
        "decoding": asdict(decoding_of(options)) if texts else None,
        "limit": options.limit if texts else None,
        "fingerprint": bench.evaluator.fingerprint,
        "examples": examples,
        "versions": versions(),
    }
    claim(folder, MARKER, identity)
    grid = {(key[0], key[1]): subnet for key, subnet in configurations(depths, assignment).items()}
    named = {f"{m}-{n}": subnet for (m, n), subnet in grid.items()}
    measured = (
        decoded(bench, named, folder, metric, options)
        if texts
        else ((depth, bench.evaluator.statistics(subnet)) for depth, subnet in named.items())
    )
    statistics: dict[str, Statistics] = {}
    progress.phase("depths", len(grid))
    for depth, rows in measured:
        statistics[depth] = rows
        progress.step()
    result = GridResult(metric, examples, {(m, n): statistics[f"{m}-{n}"] for m, n in grid})
    whole, part = folder / "statistics.npz", folder / ".statistics.npz"
    np.savez_compressed(part, **cast(Any, statistics))
    part.replace(whole)
    _report(bench, folder, result, grid, baseline)
    return result


def _report(
    bench: Bench,
    folder: Path,
    result: GridResult,
    grid: Mapping[Depths, Subnet],
    baseline: GridResult | None,
) -> None:
    costs = bench.evaluator.costs_of(list(grid.values()))
    compared = baseline.scores if baseline else None
    rows = [
        {
            "encoder": key[0],
            "decoder": key[1],
            result.metric.name: score,
            **({} if compared is None else {"baseline": compared[key]}),
            **cost,
            "subnet": grid[key].describe(),
        }
        for (key, score), cost in zip(result.scores.items(), costs, strict=True)
    ]
    pd.DataFrame(rows).to_csv(folder / "grid.csv", index=False)
    title = f"{bench.folder.name}, {result.metric.name}"
    decimals = 3 if result.metric.name == "nats" else 2
    save_figure(draw_grid(result.scores, title, compared, decimals), folder / "grid.png")
    encoder, decoder = bench.supernet.depths.values()
    panels = {bench.record.layer_drop: result.scores}
    save_figure(
        draw_pruning_ratios(panels, encoder, decoder, result.metric.name), folder / "pruning_ratios.png"
    )
