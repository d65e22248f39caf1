"""Text classification: labelled texts or pairs, tokenised, scored by accuracy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.tasks.splits import fix_splits
from ldsearch.tasks.tables import Columns, find_columns, read_tables
from ldsearch.trial import Score
from ldsearch.workload import Workload

# Stands between the two texts of a pair where rows are compared; no whitespace, so a word of its own.
_PAIR_MARK = " \0 "


@dataclass(frozen=True)
class Examples:
    """One split: texts, optional second texts, and label ids."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> "Examples":
        """Some of the rows, in the given order."""
        return Examples(
            texts=tuple(self.texts[row] for row in rows),
            pairs=None if self.pairs is None else tuple(self.pairs[row] for row in rows),
            labels=tuple(self.labels[row] for row in rows),
        )

    @property
    def fingerprint(self) -> str:
        """Changes with any text or label."""
        return digest(self.texts, self.pairs or (), self.labels)


@dataclass(frozen=True)
class Encoded:
    """One tokenised split: a map-style dataset of feature dictionaries, none of them padded."""

    features: tuple[Mapping[str, Any], ...]
    reference: int

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return self.features[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.features)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """True length of each example in tokens, special tokens counted."""
        return np.array([len(feature["input_ids"]) for feature in self.features], dtype=np.int64)

    @property
    def workload(self) -> Workload:
        """The histogram of true lengths."""
        return Workload.from_lengths(self.lengths, self.reference)


@dataclass(frozen=True)
class TextClassification:
    """A classification problem with its splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        labels: Label names; a label's id is its position.
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that they share no text, in words; empty where nothing was.
    """

    source: Mapping[str, Any]
    labels: tuple[str, ...]
    splits: Mapping[str, Examples]
    overlap: str = ""

    metric = "accuracy"

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, cut to ``reference`` tokens.

        Raises:
            DataError: If there is no such split.
        """
        if split not in self.splits:
            raise DataError(f"no {split} split; there are {', '.join(self.splits)}")
        examples = self.splits[split]
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

    def statistics(self, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Per example: 1 where the best logit is the label's, else 0. Shape (examples,)."""
        correct: NDArray[np.bool_] = logits.argmax(axis=-1) == labels
        return correct.astype(np.float64)

    def score(self, statistics: NDArray[np.float64]) -> Score:
        """Accuracy."""
        return Score(float(statistics.mean()), higher_is_better=True)

    @property
    def fingerprints(self) -> dict[str, str]:
        """One per split."""
        return {name: examples.fingerprint for name, examples in self.splits.items()}


def load_classification(
    data: str,
    *,
    config: str | None = None,
    validation: str | None = None,
    columns: Columns | None = None,
    known_labels: Sequence[str] | None = None,
    keep_overlap: bool = False,
) -> TextClassification:
    """Read a classification task from a file, a dataset folder or a hub id, and fix its splits.

    Args:
        data: The file, folder or id with the training rows.
        config: The configuration of a hub dataset.
        validation: A file with rows to search and report on; without any, they are cut from the training
            ones.
        columns: Columns that are not found by name.
        known_labels: Label names of a fine-tuned classifier, in id order; the data must use them.
        keep_overlap: Use every row, also those that share text across splits.

    Raises:
        DataError: If data is missing, empty or misshapen, too small or too alike to be split, or validation
            has labels training never saw.
    """
    tables = read_tables(data, config, validation)
    found = find_columns(tables["train"], columns or Columns(), data)
    assert found.label is not None
    rows = {}
    for role, table in tables.items():
        if role == "report" and (found.label not in table or _unlabelled(table[found.label])):
            continue  # public test sets hide their labels
        rows[role] = table[_check_columns(table, found, f"{data} ({role})")]
    labels = _label_names(rows["train"][found.label], known_labels)
    given = {role: _examples(table, found, labels, role) for role, table in rows.items()}
    fixed = fix_splits({role: _joined(examples) for role, examples in given.items()}, keep_overlap)
    splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
    source = {
        "data": _absolute(data),
        "config": config,
        "validation": None if validation is None else _absolute(validation),
        "columns": {"text": found.text, "pair": found.pair, "label": found.label},
        "keep_overlap": keep_overlap,
    }
    return TextClassification(source, tuple(labels), splits, fixed.overlap.describe())


def _absolute(data: str) -> str:
    """Local paths as absolute ones, so that a search may run from another folder; hub ids as they are."""
    return str(Path(data).resolve()) if Path(data).exists() else data


def _unlabelled(column: "pd.Series[Any]") -> bool:
    return bool((column.isna() | (column.astype(str) == "-1")).all())


def _check_columns(table: pd.DataFrame, columns: Columns, source: str) -> list[str]:
    find_columns(table, columns, source)
    return [name for name in (columns.text, columns.pair, columns.label) if name is not None]


def _label_names(column: "pd.Series[Any]", known: Sequence[str] | None) -> list[str]:
    _refuse_missing(column, "train")
    distinct = set(_label_texts(column))
    if known is not None:
        ids = {str(index) for index in range(len(known))}
        if not (distinct <= set(known) or distinct <= ids):
            raise DataError(
                f"the model classifies {', '.join(known)}; the data's labels are "
                f"{', '.join(sorted(distinct)[:10])}"
            )
        return list(known) if distinct <= set(known) else sorted(ids, key=int)
    if len(distinct) < 2:
        raise DataError(f"classification needs at least two labels, the data has {sorted(distinct)}")
    if len(distinct) > max(2, len(column) // 2):
        raise DataError(
            f"{len(distinct)} distinct labels in {len(column)} rows: is {column.name!r} the label column?"
        )
    numeric = all(name.lstrip("-").isdigit() for name in distinct)
    return sorted(distinct, key=int) if numeric else sorted(distinct)


def _examples(table: pd.DataFrame, columns: Columns, labels: Sequence[str], role: str) -> Examples:
    ids = {name: index for index, name in enumerate(labels)}
    _refuse_missing(table[columns.label], role)
    names = _label_texts(table[columns.label])
    if strangers := sorted(set(names) - set(ids)):
        raise DataError(f"{role} rows have labels that training never saw: {', '.join(strangers[:5])}")
    return Examples(
        texts=_texts(table[columns.text], role),
        pairs=None if columns.pair is None else _texts(table[columns.pair], role),
        labels=tuple(ids[name] for name in names),
    )


def _joined(examples: Examples) -> Sequence[str]:
    """One text per row: a pair's two, with a mark between."""
    if examples.pairs is None:
        return examples.texts
    return [_PAIR_MARK.join(both) for both in zip(examples.texts, examples.pairs, strict=True)]


def _refuse_missing(column: "pd.Series[Any]", role: str) -> None:
    missing = column.isna() | (column.astype(str).str.strip() == "")
    if missing.any():
        raise DataError(f"{int(missing.sum())} {role} rows have no label")


def _label_texts(column: "pd.Series[Any]") -> list[str]:
    """Labels as text; a whole number that a file wrote as 1.0 is the label 1."""
    return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v).strip() for v in column]


def _texts(column: "pd.Series[Any]", role: str) -> tuple[str, ...]:
    if column.isna().any():
        raise DataError(f"{int(column.isna().sum())} {role} rows have no text in column {column.name!r}")
    return tuple(str(text) for text in column)
