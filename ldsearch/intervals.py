"""Paired bootstrap intervals from per-example statistics: NumPy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Per example, shape (examples,): a score is their mean.
Statistics = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its bootstrap interval."""

    mean: float
    low: float
    high: float
    examples: int


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> Interval:
    """Percentile interval of mean(first) - mean(second) over the same examples (Efron 1979).

    Args:
        first: Per-example statistics, shape (examples,).
        second: The same examples under the other model.
        seed: Of the resampling.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.

    Raises:
        ValueError: If the two differ in shape or are empty.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired statistics need one shape (examples,): {a.shape} and {b.shape}")
    difference = a - b
    rng = np.random.default_rng(seed)
    # Resampling counts instead of rows: differences of 0/1 correctness repeat, so a multinomial over the
    # distinct ones is the same bootstrap in a fraction of the memory; in parts, as areas repeat less.
    values, counts = np.unique(difference, return_counts=True)
    parts = [
        rng.multinomial(difference.size, counts / difference.size, size=part) @ values / difference.size
        for part in np.diff(np.linspace(0, resamples, 21).round().astype(int))
    ]
    means = np.concatenate(parts)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(difference.mean()), float(low), float(high), int(difference.size))
