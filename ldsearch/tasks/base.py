"""What every kind of task offers: splits, tokenised features, losses, per-example statistics, a metric."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.metrics import Metric
from ldsearch.tasks.objectives import Objective
from ldsearch.tasks.splits import SearchRows
from ldsearch.tasks.tables import Columns
from ldsearch.trial import Score
from ldsearch.workload import Workload

Batch = dict[str, Tensor]
Collate = Callable[[Sequence[Mapping[str, Any]]], Batch]
OneSplit = TypeVar("OneSplit")


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
        """Some of the examples; where they have several features, in the features' order."""
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
        """Examples, each of which has one feature or more."""
        return len(self.features) if self.origins is None else len(set(self.origins))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """True length of each feature in tokens, special tokens counted."""
        return np.array([len(feature["input_ids"]) for feature in self.features], dtype=np.int64)

    @property
    def workload(self) -> Workload:
        """The histogram of true lengths, of what is written in answer too."""
        written = [len(feature["labels"]) for feature in self.features] if self.writes else None
        return Workload.from_lengths(self.lengths, self.reference, written)


@dataclass(frozen=True)
class DataSource:
    """Where a task's data are and how they are read.

    Args:
        data: A file, a dataset folder or a hub id with the training rows.
        config: The configuration of a hub dataset.
        validation: A file with rows to search and report on; without any, they are cut from the training
            ones.
        columns: Columns that are not found by name.
        keep_overlap: Use every row, also those that share text across splits.
        search_rows: Which rows search and which report, of data without report rows (``fix_splits``).
        metric: Name of the score; None takes the task's first.
        stride: Tokens that two windows of one long context share (question answering).
        sentences: No block of text tears a line (causal language modelling).
    """

    data: str
    config: str | None = None
    validation: str | None = None
    columns: Columns = field(default_factory=Columns)
    keep_overlap: bool = False
    search_rows: SearchRows = "auto"
    metric: str | None = None
    stride: int = 128
    sentences: bool = False

    def record(self, task: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
        """What ``supernet.json`` says; local paths are absolute, so that a search may run from elsewhere."""
        return {
            "task": task,
            "data": _absolute(self.data),
            "config": self.config,
            "validation": None if self.validation is None else _absolute(self.validation),
            "columns": dict(columns),
            "keep_overlap": self.keep_overlap,
            "search_rows": self.search_rows,
            "metric": self.metric,
            "stride": self.stride,
            "sentences": self.sentences,
        }


def _absolute(data: str) -> str:
    return str(Path(data).resolve()) if Path(data).exists() else data


class Examples(Protocol):
    """One split as it was read."""

    def __len__(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Changes with anything in it."""

    @property
    def texts(self) -> Sequence[str]:
        """Its texts, for a tokenizer to be trained on."""


class Task(Protocol):
    """The user's problem."""

    @property
    def source(self) -> Mapping[str, Any]:
        """Where the data came from, enough to read it again (``supernet.json`` records it)."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in id order; empty where the head has no named outputs."""

    @property
    def splits(self) -> Mapping[str, Examples]:
        """``train``, ``search`` and ``report``."""

    @property
    def overlap(self) -> str:
        """What was done so that the splits share no text, in words."""

    @property
    def head(self) -> str:
        """The model head the task needs, as in the name of the stock class (``"TokenClassification"``)."""

    @property
    def head_config(self) -> Mapping[str, Any]:
        """What a configuration must say of a new head: label names, problem type."""

    @property
    def per_token(self) -> bool:
        """Whether ``read`` gives one output per token rather than one per feature."""

    @property
    def metric(self) -> Metric:
        """Turns means of per-example statistics into the score."""

    @property
    def objective(self) -> Objective:
        """The losses of training."""

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, no feature longer than ``reference`` tokens."""

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Makes batches of features, ``labels`` among the tensors; padded to ``pad_to`` or the longest."""

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """A training batch as the passes of one step see it; where nothing is random, the batch itself."""

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """What the statistics need of a batch's logits: shape (rows, …), or (rows, n, …) per token."""

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per example, from ``read``'s rows in the features' order, padding cut off."""


def fingerprints_of(task: Task) -> dict[str, str]:
    """One per split."""
    return {name: examples.fingerprint for name, examples in task.splits.items()}


def split_named(splits: Mapping[str, OneSplit], name: str) -> OneSplit:
    """One of the splits.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in splits:
        raise DataError(f"no {name} split; there are {', '.join(splits)}")
    return splits[name]


def score(metric: Metric, statistics: Statistics) -> Score:
    """The score of statistics of shape (examples,) or (examples, parts)."""
    return Score(float(metric.of_means(statistics.mean(axis=0))), metric.higher_is_better)


def trimmed(rows: NDArray[Any], lengths: Iterable[int], per_token: bool) -> list[NDArray[Any]]:
    """One array per row of a batch's ``read``; per token, without the padding."""
    return [row[:n] if per_token else row for row, n in zip(rows, lengths, strict=True)]
