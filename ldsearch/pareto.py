"""The frontier and the area under it: NumPy only, one rule for direction, NaN and ties.

Everything is minimised here: a caller negates what it maximises (``Score.loss``). A row with NaN is
infeasible: it dominates nothing and is on no frontier. Rows that are equal in every objective are kept
once, the first of them.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
    order = feasible[np.lexsort(values[feasible].T[::-1])]
    kept: list[int] = []
    for row in order:
        if not any((values[other] <= values[row]).all() for other in kept):
            kept.append(int(row))
    return np.array(kept, dtype=np.intp)


def staircase_area(costs: ArrayLike, scores: ArrayLike, low: float, high: float) -> float:
    """Mean best score over the cost range: the area of the length-adaptive paper's Fig. 5, normalised.

    The score at a cost is the best score of any row that costs at most that much (a left step).

    Args:
        costs: Shape (rows,).
        scores: Shape (rows,), higher is better.
        low: Where the range starts; rows cheaper than this count from here on.
        high: Where it ends; dearer rows do not count.

    Returns:
        The integral over [low, high] divided by its width; NaN where nothing costs at most ``low``.

    Raises:
        ValueError: If the range is empty.
    """
    if not low < high:
        raise ValueError(f"empty cost range [{low}, {high}]")
    cost, score = np.asarray(costs, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    usable = ~(np.isnan(cost) | np.isnan(score)) & (cost <= high)
    order = np.argsort(cost[usable], kind="stable")
    steps = np.maximum(cost[usable][order], low)
    if steps.size == 0 or steps[0] > low:
        return float("nan")
    best = np.maximum.accumulate(score[usable][order])
    widths = np.diff(np.append(steps, high))
    return float((best * widths).sum() / (high - low))
