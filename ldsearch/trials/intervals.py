"""Paired bootstrap intervals from per-example statistics: NumPy only.

A score is a function of the mean of per-example statistics: of one number per example the mean itself, of
several parts whatever ``of_means`` makes of theirs (F1 of mean counts, Pearson's r of mean moments). A
resample of examples then is a weighted mean of rows, and its score as cheap as the score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Per example, shape (examples,): a score is their mean; or (examples, parts): a function of their mean.
Statistics = NDArray[np.float64]
# From mean statistics, shape (..., parts), to scores, shape (...).
OfMeans = Callable[[NDArray[np.float64]], NDArray[np.float64]]
# A weight, and the statistics whose score it weighs.
Term = tuple[float, Statistics]

_TOGETHER, _RESAMPLES = 0.95, 2_000  # of intervals that hold all at once


@dataclass(frozen=True)
class Interval:
    """A mean, or what a metric makes of means, with the bounds of its bootstrap interval."""

    mean: float
    low: float
    high: float
    examples: int


def paired_bootstrap(
    first: ArrayLike,
    second: ArrayLike,
    *,
    of_means: OfMeans | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Interval of score(first) - score(second) over the same examples, as ``bootstrap`` gives it.

    Args:
        first: Per-example statistics, shape (examples,) or (examples, parts).
        second: The same examples under the other model.
        of_means: As for ``bootstrap``.
        seed: Of the resampling.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.

    Raises:
        ValueError: As for ``bootstrap``.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    terms = [(1.0, a), (-1.0, b)]
    return bootstrap(terms, of_means, seed=seed, resamples=resamples, level=level)


def bootstrap(
    terms: Sequence[Term],
    of_means: OfMeans | None = None,
    *,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Percentile interval of a weighted sum of scores over the same examples (Efron 1979).

    Args:
        terms: Weights, and statistics of one shape, (examples,) or (examples, parts).
        of_means: Turns mean statistics, shape (..., parts), into scores, shape (...); None: the mean is
            the score. Statistics of shape (examples,) always have their mean as the score.
        seed: Of the resampling.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.

    Raises:
        ValueError: If the statistics differ in shape or are empty, or ``of_means`` does not fit them.
    """
    (estimate,), drawn = _resampled([terms], of_means, np.random.default_rng(seed), resamples)
    low, high = np.quantile(drawn[:, 0], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(estimate), float(low), float(high), len(terms[0][1]))


