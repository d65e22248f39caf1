"""A frontier on rows that chose nothing: planted statistics whose areas and differences are known."""

import itertools
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from ldsearch.reports.held_out import HELD_OUT_COLUMNS, HeldOut, held_out_table, hold_out, significant_gains
from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import frontier as non_dominated
from ldsearch.trials.trial import Score, Trial
from tests.trials.test_intervals import counts, f1

NAMES = ("full", "a", "b", "c", "d")


def subnet(name: str | int) -> Subnet:
    return Subnet.of_encoder([NAMES.index(name) if isinstance(name, str) else name])


def trial(name: str | int, macs: float, score: float, higher: bool = True) -> Trial:
    own = subnet(name)
    return Trial(own, "accuracy", Score(score, higher), {"macs": macs}, 20, "search", 0.0, "f")


def bits(text: str) -> np.ndarray:
    return np.array([float(bit) for bit in text])


# Ten held-out examples, 1 where the sub-network is right.
RIGHT = {
    subnet("full"): bits("1111111100"),  # 0.8
    subnet("a"): bits("1111110000"),  # 0.6, wrong on two that full has right
    subnet("b"): bits("1111111000"),  # 0.7, wrong on one
    subnet("c"): bits("1111100000"),  # 0.5
    subnet("d"): bits("1111111111"),  # 1.0
}
FULL = trial("full", 10.0, 0.90)
FRONTIER = [trial("a", 2.0, 0.75), trial("b", 5.0, 0.85), FULL]


def held(frontier: list[Trial], full: Trial = FULL, **controls: list[Trial]) -> HeldOut:
    return hold_out(frontier, full, "report", RIGHT.__getitem__, controls)


def test_the_area_weighs_held_out_scores_by_the_choices_of_the_search():
    # From 2 to 5 the search takes a, from 5 to 10 b; the full model pays off nowhere before its own cost.
    assert held(FRONTIER).area == pytest.approx(3 / 8 * 0.6 + 5 / 8 * 0.7)
    # d would be the best choice from 2 on; the search scored it last, so it is taken nowhere.
    misjudged = [trial("d", 2.0, 0.1), trial("a", 2.0, 0.75), FRONTIER[1], FULL]
    assert held(misjudged).area == pytest.approx(3 / 8 * 0.6 + 5 / 8 * 0.7)


def test_optimism_is_the_gain_over_full_where_chosen_minus_the_gain_held_out():
    # Chosen: (0.75 - 0.90 + 0.85 - 0.90) / 2 = -0.10; held out: (-0.2 - 0.1) / 2 = -0.15.
    assert held(FRONTIER).optimism == pytest.approx(0.05)
    (sentence,) = [text for text in held(FRONTIER).describe() if text.startswith("optimism")]
    assert "mean accuracy is -0.1000 on the search split, which chose it" in sentence
    assert sentence.endswith("and -0.1500 on the report split")


def test_gains_compare_areas_over_the_range_that_both_frontiers_span():
    found = held(FRONTIER, random=[trial("c", 4.0, 0.70), trial("d", 8.0, 0.80)], line=[trial("b", 1.0, 0.5)])
    # All ranges start where the last frontier does, at 4: a to 5, b to 10; c to 8, d to 10; b throughout.
    own = 1 / 6 * 0.6 + 5 / 6 * 0.7
    assert found.area == pytest.approx(own)
    assert found.gains["random"].mean == pytest.approx(own - (4 / 6 * 0.5 + 2 / 6 * 1.0))
    assert found.gains["line"].mean == pytest.approx(own - 0.7)
    assert set(found.gains) == {"random", "line"}


def test_the_full_model_is_the_reference_even_where_it_is_not_on_the_frontier():
    found = held([trial("a", 2.0, 0.95)])
    assert found.full_score == 0.8
    assert [row.difference.mean for row in found.rows] == pytest.approx([-0.2])
    assert found.optimism == pytest.approx(0.05 + 0.2)


def area_by_hand(front: list[Trial], low: float, high: float, score: Callable[[Subnet], float]) -> float:
    """Each point's score from its cost to the next one's."""
    starts = [max(point.costs["macs"], low) for point in front] + [high]
    widths = [after - start for start, after in itertools.pairwise(starts)]
    return sum(score(point.subnet) * width for point, width in zip(front, widths, strict=True)) / (high - low)


