"""Latency in a search: predicted from a device's table while searching, measured before it is reported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ldsearch.bench import Bench
from ldsearch.disk.files import read_fields, write_json
from ldsearch.errors import BudgetError, RunError
from ldsearch.export.agreement import share_of_full
from ldsearch.export.rows import AGREEMENT_ROWS, split_rows
from ldsearch.latency.clock import Clock, Noise, device_facts, synchroniser
from ldsearch.latency.fastest import AUTO, time_full_model
from ldsearch.latency.measure import (
    FORWARD,
    MeasuredLatency,
    entries_of,
    measure,
    memory_of,
    random_cell,
)
from ldsearch.latency.runtimes import candidates, require_runtime
from ldsearch.latency.table import LatencyTable, SupernetStages, table_beside
from ldsearch.latency.whole import OWN, PredictedLatency, time_whole, whole_keys
from ldsearch.options.serving import LEAST_AGREEMENT
from ldsearch.reports.latency import Accuracy, draw_tradeoff
from ldsearch.reports.style import save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs.run import LATENCY_FILE, RUN_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.trials.goal import Goal
from ldsearch.trials.trial import LossBound, Trial
from ldsearch.work.progress import NO_PROGRESS, Progress

JSON_FILE = "latency.json"


def _table_path(bench: Bench, cell: tuple[int, int], table: Path | None) -> Path:
    """The latency table's.

    Raises:
        RunError: If there is none, with the command that makes it.
    """
    path = table or table_beside(bench.folder)
    if not path.is_file():
        batch, length = cell
        raise RunError(
            f"a latency needs this device's latency table: ldsearch profile {bench.folder} --table {path} "
            f"--batch {batch} --length {length}"
        )
    return path


def settle_runtime(
    bench: Bench,
    cell: tuple[int, int] | None,
    table: Path | None,
    folder: Path | None,
    note: Callable[[str], None],
    progress: Progress,
) -> str:
    """The runtime that ``auto`` stands for: that of a run that goes on, or where the full model is fastest.

    Args:
        bench: The supernet.
        cell: Batch and length; None: the goal names no latency.
        table: As of ``know_latency``.
        folder: The run's, which may be there; None: it has none.
        note: Called with what the full model took in each runtime.
        progress: A phase "runtimes".
    """
    if cell is None:
        return OWN[0]
    _table_path(bench, cell, table)  # refuses before anything is timed
    if folder is not None and (folder / RUN_FILE).is_file():
        identity = read_fields(folder / RUN_FILE).get("identity", {})
        return str(identity.get("runtime", OWN[0]))
    supernet = bench.supernet.eval()
    rows = split_rows(supernet, bench.record, bench.tokenizer, bench.task, bench.split, ())
    share = share_of_full(supernet, rows.first(AGREEMENT_ROWS), rows.likeness)
    full = time_full_model(supernet, [cell], share, LEAST_AGREEMENT, progress)
    note(full.describe())
    return full.fastest()


def known_runtime(
    bench: Bench, cell: tuple[int, int] | None, table: Path | None, runtime: str, note: Callable[[str], None]
) -> str | None:
    """The runtime whose latencies can be predicted without timing anything; None: the table lacks its times.

    Args:
        bench: The supernet.
        cell: Batch and length; None: the goal names no latency.
        table: As of ``know_latency``.
        runtime: As it is named; ``auto`` would be settled by timing.
        note: Called with what a search would time first.
    """
    if cell is None:
        return OWN[0] if runtime == AUTO else runtime
    if runtime != AUTO:
        require_runtime(runtime)
    cells = LatencyTable.load(_table_path(bench, cell, table)).cells
    if runtime in OWN or all(key in cells for key in whole_keys(runtime, *cell)):
        return runtime
    times = (
        f"the full model in {', '.join(candidates())}" if runtime == AUTO else f"whole models in {runtime}"
    )
    batch, length = cell
    note(f"a search first times {times}, at {batch} x {length} tokens; until then no milliseconds are known")
    return None


def know_latency(
    bench: Bench,
    cell: tuple[int, int] | None,
    table: Path | None = None,
    runtime: str = OWN[0],
    progress: Progress = NO_PROGRESS,
) -> None:
    """Add a predicted latency to the costs of the bench's trials, where the goal names a latency.

    Args:
        bench: The supernet.
        cell: Batch and length; None: the goal names no latency.
        table: Of ``ldsearch profile --table``; None: the one beside the supernet.
        runtime: In which latencies are measured; whole models are timed there where the table does not know
            them yet.
        progress: A phase "whole models".

    Raises:
        RunError: If there is no table, or it is another model's; if there is a table or a runtime and no
            latency is asked for.
        LdsearchError: If it does not know batch or length, or there is no such runtime.
    """
    if cell is None:
        if runtime != OWN[0] or table is not None:
            raise RunError(
                "--runtime and --latency-table are for a latency: give --budget 12ms@batch=8,length=128 or "
                "--objective latency@batch=8,length=128"
            )
        return
    require_runtime(runtime)
    batch, length = cell
    path = _table_path(bench, cell, table)
    loaded = LatencyTable.load(path)
    loaded.require({"model": SupernetStages(bench.supernet).facts["model"]})
    if runtime not in OWN:
        supernet = bench.supernet.eval()
        clock = Clock(synchronise=synchroniser(supernet.model.device))
        with torch.inference_mode():
            loaded, _ = time_whole(supernet, loaded, runtime, [cell], path, clock, progress)
    latency = PredictedLatency(loaded, batch, length, runtime)
    latency([bench.full])  # refuses before anything runs
    others = [cost for cost in bench.evaluator.costs if cost.name != latency.name]
    bench.evaluator.costs = [*others, latency]


@dataclass(frozen=True)
class Latencies:
    """Measured latencies of the sub-networks of a search.

    Args:
        lines: By sub-network, the full model's too.
        predicted: Milliseconds that the table predicts, by sub-network.
        noise: Of the clock.
        facts: Of the device.
    """

    lines: Mapping[Subnet, MeasuredLatency]
    predicted: Mapping[Subnet, float]
    noise: Noise
    facts: Mapping[str, Any]

    def measured(self, subnet: Subnet) -> float:
        """Median milliseconds of a batch."""
        return self.lines[subnet].median_ms

    @property
    def accuracy(self) -> Accuracy:
        """Accuracy of the predicted latencies."""
        return Accuracy.of(
            [self.predicted[subnet] for subnet in self.lines], [*map(self.measured, self.lines)]
        )

    def to_dict(self, best: Subnet) -> dict[str, Any]:
        """Fields for ``run.json``: those of the choice, and how far off all predictions are."""
        return {
            **self.lines[best].to_dict(),
            "predicted_ms": self.predicted[best],
            **asdict(self.accuracy),
            "points_not_faster": sum(line.not_faster for line in self.lines.values()),
            "noise": self.noise.to_dict(),
            **self.facts,
        }

    def describe(self, best: Subnet) -> list[str]:
        """Describe the choice's latency and the error of the predictions."""
        line, predicted = self.lines[best], self.predicted[best]
        slow = "; not faster than the full model, though its MACs are fewer" if line.not_faster else ""
        sentences = [
            f"latency: {line.median_ms:.2f} ms measured, {predicted:.2f} ms predicted "
            f"({predicted / line.median_ms - 1:+.0%}); {line.ratio:.3f} of the full model's "
            f"{line.full_ms:.2f} ms{slow} ({line.runtime}, {self.facts['threads']} threads, "
            f"{self.noise.describe()})",
            self.accuracy.describe(),
        ]
        if not_faster := sum(own.not_faster for own in self.lines.values()):
            sentences.append(f"{not_faster} of them have fewer MACs than the full model and are not faster")
        return sentences


