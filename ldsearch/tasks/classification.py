"""Text classification: labelled texts or pairs; one label, several, or a number to be predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Collate, DataSource, Encoded, split_named
from ldsearch.tasks.labels import LABEL_KINDS, LabelKind
from ldsearch.tasks.metrics import Metric, metric_named
from ldsearch.tasks.objectives import Objective
from ldsearch.tasks.rows import pad_inputs
from ldsearch.tasks.splits import fix_splits
from ldsearch.tasks.tables import Columns, find_columns, read_tables

# Stands between the two texts of a pair where rows are compared; no whitespace, so a word of its own.
_PAIR_MARK = " \0 "
KIND = "classification"


@dataclass(frozen=True)
class TextExamples:
    """One split: texts, optional second texts, and labels: ids, numbers, or one 0 or 1 for each label."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> "TextExamples":
        """Some of the rows, in the given order."""
        return TextExamples(
            texts=tuple(self.texts[row] for row in rows),
            pairs=None if self.pairs is None else tuple(self.pairs[row] for row in rows),
            labels=tuple(self.labels[row] for row in rows),
        )

    @property
    def fingerprint(self) -> str:
        """Changes with any text or label."""
        return digest(self.texts, self.pairs or (), self.labels)


@dataclass(frozen=True)
class TextClassification:
    """A problem whose answer is read from the whole text, with its splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        labels: Label names; a label's id is its position.
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that they share no text, in words; empty where nothing was.
        kind: A key of ``ldsearch.tasks.labels.LABEL_KINDS``.
        metric_name: A metric of that kind; None takes its first.
    """

    source: Mapping[str, Any]
    labels: tuple[str, ...]
    splits: Mapping[str, TextExamples]
    overlap: str = ""
    kind: str = KIND
    metric_name: str | None = None

    head = "SequenceClassification"
    per_token = False

    @property
    def labelled(self) -> LabelKind:
        """What the labels are."""
        return LABEL_KINDS[self.kind]

    @property
    def metric(self) -> Metric:
        """By default accuracy, Pearson's r or micro-F1."""
        return metric_named(self.kind, self.metric_name, len(self.labels))

    @property
    def objective(self) -> Objective:
        """Cross-entropy, or squared error."""
        return self.labelled.objective

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Label names and the problem type."""
        return {
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: index for index, label in enumerate(self.labels)},
            "problem_type": self.labelled.problem_type,
        }

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, cut to ``reference`` tokens.

        Raises:
            DataError: If there is no such split.
        """
        examples = split_named(self.splits, split)
        tokens = tokenizer(
            list(examples.texts),
            list(examples.pairs) if examples.pairs is not None else None,
            truncation=True,
            max_length=reference,
        )
        features = tuple(
            {**{name: values[row] for name, values in tokens.items()}, "labels": label}
            for row, label in enumerate(examples.labels)
        )
        return Encoded(features, reference)

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Pads to the longest, or to ``pad_to``."""
        return pad_inputs(tokenizer, pad_to)

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """The batch itself."""
        return batch

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """The logits, shape (B, outputs)."""
        return logits

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per example, as the metric has them."""
        labels = np.array([feature["labels"] for feature in encoded])
        return self.metric.statistics(self.labelled.predictions(np.stack(outputs)), labels)


def load_classification(
    source: DataSource, known_labels: Sequence[str] | None = None, kind: str = KIND
) -> TextClassification:
    """Read a task from a file, a dataset folder or a hub id, and fix its splits.

    Args:
        source: The data.
        known_labels: Label names of a fine-tuned classifier, in id order; the data must use them.
        kind: What the labels are.

    Raises:
        DataError: If data is missing, empty or misshapen, too small or too alike to be split, or validation
            has labels training never saw.
    """
    labelled = LABEL_KINDS[kind]
    tables = read_tables(source.data, source.config, source.validation)
    found = find_columns(tables["train"], source.columns, source.data)
    assert found.label is not None
    rows = {}
    for role, table in tables.items():
        if role == "report" and (found.label not in table or _unlabelled(table[found.label])):
            continue  # public test sets hide their labels
        rows[role] = table[_check_columns(table, found, f"{source.data} ({role})")]
    names = labelled.names(rows["train"][found.label], known_labels)
    given = {
        role: TextExamples(
            texts=_texts(table[found.text], role),
            pairs=None if found.pair is None else _texts(table[found.pair], role),
            labels=labelled.values(table[found.label], names, role),
        )
        for role, table in rows.items()
    }
    fixed = fix_splits(
        {role: _joined(examples) for role, examples in given.items()},
        source.keep_overlap,
        search_rows=source.search_rows,
    )
    splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
    record = source.record(kind, {"text": found.text, "pair": found.pair, "label": found.label})
    task = TextClassification(record, tuple(names), splits, fixed.overlap.describe(), kind, source.metric)
    _ = task.metric  # refuses an unknown one before anything is trained
    return task


def _unlabelled(column: "pd.Series[Any]") -> bool:
    return bool((column.isna() | (column.astype(str) == "-1")).all())


def _check_columns(table: pd.DataFrame, columns: Columns, source: str) -> list[str]:
    find_columns(table, columns, source)
    return [name for name in (columns.text, columns.pair, columns.label) if name is not None]


def _joined(examples: TextExamples) -> Sequence[str]:
    """One text per row: a pair's two, with a mark between."""
    if examples.pairs is None:
        return examples.texts
    return [_PAIR_MARK.join(both) for both in zip(examples.texts, examples.pairs, strict=True)]


def _texts(column: "pd.Series[Any]", role: str) -> tuple[str, ...]:
    if column.isna().any():
        raise DataError(f"{int(column.isna().sum())} {role} rows have no text in column {column.name!r}")
    return tuple(str(text) for text in column)