@pytest.mark.parametrize("higher", [True, False])
def test_of_an_f1_too_every_interval_is_the_bootstrap_over_examples(higher):
    examples = 250
    values = {subnet(i): own for i, own in enumerate(counts(examples, 7, 1))}

    def score(means: np.ndarray) -> np.ndarray:
        return f1(means) if higher else 1 - f1(means)

    trials = [trial(i, 1.0 + i**1.5, float(score(values[subnet(i)].mean(axis=0))), higher) for i in range(7)]
    own, control, full = [trials[1], trials[3], trials[5], trials[6]], [trials[0], trials[2]], trials[6]
    found = hold_out(own, full, "report", values.__getitem__, {"r": control}, score)
    low, high, sign = trials[1].costs["macs"], full.costs["macs"], 1 if higher else -1

    def on(rows: np.ndarray) -> list[float]:
        """Area gain, difference of the cheapest to full, step from the cheapest to the next."""

        def by_hand(own: Subnet) -> float:
            correct, predicted, gold = values[own][rows].sum(axis=0)
            recall, precision = correct / gold, correct / predicted
            harmonic = 2 / (1 / recall + 1 / precision)
            return harmonic if higher else 1 - harmonic

        gain = area_by_hand(own, low, high, by_hand) - area_by_hand(control, low, high, by_hand)
        cheap, dearer, whole = (by_hand(one.subnet) for one in (own[0], own[1], full))
        return [sign * gain, cheap - whole, dearer - cheap]

    everything = on(np.arange(examples))
    step = found.rows[1].step
    assert step is not None
    intervals = [found.gains["r"], found.rows[0].difference]
    assert [interval.mean for interval in (*intervals, step)] == pytest.approx(everything)
    assert found.rows[0].band.mean == pytest.approx(everything[1])
    assert found.gains["r"].mean > 0.02
    drawn = np.random.default_rng(5).integers(0, examples, (1_500, examples))
    resampled = np.array([on(rows) for rows in drawn])
    for interval, draws in zip(intervals, resampled.T[:2], strict=True):
        expected = tuple(np.quantile(draws, [0.025, 0.975]))
        assert (interval.low, interval.high) == pytest.approx(expected, abs=0.2 * draws.std())
    assert [row.score for row in found.rows] == pytest.approx([one.score.value for one in own])
    assert (found.full_score, found.optimism) == pytest.approx((full.score.value, 0.0))
    area = area_by_hand(own, low, high, lambda one: float(score(values[one].mean(axis=0))))
    assert found.area == pytest.approx(area)


def overfit(seed: int, examples: int = 200, count: int = 60) -> HeldOut:
    """Sub-networks that are right on four examples of five, each on its own; a frontier of lucky scores."""
    draw = np.random.default_rng(seed)
    search, report = (draw.random((2, count, examples)) < 0.8).astype(float)
    trials = [trial(i, float(count - i), float(search[i].mean())) for i in range(count)]
    lucky = non_dominated([[t.costs["macs"], t.score.loss] for t in trials])
    rows = {subnet(i): report[i] for i in range(count)}
    return hold_out([trials[i] for i in lucky], trials[0], "report", rows.__getitem__)


def test_a_frontier_of_luck_is_found_out():
    found = [overfit(seed) for seed in range(15)]
    assert np.mean([len(held.rows) for held in found]) > 3
    # Beside luck there is nothing: what the search sees as gains is optimism.
    seen = [np.mean([row.trial.score.value for row in held.rows]) - 0.8 for held in found]
    optimism = np.mean([held.optimism for held in found])
    assert 0.02 < optimism == pytest.approx(np.mean(seen), abs=0.015)
    # Some step of a frontier, whichever, passes for real one time in twenty.
    steps = [[row.step for row in held.rows if row.step is not None] for held in found]
    assert sum(any(step.low > 0 or step.high < 0 for step in own) for own in steps) <= 3


