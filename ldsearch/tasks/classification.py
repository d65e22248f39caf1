"""Text classification: labelled texts or pairs; one label, several, or a number to predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Encoded, Rows, Task, features_of, split_rows
from ldsearch.tasks.objectives import Categorical, Objective, Regression, independent_labels, one_label
from ldsearch.tasks.tables import Columns, DataSource, find_columns, is_missing, read_tables, without_hidden

# Between the two texts of a pair where rows are compared; no whitespace, so a word of its own.
PAIR_MARK = " \0 "
KIND = "classification"

Column = pd.Series  # of whatever a file held


class LabelKind(Protocol):
    """One kind of labels of one output row per example."""

    @property
    def problem_type(self) -> str:
        """As stock configurations call it."""

    @property
    def objective(self) -> Objective:
        """The losses of training."""

    def names(self, column: "Column[Any]", known: Sequence[str] | None) -> list[str]:
        """Label names in id order, of training rows or of a fine-tuned model that they must fit."""

    def values(self, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[Any, ...]:
        """One label per row, as JSON can hold it."""

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """Predictions in the form of the labels, from logits of shape (examples, outputs)."""


class SingleLabel:
    """One class per example."""

    problem_type = "single_label_classification"
    objective = Categorical(one_label)

    def names(self, column: "Column[Any]", known: Sequence[str] | None) -> list[str]:
        """All that occur, numbers by value; or the model's, which the data must use."""
        _refuse_missing(column, "train")
        distinct = set(_label_texts(column))
        if known is not None:
            return _fitting(distinct, known)
        if len(distinct) < 2:
            raise DataError(f"classification needs at least two labels, the data has {sorted(distinct)}")
        if len(distinct) > max(2, len(column) // 2):
            raise DataError(
                f"{len(distinct)} distinct labels in {len(column)} rows: is {column.name!r} the label column?"
                " (numbers to be predicted as numbers are --task regression)"
            )
        return _in_order(distinct)

    def values(self, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[int, ...]:
        """Label ids."""
        _refuse_missing(column, role)
        texts = _label_texts(column)
        ids = {name: index for index, name in enumerate(names)}
        _refuse_strangers(set(texts) - set(ids), role)
        return tuple(ids[text] for text in texts)

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """The best label's id."""
        best: NDArray[np.int64] = logits.argmax(axis=-1)
        return best


class RealValue:
    """One number per example (STS-B's similarities)."""

    problem_type = "regression"
    objective = Regression()

    def names(self, column: "Column[Any]", known: Sequence[str] | None) -> list[str]:
        """One output."""
        if known is not None and len(known) != 1:
            raise DataError(f"the model classifies {', '.join(known)}; regression needs one output")
        return ["score"]

    def values(self, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[float, ...]:
        """The numbers."""
        _refuse_missing(column, role)
        numbers = pd.to_numeric(column, errors="coerce")
        wrong = int((~np.isfinite(numbers.astype(float))).sum())
        if wrong:
            raise DataError(f"{wrong} {role} rows have no number in the label column {column.name!r}")
        return tuple(float(number) for number in numbers)

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """The output itself."""
        return logits[:, 0].astype(np.float64)


class ManyLabels:
    """Any number of labels per example: a list, or names with commas between; the empty text is none."""

    problem_type = "multi_label_classification"
    objective = Categorical(independent_labels)

    def names(self, column: "Column[Any]", known: Sequence[str] | None) -> list[str]:
        """All that occur; or the model's."""
        distinct = {name for names in map(_several, column) for name in names}
        if known is not None:
            return _fitting(distinct, known)
        if not distinct:
            raise DataError(f"no row of {column.name!r} has a label")
        return _in_order(distinct)

    def values(self, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[tuple[float, ...], ...]:
        """1 or 0 for each label."""
        rows = [set(_several(value)) for value in column]
        _refuse_strangers(set().union(*rows) - set(names), role)
        return tuple(tuple(float(name in row) for name in names) for row in rows)

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """1 where a label is more likely than not."""
        return (logits > 0).astype(np.int64)


LABEL_KINDS: Mapping[str, LabelKind] = MappingProxyType(
    {"classification": SingleLabel(), "regression": RealValue(), "multi-label": ManyLabels()}
)


@dataclass(frozen=True)
class TextExamples(Rows):
    """One split: texts, optional second texts, and labels: ids, numbers, or one 0 or 1 for each label."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: tuple[Any, ...]


@dataclass(frozen=True)
class TextClassification(Task):
    """A problem whose answer is read from the whole text, with its splits of ``TextExamples``.

    Args:
        kind: A key of ``LABEL_KINDS``.
    """

    kind: str = KIND

    head = "SequenceClassification"

    @property
    def labelled(self) -> LabelKind:
        """Kind of its labels."""
        return LABEL_KINDS[self.kind]

    @property
    def metrics(self) -> str:
        """Accuracy, Pearson's r or micro-F1 by default."""
        return self.kind

    @property
    def objective(self) -> Objective:
        """Cross-entropy, or squared error."""
        return self.labelled.objective

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Label names and the problem type."""
        return {**super().head_config, "problem_type": self.labelled.problem_type}

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, cut to ``reference`` tokens.

        Raises:
            DataError: If there is no such split.
        """
        examples: TextExamples = self.rows(split)
        pairs = None if examples.pairs is None else list(examples.pairs)
        tokens = tokenizer(list(examples.texts), pairs, truncation=True, max_length=reference)
        return Encoded(features_of(tokens, examples.labels), reference)

    def read(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The logits, shape (B, outputs)."""
        return logits

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per-example statistics of the metric."""
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
    tables = read_tables(source)
    found = find_columns(tables["train"], source.columns, source.data)
    assert found.label is not None
    rows = {}
    for role, table in without_hidden(
        tables, found.label, lambda label: is_missing(label) or str(label) == "-1"
    ).items():
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
    splits, overlap = split_rows(given, _joined, source)
    record = source.record(kind, {"text": found.text, "pair": found.pair, "label": found.label})
    return TextClassification(record, tuple(names), splits, overlap, source.metric, kind)


def _check_columns(table: pd.DataFrame, columns: Columns, source: str) -> list[str]:
    find_columns(table, columns, source)
    return [name for name in (columns.text, columns.pair, columns.label) if name is not None]


def _joined(examples: TextExamples) -> Sequence[str]:
    """One text per row: a pair's two, with a mark between."""
    if examples.pairs is None:
        return examples.texts
    return [PAIR_MARK.join(both) for both in zip(examples.texts, examples.pairs, strict=True)]


def _texts(column: "pd.Series[Any]", role: str) -> tuple[str, ...]:
    if column.isna().any():
        raise DataError(f"{int(column.isna().sum())} {role} rows have no text in column {column.name!r}")
    return tuple(str(text) for text in column)


def _fitting(distinct: set[str], known: Sequence[str]) -> list[str]:
    """The model's label names, or its ids as names where the data are labelled by ids."""
    ids = {str(index) for index in range(len(known))}
    if not (distinct <= set(known) or distinct <= ids):
        raise DataError(
            f"the model classifies {', '.join(known)}; the data's labels are "
            f"{', '.join(sorted(distinct)[:10])}"
        )
    return list(known) if distinct <= set(known) else sorted(ids, key=int)


def _in_order(distinct: set[str]) -> list[str]:
    numeric = all(name.lstrip("-").isdigit() for name in distinct)
    return sorted(distinct, key=int) if numeric else sorted(distinct)


def _refuse_strangers(strangers: set[str], role: str) -> None:
    if strangers:
        raise DataError(
            f"{role} rows have labels that training never saw: {', '.join(sorted(strangers)[:5])}"
        )


def _refuse_missing(column: "Column[Any]", role: str) -> None:
    missing = column.isna() | (column.astype(str).str.strip() == "")
    if missing.any():
        raise DataError(f"{int(missing.sum())} {role} rows have no label")


def _label_texts(column: "Column[Any]") -> list[str]:
    return [_text(value) for value in column]


def _text(value: Any) -> str:
    """A label as text; a whole number that a file wrote as 1.0 is the label 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _several(value: Any) -> list[str]:
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    if isinstance(value, Sequence | np.ndarray):
        return [_text(name) for name in value]
    raise DataError(f"several labels are a list, or names with commas between, not {value!r}")