def measured_latencies(
    bench: Bench, cell: tuple[int, int] | None, runtime: str, trials: Sequence[Trial], progress: Progress
) -> Latencies | None:
    """Time the sub-networks of a search, all in turn; None where the goal names no latency.

    Args:
        bench: The supernet.
        cell: Batch and length; None: the goal names no latency.
        runtime: Where.
        trials: What to time, with predicted latencies; the full model's among them or not.
        progress: A phase "latency" with a step after every timed call.
    """
    if cell is None:
        return None
    supernet = bench.supernet.eval()
    device = supernet.model.device
    clock = Clock(warmup=1, synchronise=synchroniser(device))
    entries = entries_of(supernet, list(dict.fromkeys(trial.subnet for trial in trials)), runtime)
    progress.phase("latency", clock.calls(len(entries)))
    lines, noise = measure(supernet, entries, random_cell(supernet, *cell), FORWARD, clock, progress)
    timed = {line.subnet: line for line in lines if line.runtime == runtime}
    predicted = dict(zip(timed, bench.cost("latency")(list(timed)).tolist(), strict=True))
    return Latencies(timed, predicted, noise, device_facts(device, supernet.model.dtype))


def choose(
    candidates: Sequence[Trial],
    full: Trial,
    goal: Goal,
    latencies: Latencies | None,
    bound: LossBound | None = None,
) -> Trial:
    """The trial that the goal takes; where latencies were measured, by those.

    Raises:
        BudgetError: If none will do.
    """
    if latencies is None:
        return goal.take.choose(candidates, full, bound)
    timed = {trial.subnet: trial for trial in candidates if trial.subnet in latencies.lines}

    def as_measured(trial: Trial) -> Trial:
        return replace(trial, costs={**trial.costs, "latency": latencies.measured(trial.subnet)})

    try:
        measured = [as_measured(trial) for trial in timed.values()]
        chosen = goal.take.choose(measured, as_measured(full), bound)
    except BudgetError as error:
        raise BudgetError(
            f"measured on this device, {error}: measure the table again, quiet, or ask for more"
        ) from error
    return timed[chosen.subnet]


