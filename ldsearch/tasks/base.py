"""Base of every kind of task: reading its data, tokenised features, batches, losses, statistics, a metric."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ldsearch.costs.workload import Workload
from ldsearch.disk.fingerprint import digest
from ldsearch.errors import DataError
from ldsearch.tasks.likeness import Likeness
from ldsearch.tasks.metrics import Metric, metric_named
from ldsearch.tasks.objectives import Objective
from ldsearch.tasks.splits import fix_splits
from ldsearch.tasks.tables import (
    NO_HINTS,
    Columns,
    DataSource,
    check_columns,
    find_columns,
    is_missing,
    read_tables,
)
from ldsearch.trials.intervals import Statistics
from ldsearch.trials.trial import Score

Batch = dict[str, Tensor]
Collate = Callable[[Sequence[Mapping[str, Any]]], Batch]


@dataclass(frozen=True)
class Encoded:
    """One tokenised split: a map-style dataset of feature dictionaries, none of them padded.

    Args:
        features: What the model reads, and ``labels``.
        reference: Inputs were cut to this many tokens.
        origins: For each feature the example it was cut from, ascending; None: one feature an example.
        writes: Whether the labels are texts of their own, for a decoder.
        separator: The token that ends the first text of a pair; None: no pairs, or nobody asks.
    """

    features: tuple[Mapping[str, Any], ...]
    reference: int
    origins: tuple[int, ...] | None = None
    writes: bool = False
    separator: int | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return self.features[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.features)

    def take(self, rows: Sequence[int]) -> "Encoded":
        """Select examples; where they have several features, in the features' order."""
        if self.origins is None:
            return replace(self, features=tuple(self.features[row] for row in rows))
        wanted = set(rows)
        kept = [index for index, origin in enumerate(self.origins) if origin in wanted]
        return replace(
            self,
            features=tuple(self.features[index] for index in kept),
            origins=tuple(self.origins[index] for index in kept),
        )

    @property
    def examples(self) -> int:
        """Number of examples, each of which has one feature or more."""
        return len(self.features) if self.origins is None else len(set(self.origins))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """True length of each feature in tokens, special tokens included."""
        return np.array([len(feature["input_ids"]) for feature in self.features], dtype=np.int64)

    @property
    def workload(self) -> Workload:
        """Histogram of the true lengths, for a decoder of the target lengths too, of pairs of the first's."""
        if self.separator is not None:
            ids = [list(feature["input_ids"]) for feature in self.features]
            firsts = [1 + (own.index(self.separator) if self.separator in own else 0) for own in ids]
            return Workload.from_pairs(self.lengths, firsts, self.reference)
        written = [len(feature["labels"]) for feature in self.features] if self.writes else None
        return Workload.from_lengths(self.lengths, self.reference, written)


@dataclass(frozen=True)
class Rows:
    """Base of a split as it was read: each field is a column with one entry per row, or None.

    A subclass has ``texts``, a field or a property: texts to train a tokenizer on.
    """

    def __len__(self) -> int:
        return len(self._columns[0])

    def take(self, rows: Sequence[int]) -> Self:
        """Select rows, in the given order."""
        return type(self)(*(column and tuple(column[row] for row in rows) for column in self._columns))

    @property
    def compared(self) -> Sequence[str]:
        """A text per row, by which rows of different splits are compared."""
        texts: Sequence[str] = cast(Any, self).texts
        return texts

    @property
    def fingerprint(self) -> str:
        """Digest that changes with any entry."""
        return digest(*(column or () for column in self._columns))

    @property
    def _columns(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]


