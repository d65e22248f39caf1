"""Dominance, frontier and area against brute force, pymoo and closed forms."""

import math

import numpy as np
import pytest
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

from ldsearch.trials.pareto import beside, frontier, staircase_area, staircase_weights

NAN = math.nan


def dominates(first, second) -> bool:
    """The textbook definition; False with NaN."""
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@pytest.mark.parametrize("seed", range(20))
def test_the_frontier_equals_pymoos_first_front_on_data_with_ties(seed):
    values = np.random.default_rng(seed).integers(0, 8, (60, 2)).astype(float)
    ours = frontier(values)
    theirs = NonDominatedSorting().do(values, only_non_dominated_front=True)
    assert {tuple(values[i]) for i in ours} == {tuple(values[i]) for i in theirs}
    assert len({tuple(values[i]) for i in ours}) == len(ours)
    assert (np.diff(values[ours, 0]) > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_frontier_in_three_objectives_equals_brute_force(seed):
    values = np.random.default_rng(seed).integers(0, 4, (40, 3)).astype(float)
    expected = {tuple(a) for a in values if not any(dominates(b, a) for b in values)}
    assert {tuple(values[i]) for i in frontier(values)} == expected


def test_rows_with_nan_are_on_no_frontier_and_of_equal_rows_the_first_stands_for_all():
    assert frontier([[NAN, 0.0], [1.0, 1.0], [0.0, NAN]]).tolist() == [1]
    assert frontier([[NAN, 0.0]]).tolist() == []
    assert frontier([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]).tolist() == [0]
    assert frontier(np.empty((0, 2))).tolist() == []


def choice(costs, scores, budget: float) -> int | None:
    """The row that a budget pays for: best score, of equal ones the cheapest, of those the first."""
    rows = zip(costs, scores, strict=True)
    paid = [(-s, c, row) for row, (c, s) in enumerate(rows) if c <= budget and s == s]
    return min(paid)[2] if paid else None


@pytest.mark.parametrize("seed", range(10))
def test_a_rows_weight_is_the_share_of_budgets_that_choose_it(seed):
    draw = np.random.default_rng(seed)
    # Scores in tenths and costs in twentieths: many ties, rows below and above the range.
    costs = np.append(0.2, draw.integers(2, 24, 30) / 20)
    scores = draw.integers(0, 10, 31) / 10
    scores[draw.integers(1, 31, 4)] = NAN
    costs[draw.integers(1, 31, 2)] = NAN
    weights = staircase_weights(costs, scores, 0.3, 1.0)
    budgets = 0.3 + 0.7 * (np.arange(7_000) + 0.5) / 7_000
    chosen = [choice(costs, scores, budget) for budget in budgets]
    expected = np.bincount(chosen, minlength=31) / len(budgets)
    np.testing.assert_allclose(weights, expected, atol=1e-9)
    assert weights.sum() == pytest.approx(1.0)
    riemann = np.mean([scores[row] for row in chosen])
    assert staircase_area(costs, scores, 0.3, 1.0) == pytest.approx(riemann)


@pytest.mark.parametrize(
    ("costs", "scores"), [([0.6, 0.8], [0.5, 0.9]), ([0.4], [NAN]), ([NAN], [0.5]), ([], [])]
)
def test_weights_without_a_row_at_the_start_of_the_range_are_unknown(costs, scores):
    weights = staircase_weights(costs, scores, 0.4, 1.0)
    assert weights.shape == (len(costs),)
    assert np.isnan(weights).all()
    assert not costs or math.isnan(staircase_area(costs, scores, 0.4, 1.0))


def test_a_range_that_is_none_is_refused():
    for low, high in ((1.0, 1.0), (1.0, 0.4), (NAN, 1.0)):
        with pytest.raises(ValueError, match="empty cost range"):
            staircase_weights([0.1], [0.5], low, high)


def test_beside_a_choice_a_cheaper_and_a_dearer_point_are_told():
    assert beside([1.0, 3.1, 5.0, 8.4, 20.0], 5.0) == [1, 3]
    assert beside([4.9, 5.2], 5.0) == [0, 1]  # all alike
    assert beside([9.0], 5.0) == [0]
    assert beside([], 5.0) == []
