"""The frontier and the area under it: NumPy only, one rule for direction, NaN and ties.

Everything is minimised here: a caller negates what it maximises (``Score.loss``). A row with NaN is
infeasible: it dominates nothing and is on no frontier. Rows that are equal in every objective are kept
once, the first of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Points that are told with a choice: about so many times its cost, and not nearly as much.
BESIDE = (0.6, 1.6)
_ALIKE = 0.15


def frontier(objectives: ArrayLike) -> NDArray[np.intp]:
    """Indices of the non-dominated rows, ordered by the first objective.

    Args:
        objectives: Shape (rows, objectives), all to be minimised.

    Returns:
        Row indices, ascending in the first objective; the first of equal rows stands for all.
    """
    values = np.asarray(objectives, dtype=np.float64)
    if values.size == 0:
        return np.array([], dtype=np.intp)
    feasible = np.flatnonzero(~np.isnan(values).any(axis=1))
    # Lexicographic order puts every dominating row before the rows it dominates.
    rest = feasible[np.lexsort(values[feasible].T[::-1])]
    kept: list[int] = []
    while rest.size:
        kept.append(int(rest[0]))
        rest = rest[(values[rest[0]] > values[rest]).any(axis=1)]
    return np.array(kept, dtype=np.intp)


def staircase_weights(costs: ArrayLike, scores: ArrayLike, low: float, high: float) -> NDArray[np.float64]:
    """The share of the cost range on which each row is the choice, shape (rows,); the shares add up to 1.

    The choice at a cost is the best score of any row that costs at most that much; of equal ones the
    cheapest. An area is these weights times scores, of the same rows on the same data or on other data.

    Args:
        costs: Shape (rows,).
        scores: Shape (rows,), higher is better.
        low: Where the range starts; rows cheaper than this count from here on.
        high: Where it ends; dearer rows do not count.

    Returns:
        NaN throughout where nothing costs at most ``low``.

    Raises:
        ValueError: If the range is empty.
    """
    if not low < high:
        raise ValueError(f"empty cost range [{low}, {high}]")
    cost, score = np.asarray(costs, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    usable = np.flatnonzero(~(np.isnan(cost) | np.isnan(score)) & (cost <= high))
    order = usable[np.lexsort((-score[usable], cost[usable]))]
    if order.size == 0 or cost[order[0]] > low:
        return np.full(cost.shape, np.nan)
    rises = np.concatenate([[True], score[order][1:] > np.maximum.accumulate(score[order])[:-1]])
    steps = order[rises]
    weights = np.zeros(cost.shape)
    weights[steps] = np.diff(np.append(np.maximum(cost[steps], low), high)) / (high - low)
    return weights


def staircase_area(costs: ArrayLike, scores: ArrayLike, low: float, high: float) -> float:
    """Mean best score over the cost range: the area of the length-adaptive paper's Fig. 5, normalised.

    Arguments and errors as for ``staircase_weights``.

    Returns:
        The integral over [low, high] divided by its width; NaN where nothing costs at most ``low``.
    """
    weights = staircase_weights(costs, scores, low, high)
    chosen = weights != 0
    return float(weights[chosen] @ np.asarray(scores, dtype=np.float64)[chosen])


def beside(costs: Sequence[float], chosen: float) -> list[int]:
    """Positions of the frontier's points to show with the choice: a cheaper and a dearer one.

    The choice need not be among them; where all cost nearly as much, that is told.

    Args:
        costs: Of the points; all above 0.
        chosen: Of the choice.
    """
    ratios = np.asarray(costs, dtype=np.float64) / chosen
    others = np.flatnonzero(np.abs(ratios - 1) > _ALIKE)
    others = others if others.size else np.arange(ratios.size)
    if not others.size:
        return []
    nearest = [int(others[np.abs(np.log(ratios[others] / aim)).argmin()]) for aim in BESIDE]
    return sorted(dict.fromkeys(nearest), key=lambda at: costs[at])
