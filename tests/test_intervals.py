"""Bootstrap intervals against the normal approximation and degenerate cases."""

import numpy as np
import pytest

from ldsearch.intervals import paired_bootstrap


def test_the_interval_is_near_the_normal_approximation_on_many_examples():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 2, (2, 4_000)).astype(float)
    interval = paired_bootstrap(first, second)
    difference = first - second
    half = 1.96 * difference.std() / np.sqrt(4_000)
    assert interval.mean == pytest.approx(difference.mean())
    assert interval.low == pytest.approx(difference.mean() - half, abs=0.002)
    assert interval.high == pytest.approx(difference.mean() + half, abs=0.002)


def test_pairing_matters():
    statistics = np.random.default_rng(1).integers(0, 2, 500).astype(float)
    same = paired_bootstrap(statistics, statistics)
    assert (same.mean, same.low, same.high, same.examples) == (0.0, 0.0, 0.0, 500)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(200):
        first = (rng.random(300) < 0.7).astype(float)
        second = (rng.random(300) < 0.6).astype(float)
        interval = paired_bootstrap(first, second, seed=trial, resamples=500)
        covered += interval.low <= 0.1 <= interval.high
    assert 180 <= covered <= 199


def test_unpaired_or_empty_statistics_are_refused():
    for first, second in (([1.0], [1.0, 0.0]), ([], [])):
        with pytest.raises(ValueError, match="paired"):
            paired_bootstrap(first, second)
