"""Similarity of two models' outputs, where there are no predictions to count."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ldsearch.tasks.metrics import cosines
from ldsearch.tasks.objectives import relevance
from ldsearch.tasks.order import normalised_gains

Outputs = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Likeness:
    """A measure, 1 where they are one.

    Args:
        words: What is said before the number: outputs that ...
        of: The number, from a supernet's outputs and another's, of each feature, and the features' examples
            (``Encoded.origins``).
    """

    words: str
    of: Callable[[Outputs, Outputs, Sequence[int] | None], float]


def _pearson(want: Outputs, got: Outputs, origins: Sequence[int] | None) -> float:
    return float(np.corrcoef(np.concatenate(want), np.concatenate(got))[0, 1])


def _mean_cosine(want: Outputs, got: Outputs, origins: Sequence[int] | None) -> float:
    return float(cosines(np.stack(got), np.stack(want)).mean())


def by_query(outputs: Outputs, origins: Sequence[int]) -> list[NDArray[np.float64]]:
    """Scores of each query's documents, from each document's outputs, shape (1,) or (2,)."""
    return grouped(relevance(torch.from_numpy(np.stack(outputs).astype(np.float64))).tolist(), origins)


def order_kept(want: Outputs, got: Outputs, origins: Sequence[int] | None) -> float:
    """Mean nDCG@10 of one model's order by another's gains.

    Rank correlations count every pair of documents alike, and rounding swaps irrelevant ones whose scores
    are almost one; a share of equal first answers counts two equally good ones as one lost. By gains a swap
    costs what it moves.
    """
    assert origins is not None
    theirs = [gains_of(scores) for scores in by_query(want, origins)]
    return float(np.mean(normalised_gains(by_query(got, origins), theirs)))


def grouped(values: Sequence[float], origins: Sequence[int]) -> list[NDArray[np.float64]]:
    """The values of each example's features."""
    pairs = zip(origins, values, strict=True)
    return [np.array([value for _, value in own]) for _, own in groupby(pairs, key=lambda pair: pair[0])]


def gains_of(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(score - the query's best): the best counts 1, and one that is nearly as good nearly as much.

    Up to a factor these are ListNet's probabilities to be the first (Cao et al. 2007).
    """
    gains: NDArray[np.float64] = np.exp(scores - scores.max())
    return gains


OF_NUMBERS = Likeness("correlate with the supernet's by", _pearson)
OF_VECTORS = Likeness("have a mean cosine to the supernet's of", _mean_cosine)
OF_ORDER = Likeness(
    "put documents in an order whose nDCG@10, by what the supernet makes of each, is", order_kept
)
