"""A user's own texts, with labels or without: rows to fit a fine-tuned model on, to choose and score by."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from ldsearch.disk.fingerprint import digest
from ldsearch.errors import DataError, SupernetError
from ldsearch.evaluation.batches import by_feature, collated, length_batches
from ldsearch.supernet import Supernet
from ldsearch.supernet.processor import bf16_is_fast
from ldsearch.supernet.supernet import inference
from ldsearch.tasks import (
    EMBEDDED,
    DataSource,
    Encoded,
    Task,
    kinds_of_head,
    likeliest_kind,
    load_task,
    task_kind,
)
from ldsearch.tasks.splits import portion_rows
from ldsearch.tasks.tables import Columns, check_columns, read_tables, usual_column
from ldsearch.training.saliency import CORRECTED, TOKENS
from ldsearch.work.progress import Progress

# The most rows that the token score is fitted on, that choose, and that report; vectors are corrected by more
# (``CORRECTED``). Without labels half as many choose: agreement has a wider margin, and the model's own
# answers take time.
MOST_ROWS: Mapping[str, int] = {"train": 600, "search": 1_000, "report": 750}
LEAST_ROWS = 50
# Of the full model on these: of a base-sized model that is minutes on two cores.
MOST_MACS = 9.5e12
_LABEL = "label"
_FILES = {"train": "train", "search": "validation", "report": "test"}


@dataclass(frozen=True)
class OwnTexts:
    """Rows of a user's data, drawn, not labelled yet where the data have no labels.

    Args:
        kind: Of task.
        tables: Role to rows.
        columns: Of the tables.
        names: The model's labels, as the tables spell them.
        reference: Tokens of the longest input, or that inputs are cut to.
        given: How many rows the data had.
        labelled: The roles whose rows have labels.
        note: On how those were matched to the model's, which may be nothing.
    """

    kind: type[Task]
    tables: Mapping[str, pd.DataFrame]
    columns: Columns
    names: Sequence[str]
    reference: int
    given: int
    labelled: Collection[str]
    note: str

    @property
    def fingerprint(self) -> str:
        """Digest that changes with any row."""
        return digest(*(table.to_json(orient="records") for table in self.tables.values()))

    def write(
        self, folder: Path, supernet: Supernet, tokenizer: PreTrainedTokenizerBase, progress: Progress
    ) -> None:
        """Write a file a role, as tasks read it; without labels, the full model's answers are the labels."""
        unlabelled = [role for role in self.tables if role not in self.labelled]
        progress.phase("the model's own answers", len(unlabelled) or None)
        for role, table in self.tables.items():
            if role in unlabelled:
                encoded = self.encoded(table, tokenizer)
                # What is only learned from may be rounded; what is compared with is the model in fp32.
                with torch.autocast("cpu", enabled=role == "train" and bf16_is_fast()):
                    answers = _own_answers(encoded, self._task(table), supernet, tokenizer)
                table = table.assign(**{self.columns.label or _LABEL: answers})
                progress.step()
            table.to_json(folder / f"{_FILES[role]}.jsonl", orient="records", lines=True, force_ascii=False)

    def encoded(self, table: pd.DataFrame, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        """The rows of a table, tokenised."""
        return self._task(table).encode("train", tokenizer, self.reference)

    def _task(self, table: pd.DataFrame) -> Task:
        rows = self.kind.read_rows(table, self.columns, self.names, "given")
        return self.kind({}, tuple(self.names), {"train": rows})


def kinds_of(supernet: Supernet, named: str | None) -> list[type[Task]]:
    """The kind of task that is named, else those that a fine-tuned model may be for, the likeliest first.

    Raises:
        SupernetError: If none is, or another is named.
    """
    config, head = supernet.model.config, supernet.head.name
    able = kinds_of_head(head, config)
    if named is not None:
        able = [kind for kind in able if kind is task_kind(named)]
    if not able:
        what = "no task reads" if named is None else f"--task {named} does not read"
        outputs = f" with {config.num_labels} outputs" if head == "SequenceClassification" else ""
        others = ": ldsearch train-supernet trains others" if named is None else ""
        raise SupernetError(f"{what} data for a {type(supernet.model).__name__}{outputs}{others}")
    return able


def read_texts(
    source: DataSource,
    known: Sequence[str],
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    *,
    trains: bool = False,
    task: str | None = None,
) -> OwnTexts:
    """Read the data, find out whether they have labels, and draw the rows that are used.

    Args:
        source: The data.
        known: The model's labels.
        supernet: The model.
        tokenizer: Its tokenizer.
        max_length: Tokens that inputs are cut to; None: what the model reads, up to 512.
        trains: Whether the rows that do not score are trained on, and wanted all.
        task: A kind of task; None: what model and data are for.

    Raises:
        DataError: If the data cannot be read, are labelled otherwise than the model, or are too few.
    """
    kinds, config = kinds_of(supernet, task), supernet.model.config
    tables = _embedded() if source.data == EMBEDDED else read_tables(source, kinds[0].by_line)
    kind = likeliest_kind(kinds, config, lambda: tables["train"], source)
    tables = {role: kind.prepare_table(table, source) for role, table in tables.items()}
    labelled = [role for role, table in tables.items() if _has_labels(table, kind, source)]
    if "train" in labelled:
        tables = {role: tables[role] for role in labelled}
    elif not labelled:
        check_columns(tables["train"], source.columns, source.data)
        source = replace(source, columns=replace(source.columns, label=_LABEL))
        tables["train"] = tables["train"].assign(**{_LABEL: kind.blanks(tables["train"], source, known)})
    first = tables[labelled[0] if labelled else "train"]
    columns = kind.find_columns(first, source)
    tables, labels, note = kind.by_class_names(tables, columns, known or None)
    first = tables[labelled[0] if labelled else "train"]
    names = kind.label_names(first, columns, labels)
    for role in {*tables} - {*labelled}:
        blanks = kind.blanks(tables[role], source, names)
        tables[role] = tables[role].assign(**{columns.label or _LABEL: blanks})
    for role, table in tables.items():
        check_columns(table, columns, f"{source.data} ({role})")
    rows = {role: kind.read_rows(table, columns, names, role) for role, table in tables.items()}
    given = sum(map(len, rows.values()))
    if given < LEAST_ROWS:
        raise DataError(
            f"{source.data} has {given} {'rows' if kind.rows_are == 'texts' else kind.rows_are}: --data "
            f"needs {LEAST_ROWS}, and some hundreds tell much more"
        )
    longest = min(tokenizer.model_max_length, supernet.longest, 512) if max_length is None else max_length
    whole = OwnTexts(kind, tables, columns, names, longest, given, labelled, note)
    encoded = whole.encoded(tables["train"].head(2 * LEAST_ROWS), tokenizer)
    (macs,) = supernet.macs(encoded.workload)([supernet.full])
    macs *= len(encoded) / encoded.examples  # of an example
    most = dict(MOST_ROWS)
    if "train" not in labelled:
        most["search"] //= 2
    share = min(1.0, MOST_MACS / macs / sum(most.values()))
    most = {role: max(1, round(share * count)) for role, count in most.items()}
    # More would not be read; a mean of states is corrected by more rows than the score is fitted on.
    times = CORRECTED if supernet.head.averages(supernet.reads_first) else 1
    read = times * TOKENS * encoded.examples // int(encoded.lengths.sum())
    most["train"] = min(times * most["train"], max(1, read))
    if trains:
        most["train"] = given
    index = portion_rows({role: own.compared for role, own in rows.items()}, most)
    wanted = [name for name in (columns.text, columns.pair, columns.label) if name]
    drawn = {role: tables[table].iloc[own][wanted] for role, (table, own) in index.items()}
    tokens = max(int(whole.encoded(table, tokenizer).lengths.max()) for table in drawn.values())
    scored = [role for role, (table, _) in index.items() if table in labelled]
    return OwnTexts(kind, drawn, columns, names, max(2, min(longest, tokens)), given, scored, note)


def _has_labels(table: pd.DataFrame, kind: type[Task], source: DataSource) -> bool:
    """Whether any row of a table has a label."""
    label = source.columns.label or usual_column([*table.columns], kind.column_names["label"])
    return label in table and not table[label].map(kind.is_hidden).all()


def _embedded() -> dict[str, pd.DataFrame]:
    """The text that comes with ldsearch, as tables."""
    task = load_task("classification", DataSource(EMBEDDED))
    return {
        role: pd.DataFrame({"text": rows.texts, _LABEL: [task.labels[label] for label in rows.labels]})
        for role, rows in task.splits.items()
    }


def _own_answers(
    encoded: Encoded, task: Task, supernet: Supernet, tokenizer: PreTrainedTokenizerBase
) -> list[Any]:
    """The full model's answers as cells of a label column, in the rows' order."""
    batches = length_batches(encoded.lengths, lambda length: 32, 16)
    found: dict[int, NDArray[np.float32]] = {}
    for index, batch in collated(task, encoded, tokenizer, None, batches):
        logits = inference(supernet, supernet.inputs(batch), supernet.full).float().cpu()
        found |= by_feature(task, encoded.lengths, index, task.read(logits, batch).numpy())
    return task.answers([found[row] for row in range(len(encoded))], encoded)
