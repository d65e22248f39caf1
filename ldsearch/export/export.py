"""Exports a run's choice or its whole frontier, checked in a fresh process."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ldsearch.bench import load_recorded_task
from ldsearch.disk.files import write_json
from ldsearch.disk.hub import origin_of
from ldsearch.disk.staging import staged
from ldsearch.errors import DataError, ExportError, RunError
from ldsearch.export.agreement import share_of_full
from ldsearch.export.as_it_is import AS_IT_IS, is_model, open_model
from ldsearch.export.card import Provenance, Written
from ldsearch.export.check import Rows, Verified, random_rows, verify_fresh
from ldsearch.export.elastic import budgets, rows_beside
from ldsearch.export.folder import onnx_file, write_huggingface, write_onnx
from ldsearch.export.names import BUDGETS_FILE, INDEX_FILE, RUNTIMES_FILE
from ldsearch.export.rows import AGREEMENT_ROWS, split_rows
from ldsearch.export.timing import TOKENS, TimingJob
from ldsearch.export.words import recovered_in_words, training_in_words
from ldsearch.latency.fastest import AUTO, FullModel, time_full_model
from ldsearch.latency.int8 import int8_instructions
from ldsearch.latency.measure import generating
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.options.serving import LEAST_AGREEMENT
from ldsearch.runs.run import Choice
from ldsearch.runs.target import Target
from ldsearch.subnet import Subnet, drop_places, keep_of
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import RECORD, SupernetRecord, load_supernet, read_record
from ldsearch.supernet.graph import refuse
from ldsearch.tasks.tables import Columns
from ldsearch.work.progress import NO_PROGRESS, Progress

# Rows at once whose latency is measured where the run's budget names none.
BATCHES = (1, 8)
# Of a model whose data nobody named.
RANDOM_ROWS = 200
NO_SCORE = (
    f"outputs were compared on {RANDOM_ROWS} rows of random tokens, and no score was taken: name labelled "
    "rows with --data"
)
SLOW_INT8 = (
    "this processor has no instruction for products of int8 (VNNI, AMX, dot products): int8 gains less "
    "here than where there is one"
)


@dataclass(frozen=True)
class Exported:
    """A finished export.

    Args:
        folder: Where.
        folders: Of the exports, relative to it.
        verified: What the checks found, for each of them.
        notes: What could not be checked, and why; in words.
    """

    folder: Path
    folders: tuple[str, ...]
    verified: tuple[Verified, ...]
    notes: tuple[str, ...] = ()


def export(
    folder: str | Path,
    output: str | Path,
    *,
    subnet: str | None = None,
    frontier: bool = False,
    format: str = "hf",
    runtime: str = AUTO,
    elastic: bool = False,
    points: Sequence[Subnet] | None = None,
    full: FullModel | None = None,
    least_agreement: float = LEAST_AGREEMENT,
    limit: int | None = None,
    data: str | None = None,
    task: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> Exported:
    """Write sub-networks with model cards, once a fresh process has given their outputs and scores.

    A frontier's lie in folders of their own, and ``index.json`` is a list, cheapest first, of ``folder``,
    ``file`` (of its ONNX graph, from the index on; null without one), ``subnet``, ``metric``, ``score``,
    ``held_out`` (the score on rows that chose nothing, and its difference to the full model with a 95%
    interval; null where the run has none), ``costs``, ``full_costs``, and of what the export itself gave:
    ``verified`` in words, ``measured_score``, ``latency``, ``machine``, ``runtime`` and ``dtype``
    (``Verified.to_dict``). In a runtime that rounds ``held_out`` is the export's own. What the full model
    took in every runtime, where ``auto`` chose, is in ``runtimes.json``.

    An elastic graph runs every sub-network of the frontier that has the chosen one's blocks. ``budgets.json``
    holds ``rows``, cheapest first, each with the same fields and ``keep``, what the graph is fed; and
    ``reference``, the tokens that ``keep`` counts in.

    Args:
        folder: A search run, a supernet together with ``subnet``, or any fine-tuned model, exported whole,
            or an export, exported again.
        output: Must not exist or be empty.
        subnet: JSON or ``"full"``; None takes the run's best.
        frontier: Every sub-network of the run's frontier.
        format: ``"hf"``, a Hugging Face folder, or ``"onnx"``, one file for a runtime.
        runtime: Which one; ``"auto"`` times the full model in all that are installed, for some seconds.
        elastic: Make lengths an input of the file.
        points: Those of the frontier that an elastic file is written for; None: all.
        full: What the full model takes in every runtime, where ``auto`` need not time it again; exports are
            timed at its batches and lengths.
        least_agreement: The least share of predictions that are the supernet's, where a runtime rounds.
        limit: The most rows that outputs are compared on; None: all that choose, and their score too.
        data: Where the supernet's data lie now, if they were moved; rows to score any other model on.
        task: Of a model that was not trained here; None: the first that fits its head.
        text_column: Of its data.
        label_column: Of its data.
        progress: Phases of writing, reading and checking.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or output, or the check that failed; nothing is
            written.
    """
    output = Path(output)
    if format not in ("hf", "onnx"):
        raise ExportError(f"unknown format {format!r}: use hf or onnx")
    if runtime != AUTO:
        if format != "onnx":
            raise ExportError(f"--runtime {runtime} runs an ONNX file: use --format onnx")
        graph_runtime(runtime).require()
    target, supernet, record, tokenizer = _open(
        Path(folder), subnet, data, task, Columns(text=text_column, label=label_column)
    )
    measured = _measured(target, frontier, elastic, format, points)
    subnets = [target.subnet if choice is None else choice.subnet for choice in measured]
    fed = drop_places(subnets) if elastic else ()
    for each in subnets:
        supernet.check(each)  # before anything is written
    cells = _cells(target, supernet, record) if full is None else [*full.cells]
    scored_in = _scored_in(target)
    with staged(output) as staging:
        rows, unseen, notes = _rows(supernet, record, tokenizer, measured, data, limit)
        write, rounds, scored, rival = write_huggingface, False, False, ""
        if format == "onnx":
            refuse(supernet)
            if runtime == AUTO and full is None:
                full = _timed(supernet, rows, cells, least_agreement, progress)
            if full is not None:
                rival, runtime = full.fastest(), full.fastest(files=True) if runtime == AUTO else runtime
                write_json(staging / RUNTIMES_FILE, full.to_dict())
            notes += _told(runtime, full)
            write = partial(write_onnx, runtime=runtime, fed=fed)
            rounds = graph_runtime(runtime).rounds
            # What the run scored in this runtime need not be scored again.
            scored = scored_in == runtime
        rows = rows if scored else _without_scores_of(scored_in, rows)
        places = [staging / str(index) if frontier else staging for index in range(len(subnets))]
        written: list[Written] = []
        progress.phase("writing", len(subnets))
        for each, choice, place in zip(subnets, measured, places, strict=True):
            if elastic and written:  # the first one's file runs the others too
                keep = keep_of(each, record.reference, fed)
                written.append(replace(written[0], subnet=each, keep=keep, card=None))
            else:
                provenance = _provenance(target, record, Path(folder).name, choice)
                written.append(write(supernet, tokenizer, each, place, provenance))
            progress.step()
        timing = TimingJob(
            str(target.supernet.resolve()),
            [each.to_json() for each in subnets],
            cells,
            [each.runtime for each in written],
            rival,
            str(supernet.model.device),
            # A recovered model has the blocks of its supernet, which may be gone.
            "" if target.parent is None or record.subnet else str(target.parent.resolve()),
        )
        verified = verify_fresh(
            supernet,
            written,
            rows,
            timing,
            staging,
            progress,
            unseen=unseen if rounds and not scored else None,
            least_agreement=least_agreement,
        )
        entries = [
            _entry(place, choice, own, scored)
            for choice, place, own in zip(measured, places, verified, strict=True)
            if choice is not None
        ]
        _write_entries(staging, entries, frontier, subnets if elastic else (), record.reference)
    names = tuple(place.name if frontier else "" for place in places)
    return Exported(output, names, tuple(verified), notes)


def _scored_in(target: Target) -> str | None:
    """The runtime that a run scored in; None: none, or there is no run."""
    return None if target.run is None else target.run.identity.get("scored_in")


def _without_scores_of(runtime: str | None, rows: Rows) -> Rows:
    """The rows without the scores that a run recorded, if they are of a runtime, which may round."""
    return rows if runtime is None else replace(rows, recorded=())


def _open(
    folder: Path, subnet: str | None, data: str | None, task: str | None, columns: Columns
) -> tuple[Target, Supernet, SupernetRecord, PreTrainedTokenizerBase]:
    """The target of an export, and the model, record and tokenizer that it belongs to."""
    if not is_model(folder):
        if task is not None or columns != Columns():
            raise ExportError(
                f"{folder} knows its data: --task, --text-column and --label-column tell how those of a "
                "model that was not trained here are read"
            )
        target = Target.resolve(folder, subnet)
        return target, *load_supernet(target.supernet)
    if subnet not in (None, "full"):
        raise ExportError(
            f"{folder} was not trained by ldsearch: its sub-networks do not work, export it whole"
        )
    supernet, own, record, tokenizer = open_model(folder, data, task, columns)
    return Target(folder, own), supernet, record, tokenizer


def _write_entries(
    folder: Path, entries: list[dict[str, Any]], frontier: bool, elastic: Sequence[Subnet], reference: int
) -> None:
    """Write the index of several exports, or the budgets of one."""
    if frontier:
        write_json(folder / INDEX_FILE, entries)
    if elastic:
        write_json(folder / BUDGETS_FILE, budgets(reference, entries, elastic))


def _measured(
    target: Target, frontier: bool, elastic: bool, format: str, points: Sequence[Subnet] | None
) -> Sequence[Choice | None]:
    """The run's best, its frontier, or, the best first, the points of it that one elastic graph runs.

    Raises:
        RunError: If a frontier is asked for and there is no run.
        ExportError: If an elastic graph is none, or one of several.
    """
    if not (frontier or elastic):
        return [None if target.run is None else target.run.best]
    if elastic and (frontier or format != "onnx"):
        raise ExportError("--elastic is one file for the whole frontier: use --format onnx, without --all")
    if target.run is None:
        flag = "--all" if frontier else "--elastic"
        raise RunError(f"{flag} exports a search run's frontier, and {target.supernet} is no search run")
    if frontier:
        return target.run.own_points()
    best = target.run.best
    wanted = [point for point in target.run.own_points() if points is None or point.subnet in points]
    others = [point for point in wanted if point.subnet != best.subnet]
    return [best, *(others[place] for place in rows_beside(best.subnet, [one.subnet for one in others]))]


def _timed(
    supernet: Supernet, rows: Rows, cells: Sequence[tuple[int, int]], least: float, progress: Progress
) -> FullModel:
    """Times of the full model in every runtime."""
    share = share_of_full(supernet.eval(), rows.first(AGREEMENT_ROWS), rows.likeness)
    return time_full_model(supernet, cells, share, least, progress)


def _told(runtime: str, full: FullModel | None) -> tuple[str, ...]:
    """Notes on the runtime of an export."""
    slow = graph_runtime(runtime).quantised and int8_instructions() == ()
    return (*([full.describe()] if full else []), *([SLOW_INT8] if slow else []))


def _entry(place: Path, choice: Choice, verified: Verified, scored: bool) -> dict[str, Any]:
    """An export's entry in the index; ``scored``: whether the run scored what the export gives."""
    names = ("subnet", "metric", "score", "held_out", "costs", "full_costs")
    graph = onnx_file(place)
    file = None if graph is None else f"{place.name}/{graph}"
    own = {key: choice.to_dict()[key] for key in names}
    fields = {"folder": place.name, "file": file, **own, **verified.to_dict()}
    rounds = verified.tolerance is None and not scored
    return fields if rounds else {**fields, "held_out": own["held_out"]}