class Scorer(ABC):
    """The part of a task that scores a model's outputs."""

    # Whether ``read`` gives one output per token rather than one per feature.
    per_token: ClassVar[bool] = False

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """Metric that turns means of per-example statistics into the score."""

    @abstractmethod
    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, no feature longer than ``reference`` tokens.

        Raises:
            DataError: If there is no such split, or the tokenizer does not fit the task.
        """

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Make batches of features, padded on the right to ``pad_to`` or the longest.

        Inputs have shape (B, n), as has ``attention_mask``. ``labels`` that are lists, a label per token or
        a target, are padded with -100 to (B, n'); numbers and tuples are not padded.
        """
        # Many causal tokenizers have no pad token; any token will do, since it is masked.
        stand_ins = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.sep_token_id, 0)
        pads = {
            "input_ids": next(token for token in stand_ins if token is not None),
            "token_type_ids": tokenizer.pad_token_type_id,
            "labels": -100,
        }

        def padded(rows: Sequence[Any], pad: int) -> Tensor:
            if isinstance(rows[0], list):
                width = pad_to or max(map(len, rows))
                rows = [[*row, *[pad] * (width - len(row))] for row in rows]
            return torch.tensor(rows)

        def batch(features: Sequence[Mapping[str, Any]]) -> Batch:
            columns = {name: [feature[name] for feature in features] for name in features[0]}
            columns["attention_mask"] = [[1] * len(ids) for ids in columns["input_ids"]]
            return {name: padded(rows, pads.get(name, 0)) for name, rows in columns.items()}

        return batch

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Reduce a batch's logits to what ``statistics`` takes: (rows, …), or (rows, n, …) per token."""
        return logits

    @abstractmethod
    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per-example statistics from ``read``'s rows in the features' order, padding cut off."""


@dataclass(frozen=True)
class Task(Scorer):
    """A user's problem with its splits; a subclass is a kind of task.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        labels: Label names in id order; empty where the head has no named outputs.
        splits: ``train``, ``search`` and ``report``, each a subclass of ``Rows``.
        overlap: What was done so that the splits share no text, in words; empty where nothing was.
        metric_name: A metric of the kind of task; None takes its first.
        note: What the user should know of how the data were read.

    Attributes:
        kind: The name it is registered under; ``metrics``: that of its metrics, in ``metrics.METRICS``.
        head: The model head, as in the name of the stock class.
        objective: Losses of training; ``--objective kl`` compares the distributions of a ``Categorical``.
        column_names: For each of text, pair and label that it needs the usual names of such columns.
        hints: For each of them what a message says where there is none.
        reads: Options of data that it reads and most kinds do not.
        likeness: How the outputs of two models (an int8 file's too) are compared; None: by predictions.
        together: Whether the features of an example belong into one batch of a training.
        rows_are: What is said of its rows; ``own_answers``: where the full model's answers are the labels.
        by_line: Whether rows of a csv or tsv file that empty lines set apart are lines to it.

    Raises:
        DataError: If the kind of task has no such metric.
    """

    source: Mapping[str, Any]
    labels: tuple[str, ...]
    splits: Mapping[str, Any]
    overlap: str = ""
    metric_name: str | None = None
    note: str = ""

    kind: ClassVar[str]
    metrics: ClassVar[str]
    head: ClassVar[str]
    objective: ClassVar[Objective]
    column_names: ClassVar[Mapping[str, Sequence[str]]]
    hints: ClassVar[Mapping[str, str]] = NO_HINTS
    reads: ClassVar[Collection[str]] = ()
    likeness: ClassVar[Likeness | None] = None
    together: ClassVar[bool] = False
    rows_are: ClassVar[str] = "texts"
    own_answers: ClassVar[str] = (
        "they have no labels, so the scores are agreement with the full model's own answers in fp32: of the "
        "answers that differ some were wrong before, so that less is lost of the accuracy"
    )
    by_line: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self.metric  # refuse an unknown one before anything is trained

    @classmethod
    def load(cls, source: DataSource, known_labels: Sequence[str] | None = None) -> Self:
        """Read the data and fix the splits; a report split whose labels are all hidden is left out.

        Args:
            source: The data.
            known_labels: Label names of a fine-tuned model, in id order, which the data must use.

        Raises:
            DataError: If data is missing, empty or misshapen, or too small or too alike to be split, labels
                do not fit, or there is no such metric.
        """
        return cls.of_tables(read_tables(source, cls.by_line), source, known_labels)

    @classmethod
    def of_tables(
        cls,
        tables: Mapping[str, pd.DataFrame],
        source: DataSource,
        known_labels: Sequence[str] | None = None,
    ) -> Self:
        """As ``load``, of what ``read_tables`` gives."""
        tables = {role: cls.prepare_table(table, source) for role, table in tables.items()}
        columns = cls.find_columns(tables["train"], source)
        if "report" in tables and columns.label is not None:
            report = tables["report"].get(columns.label, pd.Series())
            if report.map(cls.is_hidden).all():
                del tables["report"]
        for role, table in tables.items():
            check_columns(table, columns, f"{source.data} ({role})")
            if table.empty:
                raise DataError(f"{source.data}: the {role} rows are empty")
        tables, known_labels, note = cls.by_class_names(tables, columns, known_labels)
        names = cls.label_names(tables["train"], columns, known_labels)
        given = {role: cls.read_rows(table, columns, names, role) for role, table in tables.items()}
        splits, overlap = cls.split(given, source)
        # The data may have the ids of a fine-tuned model's labels, or of classes that they name.
        labels = tuple(known_labels if known_labels and names else names)
        if known_labels and names and not note:
            note = cls.label_note(names, known_labels)
        return cls(source.record(cls.kind, columns), labels, splits, overlap, source.metric, note)

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """A table as it is, or with rows made of its lines.

        Raises:
            DataError: If the lines are misshapen.
        """
        return table

    @classmethod
    def find_columns(cls, table: pd.DataFrame, source: DataSource) -> Columns:
        """Columns of text, pair and label: those that were named, else the usual ones.

        Raises:
            DataError: If one is not there.
        """
        return find_columns(table, source.columns, cls.column_names, source.data, cls.hints)

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """Whether a cell of the label column tells no label, as those of public test sets do."""
        return is_missing(cell)

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """Labels in id order as the data spell them: those of training rows or of a fine-tuned model.

        Raises:
            DataError: If labels are missing or are not the model's.
        """
        return ()

    @classmethod
    def by_class_names(
        cls, tables: Mapping[str, pd.DataFrame], columns: Columns, known: Sequence[str] | None
    ) -> tuple[dict[str, pd.DataFrame], Sequence[str] | None, str]:
        """As ``labels.with_class_names`` of kinds whose labels are classes; of others nothing changes."""
        return dict(tables), known, ""

    @classmethod
    def label_note(cls, names: Sequence[str], known: Sequence[str]) -> str:
        """A note on how the data's labels, in id order, were matched to the model's; empty if plain."""
        return ""

    @classmethod
    @abstractmethod
    def read_rows(cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str) -> Rows:
        """The rows of one split, labels as their places among ``names`` (``label_names``).

        Raises:
            DataError: If rows are misshapen or have other labels.
        """

    @classmethod
    def claims(cls, config: PreTrainedConfig, table: Callable[[], pd.DataFrame], source: DataSource) -> bool:
        """Whether a model and the rows that ``table`` reads are surely for it, of kinds that share a head."""
        return False

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """Cells of a label column that stands in for what ``answers`` gives.

        Args:
            table: Rows without labels, as ``prepare_table`` gives them.
            source: Where they are from.
            names: The labels'.

        Raises:
            DataError: If the kind of task needs labels.
        """
        raise DataError(f"{cls.kind} needs labels: name their column with --label-column")

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """A model's answers as cells of a label column, an example each; arguments as ``statistics``'.

        Kinds whose ``blanks`` refuses are never asked.
        """
        raise NotImplementedError

    @classmethod
    def split(cls, given: Mapping[str, Rows], source: DataSource) -> tuple[Mapping[str, Rows], str]:
        """Fix the train, search and report rows of what was read.

        Returns:
            The three splits, and what was dropped so that they share no text, in words.

        Raises:
            DataError: If there are too few rows, or they share too much text, to fill every split.
        """
        texts = {role: rows.compared for role, rows in given.items()}
        fixed = fix_splits(texts, source.keep_overlap, search_rows=source.search_rows)
        splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
        return splits, fixed.overlap.describe()

    @property
    def metric(self) -> Metric:
        """Metric that turns means of per-example statistics into the score."""
        return metric_named(self.metrics, self.metric_name, max(1, len(self.labels)))

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Configuration fields of a new head: the label names."""
        if not self.labels:
            return {}
        return {
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: index for index, label in enumerate(self.labels)},
        }

    def rows(self, split: str) -> Any:
        """One of the splits.

        Raises:
            DataError: If there is none of that name.
        """
        if split not in self.splits:
            raise DataError(f"no {split} split; there are {', '.join(self.splits)}")
        return self.splits[split]

    def check_model(self, config: PreTrainedConfig) -> None:
        """Refuse labels that no model of a configuration can give.

        Raises:
            DataError: If they are such.
        """

    def probe(self, logits: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """A scalar whose gradients say how much the answers depend on each token: here the loss."""
        return self.objective.loss(logits, batch)

    def token_prior(self, logits: Tensor, batch: Batch) -> Tensor:
        """Log weight of each token in the answers, by the logits alone, shape (B, n); here all alike."""
        return torch.zeros_like(batch["attention_mask"], dtype=torch.float32)

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """A training batch as the passes of one step see it: the batch itself unless the task is random."""
        return batch


def fingerprints_of(task: Task) -> dict[str, str]:
    """Fingerprint of each split."""
    return {name: rows.fingerprint for name, rows in task.splits.items()}


def features_of(tokens: Mapping[str, Sequence[Any]], labels: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """One feature per row from a tokenizer's columns and the labels."""
    return tuple(
        {**{name: values[row] for name, values in tokens.items()}, "labels": label}
        for row, label in enumerate(labels)
    )


def special_ids(tokenizer: PreTrainedTokenizerBase, *names: str) -> list[int]:
    """Ids of special tokens by name (``"cls"``, ``"eos"``).

    Raises:
        DataError: If the tokenizer lacks one of them.
    """
    ids = [getattr(tokenizer, f"{name}_token_id") for name in names]
    if None in ids:
        raise DataError(f"the task needs a tokenizer with {' and '.join(names)} tokens, this one lacks some")
    return ids


def score(metric: Metric, statistics: Statistics) -> Score:
    """Score of statistics of shape (examples,) or (examples, parts)."""
    return Score(float(metric.of_means(statistics.mean(axis=0))), metric.higher_is_better)


def trimmed(rows: NDArray[Any], lengths: Iterable[int], per_token: bool) -> list[NDArray[Any]]:
    """One array per row of a batch's ``read``; per token, without the padding."""
    return [row[:n] if per_token else row for row, n in zip(rows, lengths, strict=True)]
