"""Base of every kind of task: splits, tokenised features, losses, per-example statistics, a metric."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.intervals import Statistics
from ldsearch.tasks.metrics import Metric, metric_named
from ldsearch.tasks.objectives import Objective
from ldsearch.tasks.splits import fix_splits
from ldsearch.tasks.tables import DataSource
from ldsearch.trial import Score
from ldsearch.workload import Workload

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
    """

    features: tuple[Mapping[str, Any], ...]
    reference: int
    origins: tuple[int, ...] | None = None
    writes: bool = False

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
        """Histogram of the true lengths, for a decoder of the target lengths too."""
        written = [len(feature["labels"]) for feature in self.features] if self.writes else None
        return Workload.from_lengths(self.lengths, self.reference, written)


class Examples(Protocol):
    """One split as it was read."""

    def __len__(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Digest that changes with any entry."""

    @property
    def texts(self) -> Sequence[str]:
        """Texts to train a tokenizer on."""


@dataclass(frozen=True)
class Rows:
    """Base of a split as it was read: each field is a column with one entry per row, or None."""

    def __len__(self) -> int:
        return len(self._columns[0])

    def take(self, rows: Sequence[int]) -> Self:
        """Select rows, in the given order."""
        return type(self)(*(column and tuple(column[row] for row in rows) for column in self._columns))

    @property
    def fingerprint(self) -> str:
        """Digest that changes with any entry."""
        return digest(*(column or () for column in self._columns))

    @property
    def _columns(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]


AnyRows = TypeVar("AnyRows", bound=Rows)


def split_rows(
    given: Mapping[str, AnyRows], texts_of: Callable[[AnyRows], Sequence[str]], source: DataSource
) -> tuple[dict[str, AnyRows], str]:
    """Fix the train, search and report rows of what was read.

    Args:
        given: The rows of each split that the source has.
        texts_of: The texts by which rows are compared.
        source: The data.

    Returns:
        The three splits, and what was dropped so that they share no text, in words.

    Raises:
        DataError: If there are too few rows, or they share too much text, to fill every split.
    """
    texts = {role: texts_of(rows) for role, rows in given.items()}
    fixed = fix_splits(texts, source.keep_overlap, search_rows=source.search_rows)
    splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
    return splits, fixed.overlap.describe()


class Scorer(Protocol):
    """The part of a task that scores a model's outputs."""

    @property
    def per_token(self) -> bool:
        """Whether ``read`` gives one output per token rather than one per feature."""

    @property
    def metric(self) -> Metric:
        """Metric that turns means of per-example statistics into the score."""

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, no feature longer than ``reference`` tokens."""

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Make batches of features, padded to ``pad_to`` or the longest; ``labels`` among the tensors."""

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Reduce a batch's logits to what ``statistics`` takes: (rows, …), or (rows, n, …) per token."""

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per-example statistics from ``read``'s rows in the features' order, padding cut off."""


@dataclass(frozen=True)
class Task(ABC):
    """A user's problem with its splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        labels: Label names in id order; empty where the head has no named outputs.
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that the splits share no text, in words; empty where nothing was.
        metric_name: A metric of the kind of task; None takes its first.

    Raises:
        DataError: If the kind of task has no such metric.
    """

    source: Mapping[str, Any]
    labels: tuple[str, ...]
    splits: Mapping[str, Any]
    overlap: str = ""
    metric_name: str | None = None

    # The model head, as in the name of the stock class.
    head: ClassVar[str]
    # Whether ``read`` gives one output per token rather than one per feature.
    per_token: ClassVar[bool] = False
    # The transformers collator that pads a batch.
    collator: ClassVar[Callable[..., Any]] = DataCollatorWithPadding

    def __post_init__(self) -> None:
        _ = self.metric  # refuse an unknown one before anything is trained

    @property
    @abstractmethod
    def metrics(self) -> str:
        """Key of its metrics in ``ldsearch.tasks.metrics.METRICS``."""

    @property
    @abstractmethod
    def objective(self) -> Objective:
        """Losses of training."""

    @property
    def metric(self) -> Metric:
        """Metric that turns means of per-example statistics into the score."""
        return metric_named(self.metrics, self.metric_name, max(1, len(self.labels)))

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Configuration fields of a new head: the label names."""
        if not self.labels:
            return MappingProxyType({})
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

    @abstractmethod
    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, no feature longer than ``reference`` tokens.

        Raises:
            DataError: If there is no such split, or the tokenizer does not fit the task.
        """

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Make batches of features, padded to ``pad_to`` or the longest; ``labels`` among the tensors.

        Labels that are a sequence per token or target have shape (B, n), padded with -100.
        """
        collator = type(self).collator(
            tokenizer, padding=True if pad_to is None else "max_length", max_length=pad_to
        )
        return lambda features: dict(collator([dict(feature) for feature in features]))

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """A training batch as the passes of one step see it: the batch itself unless the task is random."""
        return batch

    @abstractmethod
    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Reduce a batch's logits to what ``statistics`` takes: (rows, …), or (rows, n, …) per token."""

    @abstractmethod
    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per-example statistics from ``read``'s rows in the features' order, padding cut off."""


def fingerprints_of(task: Task) -> dict[str, str]:
    """Fingerprint of each split."""
    return {name: examples.fingerprint for name, examples in task.splits.items()}


def features_of(tokens: Mapping[str, Sequence[Any]], labels: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """One feature per row from a tokenizer's columns and the labels."""
    return tuple(
        {**{name: values[row] for name, values in tokens.items()}, "labels": label}
        for row, label in enumerate(labels)
    )


def score(metric: Metric, statistics: Statistics) -> Score:
    """Score of statistics of shape (examples,) or (examples, parts)."""
    return Score(float(metric.of_means(statistics.mean(axis=0))), metric.higher_is_better)


def trimmed(rows: NDArray[Any], lengths: Iterable[int], per_token: bool) -> list[NDArray[Any]]:
    """One array per row of a batch's ``read``; per token, without the padding."""
    return [row[:n] if per_token else row for row, n in zip(rows, lengths, strict=True)]