def _cells(target: Target, supernet: Supernet, record: SupernetRecord) -> list[tuple[int, int]]:
    """Batch sizes and lengths to time: the workload's mean length, or those of the run's latency budget."""
    budget = None if target.run is None else target.run.goal.in_time
    if budget is not None:
        return [budget.cell]
    # A model of few positions reads less, where what it writes needs some of them.
    room = supernet.longest - (max(generating(TOKENS).written) if supernet.head.causal else 0)
    length = max(1, min(round(record.lengths_seen.mean_length), room))
    return [(batch, length) for batch in BATCHES]


def _rows(
    supernet: Supernet,
    record: SupernetRecord,
    tokenizer: PreTrainedTokenizerBase,
    measured: Sequence[Choice | None],
    data: str | None,
    limit: int | None,
) -> tuple[Rows, Rows | None, tuple[str, ...]]:
    """Rows of the split that chose; random ones where the data are not at hand, and a note that says so.

    And those of the other split, where there is one, on which what a runtime rounds is scored.

    Raises:
        DataError: If the data were named and are not the supernet's.
    """
    if record.strategy == AS_IT_IS and data is None:
        return random_rows(supernet, RANDOM_ROWS), None, (NO_SCORE,)
    try:
        task = load_recorded_task(record, data)
    except DataError as error:
        if data is not None:
            raise
        note = f"outputs alone were checked, on random tokens, and no score: {error}"
        return random_rows(supernet), None, (note,)
    split = "search" if measured[0] is None else measured[0].split
    recorded = [
        choice.score if choice is not None and choice.metric == task.metric.name else None
        for choice in measured
    ]
    rows = split_rows(supernet, record, tokenizer, task, split, recorded, limit)
    note = f"the score was not measured again: that takes the whole split, not {rows.origin}"
    notes: tuple[str, ...] = () if rows.score else (note,)
    other = "report" if split == "search" else "search"
    if other not in record.splits:
        return rows, None, notes
    return rows, split_rows(supernet, record, tokenizer, task, other, ()), notes


