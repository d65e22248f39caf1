"""Sequence-level distillation: training sources with what a model makes of them as their targets.

Kim & Rush 2016, Sec. 3.2: the student learns from the teacher's beam search instead of the data's targets.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.commands.console import print_notes, progress_bars, quiet_libraries, resumable
from ldsearch.commands.generation import decoding_of
from ldsearch.commands.options import DistillData
from ldsearch.decoding import TOKEN_IDS, Decoding, decode_batches, generation_config
from ldsearch.errors import DataError, RunError
from ldsearch.files import write_atomic, write_json
from ldsearch.fingerprint import digest, start_fingerprint, versions
from ldsearch.interruption import interruptible
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.runs import read_json
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.heads import HEADS
from ldsearch.tasks import TASKS, DataSource
from ldsearch.tasks.sequences import SequenceToSequence
from ldsearch.tasks.tables import Columns
from ldsearch.training.checkpoints import report_disk_full


def main(options: DistillData) -> dict[str, Any]:
    """Decode, and print how to train on what was written."""
    quiet_libraries()
    source = DataSource(
        options.data,
        config=options.config,
        validation=options.validation,
        columns=Columns(text=options.text_column, label=options.label_column),
        keep_overlap=options.keep_overlap,
        search_rows="half",  # of the training rows all are written anew
    )
    how = DistillOptions(
        options.model,
        source,
        options.task,
        decoding_of(options),
        options.max_source,
        options.batch_size,
        options.limit,
    )
    with resumable("run the same command again; nothing decoded is lost"), progress_bars() as bars:
        result = distill_data(options.out, how, bars)
    print(f"written: {result.out}: {result.rows} pairs ({how.decoding.describe()}); {result.overlap}")
    notes = []
    if result.blank:
        notes.append(f"{result.blank} targets have no text: training refuses them, raise --min-target")
    if result.cut:
        notes.append(
            f"{options.data} has no validation rows of its own: some were cut from it and are not decoded"
        )
    print_notes(notes)
    held_out = options.validation or "<the original validation file>"
    # Search rows that were cut from the written ones would be scored against the teacher's words.
    flags = f"--task {options.task} --data {options.out} --validation {held_out} --search-rows half"
    print(f"next: ldsearch train-supernet {flags} --model {options.model}")
    return {"data": str(result.out), "rows": result.rows}


@dataclass(frozen=True)
class DistillOptions:
    """Options of a distillation.

    Args:
        model: Folder of an encoder-decoder or a supernet, or a hub id.
        source: The data; its training rows, as a training on it would have them, are decoded.
        task: ``"translation"`` or ``"summarisation"``.
        decoding: How a target is found. The fewest tokens are 1: a row without a target is no pair.
        max_source: Sources are cut to so many tokens.
        batch_size: Sources decoded at once.
        limit: Only the first so many sources; None: all.

    Raises:
        DataError: If the task asks for no text, or a number is not above 0.
    """

    model: str
    source: DataSource
    task: str = "translation"
    decoding: Decoding = field(default_factory=lambda: Decoding(beams=4, min_length=1))
    max_source: int = 128
    batch_size: int = 32
    limit: int | None = None

    def __post_init__(self) -> None:
        kinds = [name for name, task in TASKS.items() if issubclass(task, SequenceToSequence)]
        if self.task not in kinds:
            raise DataError(f"--task {self.task} asks for no text: use {' or '.join(kinds)}")
        for flag, value in (("--limit", self.limit), ("--batch-size", self.batch_size)):
            if value is not None and value < 1:
                raise DataError(f"{flag} must be above 0, not {value}")


@dataclass(frozen=True)
class Distilled:
    """A finished distillation.

    Args:
        out: The file.
        rows: How many pairs it has.
        blank: How many of their targets have no text.
        cut: Whether held-out rows were cut from the data, which then stand in no file of their own.
        overlap: What was dropped so that no text is on two sides, in words.
    """

    out: Path
    rows: int
    blank: int
    cut: bool
    overlap: str


def distill_data(out: str | Path, options: DistillOptions, progress: Progress = NO_PROGRESS) -> Distilled:
    """Decode the training sources in their order; the same call goes on after an interruption.

    ``out`` appears when all is decoded, whole. Beside it stand ``<out>.json``, which says what it was made
    from, and until then ``<out>.part``, which holds the batches that are done.

    Raises:
        LdsearchError: One line for bad data, models or options, a file made from something else, a full disk.
        Interrupted: On SIGINT or SIGTERM, after the batch under way.
    """
    out = Path(out)
    if out.suffix != ".jsonl":
        raise RunError(f"--out {out}: one JSON line a pair is a .jsonl file")
    task = TASKS[options.task].load(options.source)
    sources = list(task.rows("train").sources)[: options.limit]
    model, tokenizer = load_model(options.model, HEADS[task.head])
    identity = _identity(options, sources, model, tokenizer)
    # Under the data's own names, so that a training reads them beside the original held-out rows.
    columns = (str(task.source["columns"]["text"]), str(task.source["columns"]["label"]))
    made_from = {"model": options.model, "data": dict(task.source), "versions": versions()}
    with interruptible() as stop, report_disk_full(out):
        _claim(out, identity, made_from)
        if not out.exists():
            journal = _Journal(out.with_name(f"{out.name}.part"), len(sources), options.batch_size)
            targets = journal.read()
            left = [row for row in range(len(sources)) if row not in targets]
            progress.phase("batches", -(-len(left) // options.batch_size))
            for batch in decode_batches(
                _on_accelerator(model),
                tokenizer,
                [sources[row] for row in left],
                options.decoding,
                max_source=options.max_source,
                batch_size=options.batch_size,
            ):
                answers = {left[index]: target for index, target in batch}
                journal.add(answers)
                targets |= answers
                progress.step()
                stop.check()
            write_atomic(out, _lines(sources, targets, columns))
            journal.path.unlink()
    pairs = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n")[:-1]]
    return Distilled(
        out=out,
        rows=len(pairs),
        blank=sum(not pair[columns[1]].strip() for pair in pairs),
        cut=options.source.validation is None and Path(options.source.data).is_file(),
        overlap=task.overlap,
    )


class _Journal:
    """The batches that are done, a JSON line ``[row, target]`` each source; what a kill tore is dropped.

    Args:
        path: Where it lies.
        rows: How many sources there are.
        batch_size: What is left after whole batches makes the same batches again.
    """

    def __init__(self, path: Path, rows: int, batch_size: int) -> None:
        self.path = path
        self._rows = rows
        self._batch_size = batch_size

    def read(self) -> dict[int, str]:
        """Targets by row, of whole batches; the file is cut to them."""
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        targets: list[tuple[int, str]] = []
        for line in lines:
            try:
                row, target = json.loads(line)
            except (ValueError, TypeError):
                break
            targets.append((row, target))
        if len(targets) < self._rows:
            del targets[len(targets) // self._batch_size * self._batch_size :]
        write_atomic(self.path, b"".join(lines[: len(targets)]))
        return dict(targets)

    def add(self, targets: dict[int, str]) -> None:
        """One batch more."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps([row, target]) + "\n" for row, target in targets.items()))