def simultaneous(
    differences: Sequence[Sequence[Term]],
    of_means: OfMeans | None = None,
    *,
    seed: int = 0,
    resamples: int = _RESAMPLES,
) -> list[Interval]:
    """Intervals of several weighted sums of scores that hold all at once with a probability of 95%.

    Each is as many standard errors wide as the largest of all absolute errors in units of its own standard
    error is at that level, in one bootstrap for all (max-t; Romano & Wolf 2005).

    Args:
        differences: Each as ``terms`` of ``bootstrap``, all over the same examples.
        of_means: As for ``bootstrap``.
        seed: Of the resampling.
        resamples: Number of bootstrap resamples.

    Raises:
        ValueError: As for ``bootstrap``.
    """
    if not differences:
        return []
    estimates, drawn = _resampled(differences, of_means, np.random.default_rng(seed), resamples)
    errors = drawn.std(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        largest = np.nan_to_num(np.abs(drawn - estimates) / errors, nan=0.0, posinf=0.0).max(axis=1)
    widths = np.quantile(largest, _TOGETHER) * errors
    examples = len(differences[0][0][1])
    return [
        Interval(float(estimate), float(estimate - width), float(estimate + width), examples)
        for estimate, width in zip(estimates, widths, strict=True)
    ]


def surely_above(statistics: Sequence[Statistics], of_means: OfMeans | None = None) -> NDArray[np.bool_]:
    """Which scores are above which, by intervals of all pairs' differences that hold at once.

    Made as ``simultaneous`` makes them, of one bootstrap of the scores.

    Args:
        statistics: Of several models on the same examples.
        of_means: As for ``bootstrap``.

    Returns:
        Shape (models, models): whether the interval of the first's score minus the second's is above 0.

    Raises:
        ValueError: As for ``bootstrap``.
    """
    sums = [[(1.0, own)] for own in statistics]
    estimates, drawn = _resampled(sums, of_means, np.random.default_rng(0), _RESAMPLES)
    differences = estimates[:, None] - estimates
    errors, largest = np.zeros_like(differences), np.zeros(_RESAMPLES)
    for at in range(len(estimates)):
        off = np.abs(drawn[:, at, None] - drawn - differences[at])
        errors[at] = (drawn[:, at, None] - drawn).std(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.nan_to_num(off / errors[at], nan=0.0, posinf=0.0)
        largest = np.maximum(largest, ratios.max(axis=1))
    surely: NDArray[np.bool_] = differences > np.quantile(largest, _TOGETHER) * errors
    return surely


def over_seeds(
    sides: Sequence[tuple[float, Sequence[Statistics]]],
    of_means: OfMeans | None = None,
    *,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Percentile interval of a weighted sum of means over seeds, of seeds and examples resampled both.

    Each resample draws examples, the same of every seed, and of each side its seeds. Few seeds drawn with
    replacement vary by (n - 1) / n of what seeds do (Davison & Hinkley 1997, Sec. 3.8), so what the drawn
    ones add to the mean is scaled by the root of n / (n - 1). A side of one seed has examples resampled only.

    Args:
        sides: Weights, such as 1 and -1, and statistics of each seed, of one shape, (examples,) or (examples,
            parts); seeds of two sides are drawn apart.
        of_means: As for ``bootstrap``.
        seed: Of the resampling.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.

    Raises:
        ValueError: As for ``bootstrap``.
    """
    rng = np.random.default_rng(seed)
    runs = [[(1.0, values)] for _, own in sides for values in own]
    estimates, drawn = _resampled(runs, of_means, rng, resamples)
    middle, total, first = 0.0, np.zeros(resamples), 0
    for weight, own in sides:
        count = len(own)
        columns = slice(first, first := first + count)
        means = drawn[:, columns].mean(axis=1)
        taken = rng.multinomial(count, np.full(count, 1 / count), size=resamples) / count
        spread = np.sqrt(count / (count - 1)) if count > 1 else 0.0
        total += weight * (means + spread * ((taken * drawn[:, columns]).sum(axis=1) - means))
        middle += weight * float(estimates[columns].mean())
    low, high = np.quantile(total, [(1 - level) / 2, (1 + level) / 2])
    return Interval(middle, float(low), float(high), len(runs[0][0][1]))


def _resampled(
    sums: Sequence[Sequence[Term]], of_means: OfMeans | None, rng: np.random.Generator, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted sums of scores of the same examples, shape (sums,), and of resamples, (resamples, sums)."""
    parts = [_joint(terms, of_means) for terms in sums]
    rows = [values.reshape(len(values), -1) for values, _ in parts]
    edges = np.cumsum([values.shape[1] for values in rows])[:-1]
    examples, joined = len(rows[0]), np.concatenate(rows, axis=1)

    def values_of(means: NDArray[np.float64]) -> NDArray[np.float64]:
        split = zip(np.split(means, edges, axis=-1), parts, strict=True)
        return np.stack([of(part if own.ndim == 2 else part[..., 0]) for part, (own, of) in split], axis=-1)

    # Resampling counts instead of rows: statistics that are counts repeat, so a multinomial over the
    # distinct ones is the same bootstrap in a fraction of the memory; in parts, as areas repeat less.
    distinct, counts = np.unique(joined, axis=0, return_counts=True)
    drawn = np.concatenate(
        [
            values_of(rng.multinomial(examples, counts / examples, size=part) @ distinct / examples)
            for part in np.diff(np.linspace(0, resamples, 21).round().astype(int))
        ]
    )
    return values_of(joined.mean(axis=0)), drawn


def score_of(terms: Sequence[Term], of_means: OfMeans | None = None) -> float:
    """The weighted sum of scores itself; arguments and errors as for ``bootstrap``."""
    rows, value = _joint(terms, of_means)
    return float(value(rows.mean(axis=0)))


def standard_error(statistics: Statistics, of_means: OfMeans | None = None) -> float:
    """Standard error of a score: of a mean the usual one, else the jackknife's (Efron & Tibshirani 1993).

    Args:
        statistics: Shape (examples,) or (examples, parts).
        of_means: As for ``bootstrap``.

    Returns:
        In the unit of the score; NaN where a function of means rests on a single example.

    Raises:
        ValueError: As for ``bootstrap``.
    """
    rows, value = _joint([(1.0, statistics)], of_means)
    examples = len(rows)
    if rows.ndim == 1:
        return float(rows.std() / np.sqrt(examples))
    if examples == 1:
        return float("nan")
    left_out = value((rows.sum(axis=0) - rows) / (examples - 1))
    return float(left_out.std() * np.sqrt(examples - 1))


def weighted_sum(terms: Sequence[Term]) -> Statistics:
    """Mean over arrays of one shape: as a mean is linear, statistics (examples,) of the summed scores."""
    # Either sign summed on its own: two equal sides then cancel to exactly 0.
    gained = np.sum([weight * values for weight, values in terms if not weight < 0], axis=0)
    lost = np.sum([-weight * values for weight, values in terms if weight < 0], axis=0)
    total: Statistics = gained - lost
    return total


def _joint(terms: Sequence[Term], of_means: OfMeans | None) -> tuple[Statistics, OfMeans]:
    """One row per example, and the function from mean rows to the weighted sum of scores."""
    shapes = {values.shape for _, values in terms}
    shape = next(iter(shapes), ())
    if len(shapes) != 1 or len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(
            f"paired statistics need one shape, (examples,) or (examples, parts): {sorted(shapes)}"
        )
    if len(shape) == 1:
        return _of_one_number(terms, of_means)
    if of_means is None:
        raise ValueError(f"statistics of {shape[1]} parts need a function of their means")

    def value(means: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = np.split(means, len(terms), axis=-1)
        return weighted_sum(
            [(weight, of_means(part)) for (weight, _), part in zip(terms, parts, strict=True)]
        )

    return np.concatenate([values for _, values in terms], axis=1), value


def _of_one_number(terms: Sequence[Term], of_means: OfMeans | None) -> tuple[Statistics, OfMeans]:
    probe = np.array([0.25, 3.0])
    if of_means is not None and not np.array_equal(of_means(probe), probe):
        raise ValueError("a function of means other than the mean needs statistics (examples, parts)")
    return weighted_sum(terms), lambda means: means
