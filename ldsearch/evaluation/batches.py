"""Batches of a split: rows of like length together, padded, and what is read of them row by row again."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from ldsearch.tasks.base import Batch, Encoded, Scorer, trimmed


def length_batches(
    lengths: Sequence[int] | NDArray[np.int64], most: Callable[[int], int], least: int
) -> list[NDArray[np.int64]]:
    """Rows in ascending order of length, cut into batches.

    A batch with enough rows ends where the length changes: rows of one length need no padding, and
    sub-networks that act alike on it are one.

    Args:
        lengths: True length of each row in tokens.
        most: The most rows of a length that a batch may have.
        least: Rows that are enough; fewer are joined by longer ones.

    Returns:
        Row indices of each batch.
    """
    batches: list[list[int]] = []
    for row in np.argsort(lengths, kind="stable").tolist():
        batch = batches[-1] if batches else []
        longer = bool(batch) and lengths[row] > lengths[batch[-1]]
        if not batch or len(batch) >= most(int(lengths[row])) or (longer and len(batch) >= least):
            batches.append(batch := [])
        batch.append(row)
    return [np.array(batch, dtype=np.int64) for batch in batches]


def collated(
    task: Scorer,
    encoded: Encoded,
    tokenizer: PreTrainedTokenizerBase,
    pad_to: int | None,
    batches: Iterable[NDArray[np.int64]],
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Batches of features, as their indices and as tensors; padded to ``pad_to`` or to their longest."""
    collate = task.collate(tokenizer, pad_to)
    return ((index, collate([encoded[int(i)] for i in index])) for index in batches)


def by_feature(
    task: Scorer, lengths: NDArray[np.int64], index: NDArray[np.int64], read: NDArray[np.float32]
) -> Mapping[int, NDArray[np.float32]]:
    """By feature what the task read of a batch's logits, without the padding.

    Args:
        task: Says whether it reads every token.
        lengths: True length of each feature of the split.
        index: The features of the batch.
        read: ``Scorer.read`` of it, shape (rows, …) or (rows, n, …).
    """
    return dict(zip(index.tolist(), trimmed(read, lengths[index].tolist(), task.per_token), strict=True))
