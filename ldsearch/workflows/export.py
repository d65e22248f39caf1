"""Exports a run's choice or its whole frontier, checked in a fresh process."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError, ExportError, RunError
from ldsearch.export.card import Provenance
from ldsearch.export.huggingface import write_huggingface
from ldsearch.export.onnx import write_onnx
from ldsearch.export.staging import staged
from ldsearch.export.verification import Rows, fresh_process, random_rows, verify
from ldsearch.files import write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, load_supernet
from ldsearch.workflows.recorded import load_recorded_task
from ldsearch.workflows.target import Target
from ldsearch.workflows.words import recovered_in_words, score_in_words, training_in_words

FORMATS = MappingProxyType({"hf": write_huggingface, "onnx": write_onnx})
FRONTIER_FILE = "frontier.csv"
INDEX_FILE = "index.json"

MOST_ROWS = 64
BATCH = 16
# Of a language model's logits.
MOST_FLOATS = 2**27


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        folder: Where.
        verified: What was checked, in words, for each sub-network.
    """

    folder: Path
    verified: tuple[str, ...]


def export_model(
    folder: str | Path, output: str | Path, *, subnet: str | None = None, format: str = "hf"
) -> Path:
    """``export_one``; returns the folder, as ``ldsearch.load`` takes it."""
    return export_one(folder, output, subnet=subnet, format=format).folder


def export_one(
    folder: str | Path, output: str | Path, *, subnet: str | None = None, format: str = "hf"
) -> Exported:
    """Write a sub-network with a model card, once a fresh process has given its outputs.

    Args:
        folder: A search run, or a supernet together with ``subnet``.
        output: Must not exist or be empty.
        subnet: JSON or ``"full"``; None takes the run's best.
        format: ``"hf"``, a Hugging Face folder, or ``"onnx"``, one file for ONNX Runtime.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or output, or the check that failed.
    """
    return _export(Target.resolve(folder, subnet), Path(folder).name, Path(output), format)


def export_frontier(folder: str | Path, output: str | Path, *, format: str = "hf") -> Exported:
    """Write every sub-network of a run's frontier to a folder of its own, and ``index.json`` beside them.

    The index is a list, cheapest first, of ``folder``, ``subnet``, ``metric``, ``score``, ``held_out`` (the
    score on rows that chose nothing, and its difference to the full model with a 95% interval; null where
    the run has none) and ``costs``.

    Args:
        folder: A finished run that has ``frontier.csv``.
        output: Must not exist or be empty.
        format: As for ``export_one``.

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
    return _export(target, Path(folder).name, Path(output), format, points)


def _export(
    target: Target, run: str, output: Path, format: str, points: Sequence[Mapping[str, Any]] | None = None
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
        rows = _rows(supernet, record, tokenizer)
        written = [
            write(supernet, tokenizer, subnet, place, _provenance(target, record, run, point))
            for index, (subnet, point) in enumerate(zip(subnets, measured, strict=True))
            for place in [staging if points is None else staging / str(index)]
        ]
        if points is not None:
            entries = [_entry(index, point) for index, point in enumerate(points)]
            write_json(staging / INDEX_FILE, entries)
        verified = verify(supernet, written, rows, fresh_process)
    return Exported(output, tuple(verified))


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


def _rows(supernet: Supernet, record: SupernetRecord, tokenizer: PreTrainedTokenizerBase) -> Rows:
    """The first rows of the search split as a check runs them; random ones where the data are not at hand."""
    try:
        task = load_recorded_task(record, None)
    except DataError:
        random = random_rows(supernet)
        return Rows(random.batches, f"{random.origin} (the supernet's data are not where they were)")
    encoded = task.encode("search", tokenizer, record.reference)
    collate = task.collate(tokenizer, None)
    width = supernet.model.config.vocab_size if supernet.head.name.endswith("LM") else 1
    most = min(MOST_ROWS, len(encoded), max(1, MOST_FLOATS // (record.reference * width)))
    starts = range(0, most, BATCH)
    batches = [collate([encoded[i] for i in range(start, min(start + BATCH, most))]) for start in starts]
    # A tokenizer may number segments for a model that has none.
    unread = set() if getattr(supernet.model.config, "type_vocab_size", 0) > 1 else {"token_type_ids"}
    read = {"input_ids", "attention_mask", "token_type_ids", "decoder_input_ids"} - unread
    inputs = [supernet.inputs(batch) for batch in batches]
    return Rows([{name: own[name] for name in read & set(own)} for own in inputs], "rows of the search split")
