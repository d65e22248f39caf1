"""Bootstrap intervals against resampling by hand, their coverage, and degenerate cases."""

import numpy as np
import pytest

from ldsearch.trials.intervals import (
    Interval,
    bootstrap,
    over_seeds,
    paired_bootstrap,
    score_of,
    simultaneous,
    standard_error,
    weighted_sum,
)


def f1(means: np.ndarray) -> np.ndarray:
    """Of mean (correct, predicted, gold); a part of gold is always drawn here."""
    return 2 * means[..., 0] / (means[..., 1] + means[..., 2])


def counts(examples: int, models: int, seed: int) -> list[np.ndarray]:
    """(correct, predicted, gold) of classifiers of different quality on the same examples."""
    draw = np.random.default_rng(seed)
    gold = draw.random(examples) < 0.4
    found = []
    for right in np.linspace(0.6, 0.9, models):
        predicted = np.where(draw.random(examples) < right, gold, ~gold)
        found.append(np.stack([predicted & gold, predicted, gold], axis=-1).astype(float))
    return found


def reference(difference: np.ndarray, seed: int = 0, resamples: int = 10_000) -> Interval:
    """The bootstrap of one mean, as it stood before scores could be other functions."""
    rng = np.random.default_rng(seed)
    values, counts = np.unique(difference, return_counts=True)
    parts = [
        rng.multinomial(difference.size, counts / difference.size, size=part) @ values / difference.size
        for part in np.diff(np.linspace(0, resamples, 21).round().astype(int))
    ]
    low, high = np.quantile(np.concatenate(parts), [(1 - 0.95) / 2, (1 + 0.95) / 2])
    return Interval(float(difference.mean()), float(low), float(high), int(difference.size))


@pytest.mark.parametrize("of_means", [None, lambda means: means])
@pytest.mark.parametrize("examples", [1, 7, 500])
def test_means_have_the_very_bits_they_always_had(examples, of_means):
    rng = np.random.default_rng(examples)
    for first, second in (rng.integers(0, 2, (2, examples)).astype(float), rng.random((2, examples))):
        expected = reference(first - second, seed=3, resamples=1_000)
        assert paired_bootstrap(first, second, of_means=of_means, seed=3, resamples=1_000) == expected
    # An area is a weighted sum on either side; statistics of 0 and 1 repeat, so rounding would show.
    sides = rng.integers(0, 2, (2, 3, examples)).astype(float)
    weights = np.array([0.1, 0.2, 0.7])
    one, other = (np.sum([w * row for w, row in zip(weights, side, strict=True)], axis=0) for side in sides)
    terms = [
        (sign * float(w), row)
        for sign, side in zip((1, -1), sides, strict=True)
        for w, row in zip(weights, side, strict=True)
    ]
    assert bootstrap(terms, of_means) == reference(one - other)
    assert score_of(terms, of_means) == float((one - other).mean())
    assert bootstrap([(-w, row) for w, row in terms], of_means) == reference(-one - -other)


