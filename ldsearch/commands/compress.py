"""One command from a fine-tuned model and some texts to a faster file, checked: fit, search, export.

A folder holds all of it: ``data``, ``supernet``, ``search`` (a search run) and ``model`` (an export).
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.binding import changed
from ldsearch.commands.checked_rows import AGREEMENT_ROWS, split_rows
from ldsearch.commands.console import (
    print_columns,
    print_notes,
    print_paragraph,
    progress_bars,
    quiet_libraries,
    resumable,
)
from ldsearch.commands.export import BATCHES, RUNTIMES_FILE, export
from ldsearch.commands.options import Compress, Evolve, TrainSupernet
from ldsearch.commands.own_texts import OwnTexts, read_texts
from ldsearch.commands.searching import plan_search, run_search
from ldsearch.commands.start import known_labels
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import BudgetError, RunError
from ldsearch.export.agreement import share_of_full
from ldsearch.export.check import LEAST_AGREEMENT
from ldsearch.export.elastic import BUDGETS_FILE
from ldsearch.export.loading import load_exported
from ldsearch.files import read_fields, write_json
from ldsearch.fingerprint import start_fingerprint
from ldsearch.goal import Goal, LossBound, MostAccurate, NoWorse
from ldsearch.latency.clock import Clock
from ldsearch.latency.fastest import ROUNDS, SECONDS, WARMUP, FullModel, time_full_model
from ldsearch.latency.measure import random_cell
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.run_folder import claim
from ldsearch.runs import COMPRESSED_FILE, SEARCH_FOLDER, SUPERNET_FILE, Run
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import StrategyContext
from ldsearch.staging import staged
from ldsearch.subnet import SUBNET_FILE, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.graph import refuse
from ldsearch.tasks import EMBEDDED, DataSource
from ldsearch.tasks.tables import Columns
from ldsearch.trial import Trial

# Measured in all, and of these the constant ratios that come first.
EVALUATIONS, RATIOS = 24, 14
# What is chosen where nothing is asked for: surely no more than so much below the full model; without labels
# the score is agreement, of which a model loses more than it loses of its accuracy.
MARGIN, MARGIN_OF_AGREEMENT = 0.01, 0.03
# Points beside the chosen one: about so many times its MACs, and not nearly as many.
BESIDE = (0.6, 1.6)
_ALIKE = 0.15
_TIMED = 8  # constant ratios whose times tell what a budget in ms is in MACs
_GAIN = 0.9  # of the full model's time: more is next to nothing gained
NO_DATA = (
    "compress needs texts such as the model will read: --data texts.csv; some hundreds are enough, and "
    "labels are not needed"
)


def main(options: Compress) -> dict[str, Any]:
    """Compress, and print one table."""
    quiet_libraries()
    folder = folder_of(options)
    with resumable("run the same command again to go on"), progress_bars() as bars:
        done = compress_into(folder, options, progress=bars, note=lambda text: print_notes([text]))
    print_columns([*done.table.columns], done.table.to_numpy().tolist(), 1)
    for sentence in done.words:
        print_paragraph(sentence)
    print(f'use it: ldsearch.load({str(folder / "model")!r}); with budget="0.3" another row of the table')
    print(f"more: ldsearch report {folder}; the same command with --budget 0.3 takes seconds")
    return done.to_dict()


@dataclass(frozen=True)
class Compressed:
    """A compressed model.

    Args:
        folder: Where everything lies; the file that serves in ``model``.
        points: The full model in its fastest runtime, the chosen sub-network, others that the file runs:
            ``name``, ``macs`` (share of the full model's), ``score`` on rows that chose nothing,
            ``difference`` to the full model in fp32 there (95% interval), ``ms`` by batch and length.
        metric: Of the scores.
        runtime: Where it is served.
        seconds: That this call took.
        words: On data and choice, a sentence each.
    """

    folder: Path
    points: Sequence[Mapping[str, Any]]
    metric: str
    runtime: str
    seconds: float
    words: Sequence[str]

    @property
    def table(self) -> pd.DataFrame:
        """The points as they are printed."""
        rows = []
        for point in self.points:
            gap = point["difference"]
            rows.append(
                {
                    "": point["name"],
                    "MACs": f"{point['macs']:.2f}",
                    self.metric: f"{point['score']:.4f}",
                    "minus full in fp32, 95%": f"{gap['low']:+.4f} to {gap['high']:+.4f}",
                    **{f"ms, {cell}": f"{ms:.3g}" for cell, ms in point["ms"].items()},
                }
            )
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        own = {name: value for name, value in vars(self).items() if name != "folder"}
        return {"run": str(self.folder), "model": str(self.folder / "model"), **own}


def compress(model: str | Path, texts: Any, **options: Any) -> Any:
    """``ldsearch compress`` from Python: the model in the runtime that serves, called like the stock one.

    Args:
        model: Folder or hub id of a fine-tuned model.
        texts: A list of texts, a pandas frame or a ``datasets.Dataset`` with texts, and labels if there are
            some; or a file, a folder or a hub id.
        options: Of ``ldsearch compress``; a ``budget`` may be a number.

    Returns:
        What ``ldsearch.load`` gives, with ``table``, the pandas frame that the command prints.

    Raises:
        LdsearchError: As ``compress_into``.
    """
    quiet_libraries()
    if "budget" in options:
        options["budget"] = str(options["budget"])
    with tempfile.TemporaryDirectory() as place:
        data = texts
        if not isinstance(texts, str | Path):
            table = texts.to_pandas() if hasattr(texts, "to_pandas") else texts
            table = table if isinstance(table, pd.DataFrame) else pd.DataFrame({"text": list(texts)})
            data = Path(place) / "texts.jsonl"
            table.to_json(data, orient="records", lines=True, force_ascii=False)
        how = Compress(model=str(model), data=str(data), **options)
        done = compress_into(folder_of(how), how)
    served = load_exported(done.folder / "model")
    served.table = done.table  # type: ignore[assignment]
    return served


def folder_of(options: Compress) -> Path:
    """Where everything goes, unless it is named after the model."""
    model = EMBEDDED if options.model is None else Path(options.model).name
    return options.place(f"{model}-compressed")


@dataclass(frozen=True)
class _SureOrNearest(NoWorse):
    """Where none is surely within the margin, the one that is surely the nearest to it."""

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take."""
        others = [trial for trial in candidates if trial.subnet != full.subnet]
        try:
            return super().choose(others, full, bound)
        except BudgetError:
            if bound is None or not others:
                raise
            return min(others, key=lambda trial: bound(trial.subnet))


def compress_into(
    folder: Path,
    options: Compress,
    *,
    progress: Progress = NO_PROGRESS,
    note: Callable[[str], None] = lambda text: None,
) -> Compressed:
    """Fit the token score, search lengths in the fastest runtime, export one file for every budget.

    Args:
        folder: Where everything goes; a call that was interrupted goes on there.
        options: See ``Compress``.
        progress: Receives phases.
        note: Called with what the user should know.

    Raises:
        LdsearchError: One line for a bad model, bad data, a budget that nothing meets, or a failed check.
        Interrupted: After SIGINT or SIGTERM.
    """
    began = time.monotonic()
    goal = Goal.parse("score", options.budget, options.at_least, options.most_accurate)
    if options.model is None and options.data is not None:
        raise RunError("name the fine-tuned model: ldsearch compress MODEL --data FILE")
    if options.model is not None and options.data is None:
        raise RunError(NO_DATA)
    model = options.model or str(_small_model(folder, options, note, progress))
    progress.phase("reading data and model", None)
    network, tokenizer = load_model(model)
    supernet = Supernet(network).eval()
    refuse(supernet)
    known = known_labels(model, supernet.head.name) or []
    columns = Columns(options.text_column, options.pair_column, options.label_column)
    source = DataSource(options.data or EMBEDDED, columns=columns)
    # The small one was trained on inputs cut alike.
    cut = options.max_length or (TrainSupernet().tokens if options.model is None else None)
    texts = read_texts(source, known, supernet, tokenizer, cut)
    identity = {
        "model": start_fingerprint(network.state_dict(), network.config.to_dict()),
        "texts": texts.fingerprint,
        "labelled": texts.labelled,
        "reference": texts.reference,
        "seed": options.seed,
        "metric": options.metric,
    }
    claim(folder, COMPRESSED_FILE, identity)
    home = _fitted(folder, model, texts, supernet, tokenizer, options, note, progress)
    bench = Bench.open(home, runs=folder)
    full = _timed(folder, bench, goal, progress)
    bench = replace(bench, runtime=full.fastest(files=True))
    run, chosen = _searched(folder, bench, goal, texts.labelled, options, progress)
    rows = _points(bench, run, full, _exported(folder, bench, run, full, progress))
    name = bench.task.metric.name if texts.labelled else f"agreement ({bench.task.metric.name})"
    done = Compressed(folder, rows, name, str(bench.runtime), time.monotonic() - began, ())
    done = replace(done, words=[*_on_data(texts, bench), *_on_choice(done, run, chosen)])
    write_json(
        folder / COMPRESSED_FILE, {"identity": identity, "options": changed(options), **done.to_dict()}
    )
    return done


def _small_model(folder: Path, options: Compress, note: Callable[[str], None], progress: Progress) -> Path:
    """A small plain model of the text that comes with ldsearch, beside the folder; trained once."""
    place = folder.with_name(f"{EMBEDDED}-plain")
    if not (place / SUPERNET_FILE).is_file():
        train_supernet(place, TrainSupernet(strategy="plain", seed=options.seed), note, progress)
    return place


def _fitted(
    folder: Path,
    model: str,
    texts: OwnTexts,
    supernet: Supernet,
    tokenizer: Any,
    options: Compress,
    note: Callable[[str], None],
    progress: Progress,
) -> Path:
    """The supernet of the model, its token score fitted; made where it is not there yet."""
    data, home = folder / "data", folder / "supernet"
    if not data.is_dir():
        with staged(data) as staging:
            texts.write(staging, supernet, tokenizer, progress)
    if not (home / SUPERNET_FILE).is_file():
        columns = {f"{name}_column": column for name, column in asdict(texts.columns).items()}
        how = TrainSupernet(
            task=texts.kind.kind,
            data=str(data),
            model=model,
            genes="lengths",
            max_length=texts.reference,
            keep_overlap=True,  # no rows were drawn that share text
            metric=options.metric,
            seed=options.seed,
            trainer={"max_steps": "0"},
            **columns,
        )
        train_supernet(home, how, note, progress)
    return home


def _timed(folder: Path, bench: Bench, goal: Goal, progress: Progress) -> FullModel:
    """What the full model takes in every runtime; measured once."""
    path = folder / RUNTIMES_FILE
    length = max(1, round(bench.record.lengths_seen.mean_length))
    cells = [(batch, length) for batch in BATCHES]
    if goal.budget is not None and goal.budget.cell is not None:
        cells = [goal.budget.cell]
    if path.is_file():
        known = FullModel.from_dict(read_fields(path))
        if [*known.cells] == cells:
            return known
    supernet = bench.supernet.eval()
    rows = split_rows(supernet, bench.record, bench.tokenizer, bench.task, bench.split, ())
    share = share_of_full(supernet, rows.first(AGREEMENT_ROWS))
    full = time_full_model(supernet, cells, share, LEAST_AGREEMENT, progress)
    write_json(path, full.to_dict())
    return full


def _searched(
    folder: Path, bench: Bench, goal: Goal, labelled: bool, options: Compress, progress: Progress
) -> tuple[Run, str]:
    """Constant ratios, and a short search from there, scored in the runtime that will serve.

    Returns:
        The run, and what the choice is, in words.
    """
    how = Evolve(genes="lengths", widen=True, evaluations=EVALUATIONS, seed=options.seed)
    spec = plan_search(bench, how)
    context = replace(spec.context, settings=replace(spec.context.settings, initial=RATIOS))
    goal = _in_macs(bench, context, goal, progress)
    if isinstance(goal.take, MostAccurate) and not options.most_accurate:
        goal = replace(goal, take=_SureOrNearest(MARGIN if labelled else MARGIN_OF_AGREEMENT))
    how = replace(how, **goal.take.options)
    spec = replace(spec, context=context, controlled=False)
    outcome = run_search(bench, folder / SEARCH_FOLDER, spec, goal, how, progress)
    regular = outcome.best.subnet in constant_ratio_line(context, RATIOS)
    words = "a constant ratio of tokens per block" if regular else "found by search"
    if (
        isinstance(goal.take, NoWorse)
        and (bound := bench.loss_bound(outcome.best.subnet)) >= goal.take.margin
    ):
        words += (
            f", the nearest to {goal.take.text}: none surely is, on the {outcome.best.examples} rows that "
            f"chose; this one may lose {bound:.4f}"
        )
    return Run.open(outcome.folder), words


def _in_macs(bench: Bench, context: StrategyContext, goal: Goal, progress: Progress) -> Goal:
    """A goal with a budget in ms as one with a share of the MACs, by the times of some constant ratios.

    Raises:
        BudgetError: If not even the cheapest is so fast.
    """
    budget = goal.budget
    if budget is None or budget.cell is None:
        return goal
    served = bench.served
    assert served is not None
    ratios = constant_ratio_line(context, _TIMED)
    (inputs,) = random_cell(bench.supernet, *budget.cell).batches
    clock = Clock(ROUNDS, WARMUP, seconds=SECONDS)
    progress.phase("lengths timed", clock.calls(len(ratios)))
    runs = [served.timed(inputs, subnet) for subnet in ratios]
    medians = [1e3 * timing.median for timing in clock(runs, progress).timings]
    costs = bench.macs([*ratios, bench.full])
    shares = costs[:-1] / costs[-1]
    # Noise aside, what costs more takes longer.
    times = np.maximum.accumulate(medians)
    if times[0] > budget.limit:
        batch, length = budget.cell
        raise BudgetError(
            f"no sub-network meets the budget {budget.source}: at {shares[0]:.2f} of the MACs a batch of "
            f"{batch} x {length} tokens takes {times[0]:.2f} ms here in {bench.runtime}"
        )
    share = float(np.interp(budget.limit, times, shares))
    return Goal.parse(budget=f"{share:.3f}")


def _exported(
    folder: Path, bench: Bench, run: Run, full: FullModel, progress: Progress
) -> list[dict[str, Any]]:
    """The rows of the export's budgets, cheapest first; made anew where another point is chosen."""
    place, best = folder / "model", run.best
    points = [point.subnet for point in run.points()]
    ratios = bench.macs(points) / bench.macs([best.subnet])
    others = [
        (ratio, subnet) for ratio, subnet in zip(ratios, points, strict=True) if abs(ratio - 1) > _ALIKE
    ]
    near = {min(others, key=lambda one: abs(np.log(one[0] / aim)))[1]: None for aim in BESIDE if others}
    wanted = [best.subnet, *near]
    if place.is_dir():
        made = [json.dumps(row["subnet"]) for row in read_fields(place / BUDGETS_FILE)["rows"]]
        own = read_fields(place / SUBNET_FILE)["subnet"]
        if {*map(Subnet.from_json, made)} != {*wanted} or Subnet.from_fields(own) != best.subnet:
            shutil.rmtree(place)
    if not place.is_dir():
        export(run.folder, place, format="onnx", elastic=True, points=wanted, full=full, progress=progress)
    return list(read_fields(place / BUDGETS_FILE)["rows"])


def _points(
    bench: Bench, run: Run, full: FullModel, exported: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The full model in the runtime that serves, and the export's rows, the chosen one first."""
    held, blocks, reference = bench.held_out, bench.supernet.blocks, bench.record.reference
    assert held is not None
    # All but one of the longest input's tokens: of any that is shorter, all.
    whole = Subnet.of_encoder(range(blocks), [reference - 1] * blocks, reference)
    (score,) = held([whole], 0)
    gap = bench.difference(held.statistics(whole), held.statistics(bench.full))
    chosen = json.loads(run.best.subnet.to_json())
    rows = sorted(exported, key=lambda row: row["subnet"] != chosen)
    cells = [f"{line['batch']}x{line['length']}" for line in rows[0]["latency"]]

    def milliseconds(row: Mapping[str, Any], field: str) -> dict[str, float]:
        return dict(zip(cells, (line[field] for line in row["latency"]), strict=True))

    return [
        {
            "name": f"full model, {full.fastest()}",
            "macs": 1.0,
            "score": score.score.value,
            "difference": asdict(gap),
            "ms": milliseconds(rows[0], "full_ms"),
        },
        *(
            {
                "name": "chosen" if row["subnet"] == chosen else "in the same file",
                "macs": row["costs"]["macs"] / row["full_costs"]["macs"],
                "score": row["held_out"]["score"],
                "difference": row["held_out"]["difference"],
                "ms": milliseconds(row, "median_ms"),
            }
            for row in rows
        ),
    ]


def _on_data(texts: OwnTexts, bench: Bench) -> list[str]:
    """Which rows were used for what."""
    rows = {name: len(own) for name, own in bench.task.splits.items()}
    sentence = (
        f"of {texts.given:,} texts (cut to {texts.reference} tokens) {rows['train']:,} fitted the token "
        f"score, {rows['search']:,} chose, and {rows['report']:,}, which chose nothing, gave the scores above"
    )
    if texts.labelled:
        return [sentence]
    return [
        sentence,
        "they have no labels, so the scores are agreement with the full model's own answers in fp32: of the "
        "answers that differ some were wrong before, so that less is lost of the accuracy",
    ]


def _on_choice(done: Compressed, run: Run, words: str) -> list[str]:
    """What the choice is, and what is gained by it."""
    full, chosen, *_ = done.points
    ratios = {cell: ms / full["ms"][cell] for cell, ms in chosen["ms"].items()}
    gained = " and ".join(f"{ratio:.2f} at {cell}" for cell, ratio in ratios.items())
    said = [
        f"chosen ({run.best.selector}): {words}; in {done.runtime} it takes {gained} (rows x tokens) of the "
        f"time of the {full['name']}"
    ]
    if slow := [cell for cell, ratio in ratios.items() if ratio > _GAIN]:
        length = slow[0].partition("x")[2]
        said.append(
            f"at {' and '.join(slow)} next to nothing is gained: inputs of {length} tokens have little to "
            "drop; leaving blocks out helps there too, which takes a training: ldsearch train-supernet "
            "--genes depth+lengths"
        )
    said.append(
        f"took {done.seconds / 60:.1f} minutes" if done.seconds >= 60 else f"took {done.seconds:.0f} s"
    )
    return said