def test_the_words_tell_steps_and_points_from_noise_and_give_gains_their_intervals():
    lucky = overfit(0)
    steps = len(lucky.rows) - 1
    assert steps > 1
    assert any(text.startswith(f"none of the {steps} steps") for text in lucky.describe())
    rows = {subnet("a"): np.repeat([1.0, 0.0], [60, 140]), subnet("b"): np.repeat([1.0, 0.0], [150, 50])}
    rows[subnet("full")] = rows[subnet("b")].copy()
    rows[subnet("full")][0] = 0.0
    points, real = hold_out(FRONTIER, FULL, "report", rows.__getitem__).describe()[1:]
    assert re.match("1 of 2 frontier points do not differ .* on 200 rows.*: 0.500 of its MACs$", points)
    assert re.match("1 of 2 steps.*: 0.200 to 0.500$", real)
    worse = hold_out(FRONTIER[:1], FULL, "report", rows.__getitem__)
    assert worse.describe()[1].startswith("all 1 frontier points")
    found = held([trial("d", 2.0, 0.95), FULL], random=[trial("c", 2.0, 0.5)], line=[trial("d", 2.0, 0.9)])
    gains = {text.split()[2].rstrip(","): text for text in found.describe() if text.startswith("area over")}
    assert "on the report split: +0.5000 (95% interval over rows +0.2000" in gains["random"]
    assert [name for name, text in gains.items() if text.endswith(": not significant")] == ["line"]


def test_short_frontiers_have_no_steps_and_that_of_the_full_model_alone_no_area():
    alone = held([trial("a", 2.0, 0.95)], random=[trial("c", 3.0, 0.5)])
    assert [row.step for row in alone.rows] == [None]
    assert (alone.area, alone.gains["random"].mean) == pytest.approx((0.6, 0.1))
    assert not any("step" in text for text in alone.describe())
    full = held([FULL], random=[trial("c", 3.0, 0.5)], line=[])
    assert [row.difference.mean for row in full.rows] == [0.0]
    assert math.isnan(full.area)
    assert (full.gains, full.optimism, full.describe()) == ({}, 0.0, [])


def test_the_table_has_the_documented_columns_and_the_numbers_of_the_held_out_rows():
    found = held(FRONTIER, random=[])
    assert (found.split, found.full_score, found.gains) == ("report", 0.8, {})
    assert [row.trial for row in found.rows] == FRONTIER
    table = held_out_table(found)
    assert list(table.columns) == list(HELD_OUT_COLUMNS)
    assert table["held_out_split"].tolist() == ["report"] * 3
    assert table["held_out_examples"].tolist() == [10] * 3
    assert table["held_out_score"].tolist() == pytest.approx([0.6, 0.7, 0.8])
    assert table["difference"].tolist() == pytest.approx([-0.2, -0.1, 0.0])
    # Against the full model n examples of ten differ, by -1 each: resamples hold Binomial(10, n/10) of them.
    laws = [binom(10, wrong / 10) for wrong in (2, 1, 0)]
    assert table["difference_low"].tolist() == pytest.approx([-law.ppf(0.975) / 10 for law in laws])
    assert table["difference_high"].tolist() == pytest.approx([-law.ppf(0.025) / 10 for law in laws])


def test_only_points_with_significant_gains_are_kept():
    # 400 rows; each point is right wherever the one before is, and on some more.
    right = {"a": 200, "b": 202, "c": 260, "d": 262, "full": 320}
    rows = {subnet(name): np.arange(400.0) < count for name, count in right.items()}
    front = [trial(name, cost, score) for cost, (name, score) in enumerate(right.items(), 1)]
    statistics = {own: one.astype(float) for own, one in rows.items()}
    assert significant_gains(front, statistics.__getitem__) == [front[0], front[2], front[4]]
    # A dearer point that is worse is none, and a cheap one alone stands for all that equal it.
    assert significant_gains(front[::-1], statistics.__getitem__) == [front[4]]
    assert significant_gains(front[:2], statistics.__getitem__) == front[:1]
    # Losses: less is better.
    losses = [trial(name, cost, -score, higher=False) for cost, (name, score) in enumerate(right.items(), 1)]
    falling = significant_gains(losses, lambda own: -statistics[own])
    assert falling == [losses[0], losses[2], losses[4]]


def test_of_points_that_differ_by_noise_alone_hardly_ever_two_are_kept():
    # Ten points of one true score, 100 times: all pairs hold at once with 95%.
    rng = np.random.default_rng(0)
    names = range(10)
    front = [trial(name, name + 1.0, 0.5) for name in names]
    several = 0
    for _ in range(100):
        rows = {subnet(name): rng.integers(0, 2, 200).astype(float) for name in names}
        several += len(significant_gains(front, rows.__getitem__)) > 1
    assert several <= binom.ppf(0.999, 100, 0.05)
