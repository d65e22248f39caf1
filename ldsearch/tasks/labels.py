"""Labels of rows as ids of a model's outputs: names, or what files write for them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ldsearch.errors import DataError, shortened
from ldsearch.tasks.readers import CLASSES
from ldsearch.tasks.tables import is_no_text, refuse_rows

Column = pd.Series  # of whatever a file held


def class_names(column: "Column[Any]", known: Sequence[str] | None) -> list[str]:
    """Names of one class per row in id order, numbers by value; or the model's, which the data must use.

    Raises:
        DataError: If classes are missing, fewer than two or almost as many as rows, or not the model's.
    """
    column = alone(column)
    refuse_rows(unlabelled(column), "train", "have no label")
    if any(isinstance(cell, list | tuple | np.ndarray) for cell in column):
        raise DataError(
            f"{column.name!r} holds lists: several labels of a text are --task multi-label, a label for "
            "every word --task tokens"
        )
    refuse_rows(map(is_no_text, column), "train", f"have no label but something else in {column.name!r}")
    distinct = set(map(label_text, column))
    if known is not None:
        return fitting(distinct, known)
    if len(distinct) < 2:
        raise DataError(
            f"classification needs at least two labels, {column.name!r} has {sorted(distinct)}: name another "
            "column with --label-column"
        )
    if len(distinct) > max(2, len(column) // 2):
        raise DataError(
            f"{len(distinct)} distinct labels in {len(column)} rows: is {column.name!r} the label column? "
            "--label-column names another (numbers to be predicted as numbers are --task regression)"
        )
    return in_order(distinct)


def class_ids(column: "Column[Any]", names: Sequence[str], role: str) -> tuple[int, ...]:
    """Ids of one class per row.

    Raises:
        DataError: If one is missing or not among the names.
    """
    column = alone(column)
    refuse_rows(unlabelled(column), role, "have no label")
    refuse_rows(map(is_no_text, column), role, f"have no label but something else in {column.name!r}")
    texts, ids = list(map(label_text, column)), {name: index for index, name in enumerate(names)}
    refuse_strangers(set(texts) - set(ids), role)
    return tuple(ids[text] for text in texts)


def with_class_names(
    tables: Mapping[str, pd.DataFrame], column: str | None, known: Sequence[str] | None
) -> tuple[dict[str, pd.DataFrame], Sequence[str] | None, str]:
    """Tables with names for ids, where a data set says what its classes are called; -1 is no class.

    Args:
        tables: By role.
        column: The labels'.
        known: A model's labels. Where the classes are called otherwise, ids stay, as those of these.

    Returns:
        The tables; all labels in id order, the data's where the model has none; and what the user should
        know, which may be nothing.
    """
    named = (table.attrs.get(CLASSES, {}).get(column, ()) for table in tables.values())
    classes = list(next(filter(None, named), ()))
    by_id = {str(place): name for place, name in enumerate(classes)}
    if not classes or (known and (nameless(known) or {*known} <= by_id.keys())):
        return dict(tables), known, ""
    if known and _spelled({*classes}, known) is None:
        note = (
            f"the data call their classes {shortened(', '.join(classes))}, the model its labels "
            f"{shortened(', '.join(known))}: taken for each other in that order; --labels says it otherwise"
        )
        return dict(tables), known, note

    def named_of(cell: Any) -> Any:
        if isinstance(cell, list | tuple | np.ndarray):
            return [named_of(own) for own in cell]
        return None if (text := label_text(cell)) == "-1" else by_id.get(text, cell)

    with_names = {
        role: table.assign(**{str(column): table[column].map(named_of)}) if column in table else table
        for role, table in tables.items()
    }
    return with_names, known or classes, ""


def fitting(distinct: set[str], known: Sequence[str]) -> list[str]:
    """The model's label names, as the data spell them, or its ids as names.

    Raises:
        DataError: If the data have others.
    """
    if (names := _spelled(distinct, known)) is not None:
        return names
    several = len(distinct) <= len(known)
    hint = "name them in the order of the model's with --labels" if several else "--label-column names others"
    raise DataError(
        f"the model classifies {', '.join(known)}; the data's labels are "
        f"{', '.join(sorted(distinct)[:10])}; {hint}"
    )


def _spelled(distinct: set[str], known: Sequence[str]) -> list[str] | None:
    """A model's labels as those of the data are spelled; None where these are others."""
    ids, spelled = [str(index) for index in range(len(known))], {name.casefold(): name for name in distinct}
    alike = [spelled.get(name.casefold(), name) for name in known]
    # Such as "1 star".
    numbers = [own[0] if len(own := re.findall(r"\d+", name)) == 1 else name for name in known]
    for names in (list(known), ids, alike, [f"LABEL_{index}" for index in ids], numbers):
        if distinct <= set(names) and len({*names}) == len(names):
            return names
    return None


def in_order(distinct: set[str]) -> list[str]:
    """Labels in the order of their ids: numbers by value, names by the alphabet."""
    numeric = all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in distinct)
    return sorted(distinct, key=int) if numeric else sorted(distinct)


def refuse_strangers(strangers: set[str], role: str) -> None:
    """Refuse labels that no training row has.

    Raises:
        DataError: If there are any.
    """
    if strangers:
        numbers = all(re.fullmatch(r"-?\d*\.?\d+", name) for name in strangers)
        hint = " (numbers to be predicted as numbers are --task regression)" if numbers else ""
        raise DataError(
            f"{role} rows have labels that training never saw: {', '.join(sorted(strangers)[:5])}{hint}"
        )


def nameless(known: Sequence[str]) -> bool:
    """Whether a model's labels are called as transformers calls those that nobody named."""
    return all(name == f"LABEL_{index}" for index, name in enumerate(known))


def alone(column: "Column[Any]") -> "Column[Any]":
    """A column of lists of one label each as a column of labels, as doccano writes it."""
    single = all(isinstance(cell, list | np.ndarray) and len(cell) == 1 for cell in column)
    return column.map(lambda cell: cell[0]) if single else column


def unlabelled(column: "Column[Any]") -> "Column[bool]":
    """Which rows have no label."""
    texts = column.astype(str).str.strip()
    # SNLI's annotators that did not agree.
    return column.isna() | (texts == "") | ((texts == "-") & (column.name == "gold_label"))


def label_text(value: Any) -> str:
    """A label as text; a whole number that a file wrote as 1.0 is the label 1."""
    return (
        str(int(value))
        if isinstance(value, float | np.floating) and value.is_integer()
        else str(value).strip()
    )