def _provenance(target: Target, record: SupernetRecord, run: str, choice: Choice | None) -> Provenance:
    searched = "named by hand" if choice is None else f"run {run}, {choice.selector}"
    costs = {} if choice is None else choice.costs
    full_costs = {} if choice is None else choice.full_costs
    return Provenance(
        supernet=target.supernet.name,
        training=training_in_words(record),
        data=Path(str(record.source["data"])).name,
        search=("the whole model" if target.subnet == record.full else "as it came")
        if record.strategy == AS_IT_IS
        else "recovered on its own"
        if record.subnet
        else searched,
        score=recovered_in_words(record) if choice is None else choice.describe(),
        costs={name: (value, full_costs[name]) for name, value in costs.items() if name in full_costs},
        fingerprint="" if choice is None else choice.fingerprint,
        versions=record.versions,
        origin=origin_of(_started_from(target, record), str(record.source["data"])),
        metric=next(iter(record.metrics), "") if choice is None else choice.metric,
        task=str(record.source.get("task", "")),
        pairs=bool(record.source.get("columns", {}).get("pair")),
    )


def _started_from(target: Target, record: SupernetRecord) -> str | None:
    """The model that training began with: a recovered one's is its supernet's."""
    if record.strategy == AS_IT_IS:
        return str(target.supernet)
    if target.parent is not None and (target.parent / RECORD).is_file():
        record = read_record(target.parent)
    name: str | None = record.training["model"]
    return name