def latency_table(
    supernet: Supernet, lines: Sequence[MeasuredLatency], predicted: Sequence[float]
) -> pd.DataFrame:
    """The columns of ``latency.csv``.

    Fields of ``MeasuredLatency`` and ``memory_of``, and ``predicted_ms``: what the latency table beside the
    supernet says; empty where it does not know.
    """
    memories = {
        subnet: memory_of(supernet, subnet) for subnet in dict.fromkeys(line.subnet for line in lines)
    }
    return pd.DataFrame(
        {**line.to_dict(), "predicted_ms": milliseconds, **memories[line.subnet]}
        for line, milliseconds in zip(lines, predicted, strict=True)
    )


def write_latencies(
    bench: Bench,
    folder: Path,
    latencies: Latencies,
    fronts: Mapping[str, Sequence[Trial]],
    full: Trial,
) -> None:
    """``latency.csv``, ``latency.json``, and score against latency and MACs of some frontiers.

    Args:
        bench: The supernet.
        folder: The run's.
        latencies: Of everything on the frontiers and of the full model.
        fronts: By name, cheapest first.
        full: The full model.
    """
    lines = latencies.lines
    table = latency_table(
        bench.supernet, [*lines.values()], [latencies.predicted[subnet] for subnet in lines]
    )
    write_csv(table, folder / LATENCY_FILE)
    line, held = lines[full.subnet], bench.held_out
    noise = {f"batch {line.batch}, length {line.length}": latencies.noise.to_dict()}
    write_json(folder / JSON_FILE, {**latencies.facts, "noise": noise})
    split, examples = (full.split, full.examples) if held is None else (held.split, held.examples)
    figure = draw_tradeoff(
        {name: _points(bench, latencies, front, full) for name, front in fronts.items()},
        _points(bench, latencies, [full], full).iloc[0],
        f"{full.metric} on {examples} {split} examples" + (", which chose" if held is None else ""),
        f"ms for a batch of {line.batch} x {line.length} tokens",
        f"{bench.folder.name} on {latencies.facts['device']}, {latencies.facts['threads']} threads",
    )
    save_figure(figure, folder / "tradeoff.png")


def _points(bench: Bench, latencies: Latencies, front: Sequence[Trial], full: Trial) -> pd.DataFrame:
    """Rows for ``draw_tradeoff``, scored on the rows that chose nothing, where there are some."""
    rows = []
    for trial in front:
        score = low = high = trial.score.value
        if bench.held_out is not None:
            own, whole = (bench.held_out.statistics(subnet) for subnet in (trial.subnet, full.subnet))
            score = low = high = bench.score(own).value
            if trial.subnet != full.subnet:
                difference = bench.difference(own, whole)
                low, high = (score - difference.mean + end for end in (difference.low, difference.high))
        share = trial.costs["macs"] / full.costs["macs"]
        scores = {"share": share, "score": score, "score_low": low, "score_high": high}
        rows.append({**latencies.lines[trial.subnet].to_dict(), **scores})
    return pd.DataFrame(rows)
