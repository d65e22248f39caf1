"""Metrics of an order of documents, per query: nDCG, reciprocal rank, average precision."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldsearch.trials.intervals import Statistics

Array = NDArray[np.float64]

FIRST = 10  # documents that a reader looks at
RELEVANT = 0.5  # the label from which on a document is relevant, where it is or is not


def normalised_gains(predictions: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> Statistics:
    """nDCG@10 of each example (Järvelin & Kekäläinen 2002), shape (examples,).

    A label is its document's gain, divided by log2(1 + its rank). Documents of equal score share what their
    places are worth (McSherry & Najork 2008), as in scikit-learn.

    Args:
        predictions: Of each example its documents' scores.
        labels: Of each example its documents' gains, not below 0.
    """
    return np.array([_normalised_gain(*_arrays(*both)) for both in zip(predictions, labels, strict=True)])


def _normalised_gain(scores: Array, gains: Array) -> float:
    if not gains.any() or np.isnan(scores).any():
        return float(scores.sum() * 0)  # NaN stays NaN
    places = np.arange(len(gains))
    worth = np.where(places < FIRST, 1 / np.log2(places + 2), 0.0)
    _, tied = np.unique(-scores, return_inverse=True)
    ranked = np.sort(tied)
    # What the places of equal scores are worth, and gain, in the mean.
    counts = np.bincount(tied)
    found = np.bincount(ranked, worth) @ (np.bincount(tied, gains) / counts)
    return float(found / (worth @ np.sort(gains)[::-1]))


def reciprocal_ranks(predictions: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> Statistics:
    """1 / rank of the first relevant document of each example, 0 behind the tenth; shape (examples,).

    Among equal scores a relevant document is the last. Arguments as of ``average_precisions``.
    """

    def one(scores: Array, relevant: NDArray[np.bool_]) -> float:
        rank = 1 + (~relevant & (scores >= scores[relevant].max())).sum()
        return float(1 / rank if rank <= FIRST else 0.0)

    return _of_relevant(one, predictions, labels)


def average_precisions(predictions: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> Statistics:
    """Mean over an example's relevant documents of the precision down to each, shape (examples,).

    A precision is of all documents that score as much, as in scikit-learn.

    Args:
        predictions: Of each example its documents' scores.
        labels: Of each example its documents' labels; from 0.5 on they are relevant.
    """

    def one(scores: Array, relevant: NDArray[np.bool_]) -> float:
        above = scores >= scores[relevant][:, None]
        return float(((above & relevant).sum(axis=1) / above.sum(axis=1)).mean())

    return _of_relevant(one, predictions, labels)


def _of_relevant(
    one: Callable[[Array, NDArray[np.bool_]], float],
    predictions: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
) -> Statistics:
    """The statistic of each example, from scores and relevant documents; 0 where none is relevant."""
    found = []
    for both in zip(predictions, labels, strict=True):
        scores, gains = _arrays(*both)
        relevant = gains >= RELEVANT
        nothing = not relevant.any() or np.isnan(scores).any()
        found.append(float(scores.sum() * 0) if nothing else one(scores, relevant))
    return np.array(found)


def _arrays(scores: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    both = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if both[0].shape != both[1].shape:
        raise ValueError(f"scores {both[0].shape} and labels {both[1].shape} differ in shape")
    return both
