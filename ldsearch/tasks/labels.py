"""What a classification head's labels can be: one class, one number, or several yes-or-no answers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ldsearch.errors import DataError
from ldsearch.tasks.objectives import Categorical, Objective, Regression, independent_labels, one_label

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
        """What the metric compares with the labels, from logits of shape (examples, outputs)."""


class SingleLabel:
    """One class per example."""

    problem_type = "single_label_classification"
    objective = Categorical(one_label)

    def names(self, column: "Column[Any]", known: Sequence[str] | None) -> list[str]:
        """All that occur, numbers by value; or the model's, which the data must use."""
        _refuse_missing(column, "train")
        distinct = set(_texts(column))
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
        texts = _texts(column)
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


def _texts(column: "Column[Any]") -> list[str]:
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
