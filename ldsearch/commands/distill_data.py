"""Sequence-level distillation: training sources with what a model makes of them as their targets.

Kim & Rush 2016, Sec. 3.2: the student learns from the teacher's beam search instead of the data's targets.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.commands.console import print_notes, progress_bars, quiet_libraries, resumable
from ldsearch.disk.files import report_disk_full, write_atomic, write_json
from ldsearch.disk.fingerprint import digest, start_fingerprint, versions
from ldsearch.errors import DataError, RunError, of_system
from ldsearch.evaluation.decoding import TOKEN_IDS, decode_batches, generation_config
from ldsearch.options import DistillData
from ldsearch.runs.folder import differing
from ldsearch.search.generation import decoding_of
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.heads import HEADS
from ldsearch.tasks import TASKS, DataSource
from ldsearch.tasks.sequences import SequenceToSequence
from ldsearch.tasks.tables import Columns
from ldsearch.work.interruption import interruptible
from ldsearch.work.progress import NO_PROGRESS, Progress, Stoppable

_MANY_ENDLESS = 0.05  # of the targets: a teacher that ends its sentences rarely meets the limit


def main(options: DistillData) -> dict[str, Any]:
    """Decode, and print how to train on what was written."""
    quiet_libraries()
    with resumable("run the same command again; nothing decoded is lost"), progress_bars() as bars:
        return distill_data(options, bars)


def distill_data(options: DistillData, progress: Progress = NO_PROGRESS) -> dict[str, Any]:
    """Decode the training sources in their order; the same call goes on after an interruption.

    The file appears when all is decoded, whole. Beside it stand ``<out>.json``, which says what it was made
    from, and until then ``<out>.part``, with a JSON line for each batch that is done.

    Returns:
        The file (``data``), how many pairs it has (``rows``), and how many targets without text (``blank``).

    Raises:
        LdsearchError: One line for bad data, models or options, a file made from something else, a full disk.
        Interrupted: On SIGINT or SIGTERM, after the batch under way.
    """
    out, decoding = options.out, decoding_of(options)
    if out.suffix != ".jsonl":
        raise RunError(f"--out {out}: one JSON line a pair is a .jsonl file")
    kinds = [name for name, task in TASKS.items() if issubclass(task, SequenceToSequence)]
    if options.task not in kinds:
        raise DataError(f"--task {options.task} asks for no text: use {' or '.join(kinds)}")
    source = DataSource(
        options.data,
        config=options.config,
        validation=options.validation,
        columns=Columns(text=options.text_column, label=options.label_column),
        keep_overlap=options.keep_overlap,
        search_rows="half",  # of the training rows all are written anew
    )
    task = TASKS[options.task].load(source)
    sources = list(task.rows("train").sources)[: options.limit]
    model, tokenizer = load_model(options.model, HEADS[task.head])
    identity = _identity(options, sources, model, tokenizer)
    # Under the data's own names, so that a training reads them beside the original held-out rows.
    columns = (str(task.source["columns"]["text"]), str(task.source["columns"]["label"]))
    made_from = {"model": options.model, "data": dict(task.source), "versions": versions()}
    with interruptible() as stop, report_disk_full(out):
        _claim(out, identity, made_from)
        if not out.exists():
            targets = _decode(options, sources, model, tokenizer, Stoppable(progress, stop))
            pairs = [dict(zip(columns, pair, strict=True)) for pair in zip(sources, targets, strict=True)]
            write_atomic(out, "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs))
            _journal(out).unlink()
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n")[:-1]]
    blank = sum(not pair[columns[1]].strip() for pair in written)
    print(f"written: {out}: {len(written)} pairs ({decoding.describe()}); {task.overlap}")
    if blank:
        print_notes([f"{blank} targets have no text: training refuses them, raise --min-target"])
    tokens = tokenizer([pair[columns[1]] for pair in written], add_special_tokens=False)["input_ids"]
    endless = sum(len(target) >= options.max_target - 1 for target in cast(list[list[int]], tokens))
    if endless > _MANY_ENDLESS * len(written):
        long = f"{endless} of {len(written)} targets run to the limit of {options.max_target} tokens"
        print_notes(
            [f"{long}: raise --max-target, or look at what this teacher writes before you train on it"]
        )
    if options.validation is None and Path(options.data).is_file():
        cut = "has no validation rows of its own: some were cut from it and are not decoded"
        print_notes([f"{options.data} {cut}"])
    held_out = options.validation or "<the original validation file>"
    # Search rows that were cut from the written ones would be scored against the teacher's words.
    flags = f"--task {options.task} --data {out} --validation {held_out} --search-rows half"
    how = f"--model {options.model} --max-length {options.max_source} --strategy flexible-depth"
    print(f"next: ldsearch train-supernet {flags} {how}")
    return {"data": str(out), "rows": len(written), "blank": blank}


def _decode(
    options: DistillData,
    sources: Sequence[str],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    progress: Progress,
) -> list[str]:
    """The target of each source; batches that the journal holds are not decoded again."""
    journal = _journal(options.out)
    targets = _read_journal(journal)
    left = [row for row in range(len(sources)) if row not in targets]
    progress.phase("batches", -(-len(left) // options.batch_size))
    if torch.accelerator.is_available():
        cast(nn.Module, model).to(torch.accelerator.current_accelerator())
    for batch in decode_batches(
        model,
        tokenizer,
        [sources[row] for row in left],
        decoding_of(options),
        max_source=options.max_source,
        batch_size=options.batch_size,
    ):
        answers = {left[index]: target for index, target in batch}
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(answers) + "\n")
        targets |= answers
        progress.step()
    return [targets[row] for row in range(len(sources))]


def _journal(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def _read_journal(journal: Path) -> dict[int, str]:
    """Targets of the batches that are done, by row; what a kill tore is cut off the file."""
    content = journal.read_bytes() if journal.exists() else b""
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    batches: list[dict[str, str]] = []
    for line in lines:
        try:
            batches.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            break
    write_atomic(journal, b"".join(lines[: len(batches)]))
    return {int(row): target for batch in batches for row, target in batch.items()}


def _identity(
    options: DistillData,
    sources: Sequence[str],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """Digests of contents, so that models and data may be moved."""
    decoding = decoding_of(options)
    config = generation_config(model, tokenizer, decoding, options.max_source)
    return {
        "model": start_fingerprint(model.state_dict(), model.config.to_dict()),
        "tokenizer": digest(sorted(tokenizer.get_vocab().items())),
        "token ids": {name: getattr(config, name) for name in TOKEN_IDS},
        "sources": digest(sources),
        "decoding": asdict(decoding),
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
            raise of_system(f"cannot write {record}", error) from error
        return
    different = differing(record, identity)
    if different:
        raise RunError(
            f"{out} is made from something else (other {', '.join(different)}): choose another --out"
        )