def test_pairing_matters():
    (parts,) = counts(500, 1, 0)
    for same in (paired_bootstrap(parts[:, 0], parts[:, 0]), paired_bootstrap(parts, parts, of_means=f1)):
        assert (same.mean, same.low, same.high, same.examples) == (0.0, 0.0, 0.0, 500)
    one, other = counts(300, 2, 4)
    cancelled = bootstrap([(0.1, one), (0.7, other), (-0.1, one), (-0.7, other)], f1)
    assert (cancelled.mean, cancelled.low, cancelled.high) == (0.0, 0.0, 0.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng, covered = np.random.default_rng(2), 0
    for trial in range(200):
        first, second = ((rng.random(300) < right).astype(float) for right in (0.7, 0.6))
        interval = paired_bootstrap(first, second, seed=trial, resamples=500)
        covered += interval.low <= 0.1 <= interval.high
    assert 180 <= covered <= 199


def resampled_by_hand(terms: list[tuple[float, np.ndarray]], draws: int, seed: int) -> np.ndarray:
    """Rows drawn with replacement, the same of every term; each F1 from the counts' sums."""
    examples = len(terms[0][1])
    found = []
    for rows in np.random.default_rng(seed).integers(0, examples, (draws, examples)):
        value = 0.0
        for weight, statistics in terms:
            correct, predicted, gold = statistics[rows].sum(axis=0)
            value += weight * 2 * correct / (predicted + gold)
        found.append(value)
    return np.array(found)


@pytest.mark.parametrize("weights", [(1.0, -1.0), (0.3, 0.7), (0.25, 0.75, -0.6, -0.4)])
def test_functions_of_means_have_the_interval_of_resampled_rows(weights):
    terms = list(zip(weights, counts(200, len(weights), 5), strict=True))
    interval, by_hand = bootstrap(terms, f1), resampled_by_hand(terms, 6_000, 6)
    assert interval.mean == pytest.approx(sum(w * f1(rows.sum(axis=0)) for w, rows in terms))
    assert interval.mean == score_of(terms, f1)
    assert interval.examples == 200
    assert bootstrap(terms, f1, level=0.95) == interval
    spread = by_hand.std()
    for level, within in ((0.95, 0.12), (0.5, 0.08)):
        own = bootstrap(terms, f1, level=level)
        expected = tuple(np.quantile(by_hand, [(1 - level) / 2, (1 + level) / 2]))
        assert (own.low, own.high) == pytest.approx(expected, abs=within * spread)


def test_the_order_of_the_examples_does_not_matter_but_their_pairing_does():
    first, second = counts(400, 2, 7)
    order = np.random.default_rng(0).permutation(400)
    expected = paired_bootstrap(first, second, of_means=f1)
    together = paired_bootstrap(first[order], second[order], of_means=f1)
    assert (together.low, together.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    apart = paired_bootstrap(first[order], second, of_means=f1)
    assert apart.mean == pytest.approx(expected.mean)
    assert apart.high - apart.low != pytest.approx(expected.high - expected.low, rel=0.02)


def test_the_standard_error_of_a_mean_is_the_textbooks():
    rows = np.random.default_rng(4).random(50)
    assert standard_error(rows) == float(rows.std() / np.sqrt(50))
    assert standard_error(rows, lambda means: means) == standard_error(rows)
    # Of a mean the jackknife is exactly s / sqrt(n).
    jackknife = standard_error(rows[:, None], lambda means: means[..., 0])
    assert jackknife == pytest.approx(rows.std(ddof=1) / np.sqrt(50), rel=1e-12)
    # A single example has none.
    assert np.isnan(standard_error(np.ones((1, 3)), f1))
    assert standard_error(np.ones(1)) == 0.0


def test_the_standard_error_of_other_scores_is_the_jackknifes():
    (rows,) = counts(80, 1, 8)
    left_out = [f1(np.delete(rows, index, axis=0).mean(axis=0)) for index in range(80)]
    expected = np.sqrt(79 / 80 * sum((value - np.mean(left_out)) ** 2 for value in left_out))
    assert standard_error(rows, f1) == pytest.approx(expected, rel=1e-12)
    assert standard_error(rows, f1) == pytest.approx(resampled_by_hand([(1, rows)], 2_000, 9).std(), rel=0.1)


def test_nan_stays_nan():
    broken = np.full((30, 3), np.nan)
    (rows,) = counts(30, 1, 10)
    for interval in (paired_bootstrap(broken, rows, of_means=f1), paired_bootstrap(broken[:, 0], rows[:, 0])):
        assert np.isnan([interval.mean, interval.low, interval.high]).all()
    assert np.isnan(weighted_sum([(np.nan, rows)])).all()


def test_unpaired_or_empty_statistics_are_refused():
    unlike = ([1.0], [1.0, 0.0]), ([[1.0], [1.0]], [1.0, 0.0]), ([[1.0]], [[1.0, 0.0]])
    for first, second in (*unlike, ([], []), ([[]], [[]]), (1.0, 1.0)):
        with pytest.raises(ValueError, match="paired"):
            paired_bootstrap(first, second, of_means=f1)
    with pytest.raises(ValueError, match="paired"):
        score_of([])


def test_a_function_that_does_not_fit_its_statistics_is_refused():
    (rows,) = counts(10, 1, 0)
    with pytest.raises(ValueError, match="3 parts need a function"):
        paired_bootstrap(rows, rows)
    with pytest.raises(ValueError, match="other than the mean"):
        standard_error(rows[:, 0], np.sqrt)


def test_intervals_of_all_at_once_hold_together_where_single_ones_do_not():
    """Of ten differences of nothing some single interval misses 0 in four cases of ten."""
    rng, missed = np.random.default_rng(0), {"single": 0, "together": 0}
    for seed in range(80):
        full, others = rng.random(150), rng.random((10, 150))
        against = [[(1.0, own), (-1.0, full)] for own in others]
        single = [bootstrap(terms, seed=seed, resamples=400) for terms in against]
        together = simultaneous(against, seed=seed, resamples=400)
        assert [own.mean for own in single] == pytest.approx([own.mean for own in together])
        for name, intervals in (("single", single), ("together", together)):
            missed[name] += any(own.low > 0 or own.high < 0 for own in intervals)
    assert missed["together"] <= 10  # of 80; 4 are expected
    assert missed["single"] >= 15


def test_of_one_difference_or_of_equal_ones_the_band_is_the_usual_interval():
    rng = np.random.default_rng(1)
    terms = [(1.0, rng.random(400)), (-1.0, rng.random(400))]
    for intervals in (simultaneous([terms]), simultaneous([terms] * 5)):
        for own in intervals:
            expected = bootstrap(terms)
            assert (own.low, own.high) == pytest.approx((expected.low, expected.high), abs=0.003)
    nothing = [(1.0, np.ones(20)), (-1.0, np.ones(20))]
    assert [(own.low, own.high) for own in simultaneous([nothing])] == [(0.0, 0.0)]
    assert simultaneous([]) == []


def test_a_band_of_f1_is_of_its_mean_counts():
    rng = np.random.default_rng(2)
    first, second = (np.stack([x, np.ones(300)], axis=1) for x in (rng.random(300), rng.random(300)))

    def ratio(means):
        return means[..., 0] / means[..., 1]

    (own,) = simultaneous([[(1.0, first), (-1.0, second)]], ratio)
    plain = bootstrap([(1.0, first[:, 0]), (-1.0, second[:, 0])])
    assert (own.mean, own.low, own.high) == pytest.approx((plain.mean, plain.low, plain.high), abs=0.004)


def seeds_of(draw: np.random.Generator, deviation: float, seeds: int, examples: int) -> list[np.ndarray]:
    """Scores of 0.7 in the mean over seeds and examples; a seed moves all of its examples."""
    moved = 0.7 + deviation * draw.standard_normal(seeds)
    return list(moved[:, None] + 0.3 * draw.standard_normal((seeds, examples)))


def test_intervals_over_seeds_cover_where_those_over_rows_alone_do_not():
    """Both sides alike, so the true gain is 0; three seeds deviate by 0.06, the mean of 100 rows by 0.03."""
    rng = np.random.default_rng(0)
    both = alone = 0
    for trial in range(200):
        one, other = (seeds_of(rng, 0.06, 3, 100) for _ in range(2))
        found = over_seeds([(1, one), (-1, other)], seed=trial, resamples=200)
        both += found.low <= 0 <= found.high
        terms = [(sign / 3, values) for sign, side in ((1, one), (-1, other)) for values in side]
        rows = bootstrap(terms, seed=trial, resamples=200)
        alone += rows.low <= 0 <= rows.high
        assert found.mean == pytest.approx(rows.mean)
    assert alone / 200 < 0.7
    assert 0.9 <= both / 200 <= 0.99


def test_variances_of_seeds_and_of_rows_add_up():
    one, other = (seeds_of(np.random.default_rng(i), 0.03, 6, 500) for i in range(2))
    found = over_seeds([(1, one), (-1, other)])
    of_seeds = sum(np.var([values.mean() for values in side], ddof=1) / 6 for side in (one, other))
    of_rows = np.var(np.mean(one, axis=0) - np.mean(other, axis=0)) / 500
    # Two-level resampling draws the examples of each seed on its own too: at most as much again.
    low, high = (2 * 1.96 * np.sqrt(of_seeds + factor * of_rows) for factor in (0.9, 2.2))
    assert low < found.high - found.low < high


def test_seeds_that_found_the_same_have_the_interval_of_one():
    first, second = counts(400, 2, 3)
    one = paired_bootstrap(first, second, of_means=f1)
    for seeds in (1, 3):
        found = over_seeds([(1, [first] * seeds), (-1, [second])], f1)
        assert found.mean == pytest.approx(one.mean)
        assert (found.low, found.high) == pytest.approx((one.low, one.high), abs=0.003)