def _identity(
    options: DistillOptions,
    sources: Sequence[str],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """Digests of contents, so that models and data may be moved."""
    config = generation_config(model, options.decoding, options.max_source)
    return {
        "model": start_fingerprint(model.state_dict(), model.config.to_dict()),
        "tokenizer": digest(sorted(tokenizer.get_vocab().items())),
        "token ids": {name: getattr(config, name) for name in TOKEN_IDS},
        "sources": digest(sources),
        "decoding": asdict(options.decoding),
        "source length": options.max_source,
        "batch size": options.batch_size,
    }


def _claim(out: Path, identity: dict[str, Any], made_from: dict[str, Any]) -> None:
    """Make the file this run's own, or go on with the same run."""
    record = out.with_name(f"{out.name}.json")
    if not record.exists():
        if out.exists():
            raise RunError(f"{out} exists and is not ldsearch's: choose another --out")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(record, {"identity": identity, **made_from})
        except OSError as error:
            raise RunError(f"cannot write {record}: {error.strerror or error}") from error
        return
    held = read_json(record).get("identity")
    if not isinstance(held, dict):
        raise RunError(f"{record} is damaged: it holds no identity")
    different = [key for key in identity if held.get(key) != identity[key]]
    if different:
        raise RunError(
            f"{out} is made from something else (its {', '.join(different)} differ): choose another --out"
        )


def _on_accelerator(model: nn.Module) -> nn.Module:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return model if device is None else model.to(device)


def _lines(sources: Sequence[str], targets: dict[int, str], columns: tuple[str, str]) -> str:
    pairs = [dict(zip(columns, (text, targets[row]), strict=True)) for row, text in enumerate(sources)]
    return "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
