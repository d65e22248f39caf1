"""Rank correlations at equal cost, against scipy, brute force and planted scores."""

import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau

from ldsearch.trials.ranking import partial_tau, tau_within

RNG = np.random.default_rng(0)


def test_one_stratum_is_kendalls_tau_b_with_ties() -> None:
    a, b = RNG.integers(0, 6, 25), RNG.integers(0, 6, 25)
    expected = kendalltau(a, b)
    result = tau_within(a, b, np.zeros(25))
    assert result.tau == pytest.approx(expected.statistic, abs=1e-12)
    assert result.p_value == pytest.approx(expected.pvalue, abs=0.03)
    assert result.pairs == 300


def test_only_pairs_of_one_stratum_count() -> None:
    a, b, strata = RNG.random(12), RNG.random(12), RNG.integers(0, 3, 12)
    pairs = [(i, j) for i, j in itertools.combinations(range(12), 2) if strata[i] == strata[j]]
    agree = sum(1 if (a[i] - a[j]) * (b[i] - b[j]) > 0 else -1 for i, j in pairs)
    result = tau_within(a, b, strata, permutations=9)
    assert (result.tau, result.pairs) == (pytest.approx(agree / len(pairs)), len(pairs))


def test_the_permutation_test_is_exact_on_few_items() -> None:
    a, b, strata = np.arange(6.0), np.array([2.0, 0, 1, 3, 5, 4]), np.array([0, 0, 0, 1, 1, 1])

    def agreement(values: np.ndarray) -> float:
        return sum(
            np.sign(a[i] - a[j]) * np.sign(values[i] - values[j])
            for i, j in itertools.combinations(range(6), 2)
            if strata[i] == strata[j]
        )

    orders = [(*p, *q) for p in itertools.permutations(b[:3]) for q in itertools.permutations(b[3:])]
    extreme = np.mean([abs(agreement(np.array(order))) >= abs(agreement(b)) for order in orders])
    assert tau_within(a, b, strata).p_value == pytest.approx(extreme, abs=0.02)


def test_scores_that_only_follow_cost_agree_overall_and_not_within_bins() -> None:
    cost = np.linspace(0, 1, 60)
    bins = np.digitize(cost, np.linspace(0, 1, 7)[1:-1])
    noise = RNG.normal(0, 0.02, (2, 60))
    first, second = cost + noise
    assert kendalltau(first, second).statistic > 0.85
    within = tau_within(first - cost, second - cost, bins)
    assert abs(within.tau) < 0.25
    assert within.p_value > 0.05
    alike = tau_within(noise[0], noise[0] + RNG.normal(0, 0.005, 60), bins)
    assert alike.tau > 0.6
    assert alike.p_value < 0.001


def test_what_has_no_score_is_left_out() -> None:
    a, b, strata = RNG.random(12), RNG.random(12), RNG.integers(0, 2, 12)
    with_gaps = [
        np.append(values, more) for values, more in ((a, [np.nan, 1]), (b, [0.5, np.nan]), (strata, [0, 1]))
    ]
    assert tau_within(*with_gaps) == tau_within(a, b, strata)


def test_a_constant_side_has_no_tau() -> None:
    assert np.isnan(tau_within(np.ones(4), np.arange(4), np.zeros(4)).tau)


def test_partial_tau_is_the_closed_form_of_a_fourfold_table() -> None:
    """Kendall's partial tau is phi of the pairs: concordant with z or not, for x against y."""
    x, y, z = RNG.permutation(12), RNG.permutation(12), np.arange(12)
    table = np.zeros((2, 2))
    for i, j in itertools.combinations(range(12), 2):
        table[int(x[i] < x[j]), int(y[i] < y[j])] += 1
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    phi = (table[1, 1] * table[0, 0] - table[1, 0] * table[0, 1]) / np.sqrt(rows.prod() * columns.prod())
    taus = (kendalltau(x, z).statistic, kendalltau(y, z).statistic, kendalltau(x, y).statistic)
    assert partial_tau(*taus) == pytest.approx(phi)
    assert np.isnan(partial_tau(1.0, 0.5, 0.5))
