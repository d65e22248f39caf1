"""Rank correlations that cost does not explain: do two scores agree on sub-networks of about equal cost?

Accuracy rises with cost, so any two scores that do rank sub-networks alike across the cost range, and so
does the cost itself. A search needs agreement at equal cost.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A rank correlation and its permutation test.

    Args:
        tau: Kendall's tau-b, in [-1, 1]; NaN where one side is constant.
        p_value: Two-sided, of the permutation test: how often a permutation's tau is at least as large in
            absolute value; NaN with tau.
        pairs: Pairs that were compared.
    """

    tau: float
    p_value: float
    pairs: int


def tau_within(
    first: ArrayLike, second: ArrayLike, strata: ArrayLike, *, permutations: int = 9_999
) -> Correlation:
    """Kendall's tau-b over the pairs of one stratum, all strata pooled (Taylor 1987, stratified tau).

    Args:
        first: Scores, shape (items,).
        second: Other scores of the same items.
        strata: Stratum of each item, such as its cost bin; equal values belong together.
        permutations: Of the test, which permutes ``second`` inside each stratum.

    Raises:
        ValueError: If the shapes differ.
    """
    a, b, groups = (np.asarray(values) for values in (first, second, strata))
    if not a.shape == b.shape == groups.shape or a.ndim != 1:
        raise ValueError(f"need one value per item: shapes {a.shape}, {b.shape}, {groups.shape}")
    known = ~(np.isnan(a) | np.isnan(b))
    a, b, groups = a[known], b[known], groups[known]
    i, j = np.triu_indices(len(a), 1)
    together = groups[i] == groups[j]
    i, j = i[together], j[together]
    signs = np.sign(a[i] - a[j])

    def agreement(values: Floats) -> float:
        return float(signs @ np.sign(values[i] - values[j]))

    scale = float(np.sqrt(np.count_nonzero(signs) * np.count_nonzero(b[i] != b[j])))
    if not scale:
        return Correlation(float("nan"), float("nan"), len(i))
    observed, rng = agreement(b), np.random.default_rng(0)
    # Sorting random numbers by stratum permutes the items of each stratum among themselves.
    order = np.argsort(groups, kind="stable")
    extreme = 0
    for _ in range(permutations):
        permuted = np.empty_like(b)
        permuted[order] = b[np.lexsort((rng.random(len(b)), groups))]
        extreme += abs(agreement(permuted)) >= abs(observed) - 1e-9
    return Correlation(observed / scale, (extreme + 1) / (permutations + 1), len(i))


def partial_tau(first: float, second: float, between: float) -> float:
    """Kendall's partial tau of two scores given a third variable (Kendall 1942).

    Args:
        first: Tau of the first score with the third variable.
        second: Tau of the second score with it.
        between: Tau of the two scores.

    Returns:
        In [-1, 1]; NaN where the third variable ranks a score perfectly.
    """
    rest = (1 - first**2) * (1 - second**2)
    return float("nan") if rest <= 0 else float((between - first * second) / np.sqrt(rest))
