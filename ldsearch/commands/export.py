"""Exports a run's choice or its whole frontier, checked in a fresh process."""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import PreTrainedTokenizerBase

from ldsearch.commands.checked_rows import split_rows
from ldsearch.commands.words import recovered_in_words, score_in_words, training_in_words
from ldsearch.errors import DataError, ExportError, RunError
from ldsearch.export.card import Provenance, Written
from ldsearch.export.check import FreshProcess, Rows, Verified, random_rows, verify, write_card
from ldsearch.export.folder import staged, write_huggingface
from ldsearch.export.onnx import write_onnx
from ldsearch.export.timing import TOKENS, Timing
from ldsearch.files import write_json
from ldsearch.latency.measure import generating
from ldsearch.recorded import load_recorded_task
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, load_supernet
from ldsearch.target import Target

FORMATS = MappingProxyType({"hf": write_huggingface, "onnx": write_onnx})
FRONTIER_FILE = "frontier.csv"
INDEX_FILE = "index.json"
# Rows at once whose latency is measured where the run's budget names none.
BATCHES = (1, 8)

OnStep = Callable[[str, int], None]


def _nobody(phase: str, total: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        folder: Where.
        verified: What the checks found, for each sub-network.
        notes: What could not be checked, and why; in words.
    """

    folder: Path
    verified: tuple[Verified, ...]
    notes: tuple[str, ...] = ()


def export_model(
    folder: str | Path,
    output: str | Path,
    *,
    subnet: str | None = None,
    format: str = "hf",
    data: str | None = None,
) -> Path:
    """``export_one``; returns the folder, as ``ldsearch.load`` takes it."""
    return export_one(folder, output, subnet=subnet, format=format, data=data).folder


def export_one(
    folder: str | Path,
    output: str | Path,
    *,
    subnet: str | None = None,
    format: str = "hf",
    data: str | None = None,
    on_step: OnStep = _nobody,
) -> Exported:
    """Write a sub-network with a model card, once a fresh process has given its outputs and its score.

    Args:
        folder: A search run, or a supernet together with ``subnet``.
        output: Must not exist or be empty.
        subnet: JSON or ``"full"``; None takes the run's best.
        format: ``"hf"``, a Hugging Face folder, or ``"onnx"``, one file for ONNX Runtime.
        data: Where the supernet's data lie now, if they were moved.
        on_step: Called with a phase and its number of steps, before each step.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or output, or the check that failed.
    """
    target = Target.resolve(folder, subnet)
    return _export(target, Path(folder).name, Path(output), format, data, on_step)


def export_frontier(
    folder: str | Path,
    output: str | Path,
    *,
    format: str = "hf",
    data: str | None = None,
    on_step: OnStep = _nobody,
) -> Exported:
    """Write every sub-network of a run's frontier to a folder of its own, and ``index.json`` beside them.

    The index is a list, cheapest first, of ``folder``, ``subnet``, ``metric``, ``score``, ``held_out`` (the
    score on rows that chose nothing, and its difference to the full model with a 95% interval; null where
    the run has none), ``costs``, ``full_costs``, and of what the export itself gave: ``verified`` in words,
    ``measured_score`` and ``latency`` (fields of ``Scored`` and ``Timed``).

    Args:
        folder: A finished run that has ``frontier.csv``.
        output: Must not exist or be empty.
        format: As for ``export_one``.
        data: As for ``export_one``.
        on_step: As for ``export_one``.

    Raises:
        LdsearchError: One line for a bad folder or output, or the check that failed; nothing is written.
    """
    target, path = Target.resolve(folder), Path(folder) / FRONTIER_FILE
    if target.best is None or not path.is_file():
        raise RunError(f"{folder} is no run with a {FRONTIER_FILE}: --all exports a search run's frontier")
    with path.open(encoding="utf-8", newline="") as file:
        try:
            points = [_point(row, target.best) for row in csv.DictReader(file)]
        except (KeyError, ValueError) as error:
            raise RunError(f"{path} is damaged: {error}") from error
    return _export(target, Path(folder).name, Path(output), format, data, on_step, points)


def _export(
    target: Target,
    run: str,
    output: Path,
    format: str,
    data: str | None,
    on_step: OnStep,
    points: Sequence[Mapping[str, Any]] | None = None,
) -> Exported:
    """One sub-network into the folder itself, or each point into its own."""
    if format not in FORMATS:
        raise ExportError(f"unknown format {format!r}: use {' or '.join(FORMATS)}")
    write = FORMATS[format]
    supernet, record, tokenizer = load_supernet(target.supernet)
    measured = [target.best or {}] if points is None else points
    subnets = [target.subnet]
    if points is not None:
        subnets = [Subnet.from_json(json.dumps(point["subnet"])) for point in points]
    for subnet in subnets:
        supernet.check(subnet)  # before anything is written
    with staged(output) as staging:
        rows, notes = _rows(supernet, record, tokenizer, measured, data)
        written = []
        for index, (subnet, point) in enumerate(zip(subnets, measured, strict=True)):
            on_step("writing", len(subnets))
            place = staging if points is None else staging / str(index)
            written.append(write(supernet, tokenizer, subnet, place, _provenance(target, record, run, point)))
        timing = _timing(target, supernet, record, subnets)
        verified = _verified(supernet, written, rows, FreshProcess(staging, timing), on_step)
        if points is not None:
            checked = zip(points, verified, strict=True)
            entries = [{**_entry(i, point), **own.to_dict()} for i, (point, own) in enumerate(checked)]
            write_json(staging / INDEX_FILE, entries)
    return Exported(output, tuple(verified), notes)


def _verified(
    supernet: Supernet, written: Sequence[Written], rows: Rows, fresh: FreshProcess, on_step: OnStep
) -> list[Verified]:
    """Compared, scored and timed; the cards say so."""
    batches = len(written) * len(rows.batches)
    with fresh:
        found = verify(
            supernet, written, rows, fresh.answers, fresh.where, lambda: on_step("checking", batches)
        )
        latencies = []
        for latency in fresh.timings():
            on_step("timing", len(written))
            latencies.append(tuple(latency))
    found = [replace(own, latency=latency) for own, latency in zip(found, latencies, strict=True)]
    for export, own in zip(written, found, strict=True):
        write_card(export, own)
    return found


def _timing(target: Target, supernet: Supernet, record: SupernetRecord, subnets: Sequence[Subnet]) -> Timing:
    """At the workload's mean length, or at the batch and length of the run's latency budget."""
    workload = record.lengths_seen
    macs = supernet.macs(workload)([*subnets, supernet.full])
    named = re.search(r"@batch=(\d+),length=(\d+)", (target.best or {}).get("selector", ""))
    # A model of few positions reads less, where what it writes needs some of them.
    room = supernet.longest - (max(generating(TOKENS).written) if supernet.head.causal else 0)
    cells = [(batch, max(1, min(round(workload.mean_length), room))) for batch in BATCHES]
    if named:
        cells = [(int(named[1]), int(named[2]))]
    return Timing(str(target.supernet.resolve()), cells, (macs[:-1] / macs[-1]).tolist())


def _rows(
    supernet: Supernet,
    record: SupernetRecord,
    tokenizer: PreTrainedTokenizerBase,
    measured: Sequence[Mapping[str, Any]],
    data: str | None,
) -> tuple[Rows, tuple[str, ...]]:
    """Those of the split that chose; random ones where the data are not at hand, and a note that says so.

    Raises:
        DataError: If the data were named and are not the supernet's.
    """
    try:
        task = load_recorded_task(record, data)
    except DataError as error:
        if data is not None:
            raise
        note = f"outputs alone were checked, on random tokens, and no score: {error}"
        return random_rows(supernet), (note,)
    split = str(measured[0].get("split", "search"))
    recorded = [
        float(point["score"]) if point.get("metric") == task.metric.name else None for point in measured
    ]
    rows = split_rows(supernet, record, tokenizer, task, split, recorded)
    note = f"the score was not measured again: that takes the whole split, not {rows.origin}"
    return rows, () if rows.scoring else (note,)


def _provenance(target: Target, record: SupernetRecord, run: str, measured: Mapping[str, Any]) -> Provenance:
    searched = f"run {run}, {measured['selector']}" if measured else "named by hand"
    costs, full_costs = measured.get("costs", {}), measured.get("full_costs", {})
    return Provenance(
        supernet=target.supernet.name,
        training=training_in_words(record),
        data=Path(str(record.source["data"])).name,
        search="recovered on its own" if record.subnet else searched,
        score=score_in_words(measured) if measured else recovered_in_words(record),
        costs={name: (value, full_costs[name]) for name, value in costs.items() if name in full_costs},
        fingerprint=measured.get("fingerprint", ""),
        versions=record.versions,
    )


def _point(row: Mapping[str, str], best: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``frontier.csv`` as ``best.json`` would have it, from the same run.

    Raises:
        KeyError: If a column is missing.
        ValueError: If one is no number.
    """
    held = None
    if best["held_out"] is not None:
        ends = {"mean": "difference", "low": "difference_low", "high": "difference_high"}
        held = {
            "split": row["held_out_split"],
            "score": float(row["held_out_score"]),
            "full_score": best["held_out"]["full_score"],
            "difference": {
                **{end: float(row[column]) for end, column in ends.items()},
                "examples": int(row["held_out_examples"]),
            },
        }
    return {
        **best,
        "subnet": json.loads(row["subnet"]),
        "selector": "on its frontier",
        "score": float(row["score"]),
        "held_out": held,
        "costs": {name: float(row[name]) for name in best["costs"] if row.get(name)},
    }


def _entry(index: int, point: Mapping[str, Any]) -> dict[str, Any]:
    """What ``index.json`` says of a point."""
    names = ("subnet", "metric", "score", "held_out", "costs", "full_costs")
    return {"folder": str(index), **{name: point[name] for name in names}}
