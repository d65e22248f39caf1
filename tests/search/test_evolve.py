"""Evolution with and without a surrogate: its first population, its children, what it saves, its ends."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.search import loop
from ldsearch.search.climbing import Descent
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.evolve import EXPLORED, MEASURED, Evolve, Surrogate, fit_process, latent, most_area
from ldsearch.search.loop import EvolveSettings, StrategyContext, objectives, search
from ldsearch.search.reference import Reference
from ldsearch.space import LengthGenes, Space, load_space
from ldsearch.trials.pareto import staircase_area
from ldsearch.trials.trial import Score
from tests.search.scoring import measure, tokens_of

DEMO = load_space("demo")
COST = Macs(EncoderShape(6, 128, 512), Workload.from_lengths([64, 40, 13], 64))
CONTEXT = StrategyContext(DEMO, COST)
SPACE = Space.of_lengths(LengthGenes.build(5, 64, 0.4))
COST5 = Macs(EncoderShape(5, 128, 512), Workload.from_lengths([64, 40, 13], 64))
LOW, HIGH = COST5([SPACE.smallest(), SPACE.full()])


def test_the_initial_population_spreads_its_costs_evenly_between_the_ends():
    line = constant_ratio_line(CONTEXT, 22)
    shares = COST(line) / COST([DEMO.full()])
    assert (line[0], line[-1]) == (DEMO.smallest(), DEMO.largest())
    assert len(line) >= 18  # the grid cannot tell all 22 apart
    assert 0 < np.diff(shares).min() < np.diff(shares).max() < 0.06


def test_a_search_stops_when_it_stands_still_or_at_its_evaluations_and_says_so():
    still = search(Evolve(CONTEXT), measure(lambda s: 0.5, COST), DEMO.full(), evaluations=10_000)
    assert still.stopped == "converged"
    assert len(still.trials) < 200
    rng = np.random.default_rng(0)
    noise = measure(lambda s: float(rng.random()), COST)
    result = search(Evolve(CONTEXT), noise, DEMO.full(), evaluations=47)
    assert (len(result.trials), result.stopped) == (47, "evaluations")
    assert len(result.areas) == 1 + max(trial.generation for trial in result.trials)
    with pytest.raises(ValueError, match="at least one"):
        search(Evolve(CONTEXT), noise, DEMO.full(), evaluations=0)


def test_a_search_out_of_time_ends_within_a_generation_and_goes_on_as_if_it_had_not(monkeypatch):
    evaluate = measure(lambda s: tokens_of(s)[1] / 64, COST)
    whole = search(Evolve(CONTEXT), evaluate, DEMO.full(), evaluations=60)

    def until(look: int) -> loop.SearchResult:
        """Its clock strikes at that look."""
        monkeypatch.setattr(loop.time, "monotonic", itertools.count().__next__)
        return search(Evolve(CONTEXT), evaluate, DEMO.full(), evaluations=60, deadline=look)

    for result, trials in ((until(0), 17), (until(1), len(constant_ratio_line(CONTEXT, 22)) + 1)):
        assert (result.stopped, len(result.trials)) == ("time", trials)
        assert result.trials == whole.trials[:trials]
    assert until(99).trials == whole.trials


def test_of_a_full_model_that_is_anothers_a_strategy_does_not_learn():
    seen = []

    class Looks(Evolve):
        def propose(self, generation, ledger):
            seen.extend(trial.subnet for trial in ledger)
            return super().propose(generation, ledger)

    evaluate = measure(lambda s: 0.5, COST)
    for foreign in (False, True):
        seen.clear()
        result = search(Looks(CONTEXT), evaluate, DEMO.full(), evaluations=60, foreign=foreign)
        assert result.trials[0].subnet == DEMO.full()
        assert (DEMO.full() in seen) is not foreign
        assert len({*seen}) > 10


def test_a_strategy_that_descends_does_not_stand_still_before_the_smallest():
    """Every generation reaches a new cheapest sub-network, and scores fall with the cost."""
    evaluate = measure(lambda s: float(COST([s])[0]), COST)
    result = search(Descent(CONTEXT), evaluate, DEMO.full())
    assert DEMO.smallest() in {trial.subnet for trial in result.trials}


def test_areas_are_of_one_cost_range_and_never_fall():
    rng = np.random.default_rng(0)
    kept = []
    noise = measure(lambda s: float(rng.random()), COST)
    strategy = Descent(StrategyContext(SPACE, COST5))
    how = {"patience": None, "on_generation": lambda result: kept.append(list(result.areas))}
    result = search(strategy, noise, SPACE.full(), **how)
    assert len(kept) > 10
    assert all(np.diff(areas).min(initial=0) >= 0 for areas in kept)
    costs = [trial.costs["macs"] for trial in result.trials]
    scores = [trial.score.value for trial in result.trials]
    assert result.areas[-1] == pytest.approx(staircase_area(costs, scores, min(costs), costs[0]))


def test_whether_a_search_stands_still_does_not_depend_on_the_unit_of_its_score():
    ends = set()
    for scale in (1e-3, 1e4):
        evaluate = measure(lambda s, scale=scale: scale * math.sqrt(sum(tokens_of(s))), COST)
        result = search(Evolve(CONTEXT), evaluate, DEMO.full(), evaluations=2_000)
        ends.add((result.stopped, len(result.trials)))
    assert [stopped for stopped, _ in ends] == ["converged"]


def test_nan_scores_neither_stop_the_search_nor_reach_the_frontier():
    evaluate = measure(lambda s: math.nan if tokens_of(s)[0] > 60 else tokens_of(s)[2] / 64, COST)
    result = search(Evolve(CONTEXT), evaluate, DEMO.full(), evaluations=120)
    assert len(result.trials) == 120
    assert not any(math.isnan(trial.score.value) for trial in result.frontier)


@pytest.mark.parametrize("strategy", [Evolve, Surrogate, Reference])
def test_of_a_small_space_everything_that_is_dear_enough_is_measured(strategy):
    for blocks, pin_last in ((1, True), (2, False), (3, True)):
        space = Space.of_lengths(LengthGenes.build(blocks, 8, 0.5, levels=4, pin_last=pin_last)).widened()
        cost = Macs(EncoderShape(blocks, 16, 32), Workload.padded(8))
        evaluate = measure(lambda s: float(sum(tokens_of(s, 8)) % 5), cost)
        result = search(strategy(StrategyContext(space, cost)), evaluate, space.full(), patience=None)
        least = cost([space.smallest()])[0]
        dear_enough = {subnet for subnet in space.enumerate() if cost([subnet])[0] >= least}
        assert {trial.subnet for trial in result.trials} == {space.full(), *dear_enough}
        assert result.stopped == "exhausted"


def test_parity_makes_sixty_children():
    strategy = Evolve(replace(CONTEXT, settings=EvolveSettings.parity()))
    ledger = measure(lambda s: tokens_of(s)[0] / 64, COST)([DEMO.full(), *strategy.propose(0, ())], 0)
    assert len(strategy.propose(1, ledger)) == 60


def surrogate(seed: int = 0) -> Surrogate:
    return Surrogate(StrategyContext(SPACE, COST5, seed))


def planted(subnet) -> float:
    """Additive over blocks, each with diminishing returns; two of them matter little."""
    shares = np.array(tokens_of(subnet)) / 64
    return float(np.array([1, 0.2, 3, 0.1, 0]) @ (1 - np.exp(-3 * shares)))


def started(score=planted):
    return measure(score, COST5)([SPACE.full(), *surrogate().propose(0, ())], 0)


def area(trials) -> float:
    values = objectives(trials, [COST5])
    return staircase_area(values[:, 0], -values[:, 1], LOW, HIGH)


def test_a_surrogate_is_nearer_to_the_true_frontier_than_evolution_with_twice_the_evaluations():
    evaluate = measure(planted, COST5)
    truth, line = area(evaluate(list(SPACE.enumerate()), 0)), area(started())
    for seed in range(3):
        ours = search(surrogate(seed), evaluate, SPACE.full(), evaluations=50)
        evolution = Evolve(StrategyContext(SPACE, COST5, seed))
        theirs = search(evolution, evaluate, SPACE.full(), evaluations=100)
        assert len(ours.trials) == 50
        assert area(ours.trials) > area(theirs.trials)
        # At least three quarters of what there is to be won over constant ratio.
        assert (area(ours.trials) - line) / (truth - line) > 0.75


def test_what_has_no_score_is_not_learned_from():
    def score(subnet) -> float:
        return math.nan if subnet == SPACE.largest() else planted(subnet)

    pool = [SPACE.sample(np.random.default_rng(i)) for i in range(40)]
    without = [trial for trial in started(score) if trial.subnet != SPACE.largest()]
    strategy = surrogate()
    strategy.evolution.children = lambda *_: pool  # of the same children
    assert strategy.propose(1, started(score)) == strategy.propose(1, without)


def test_a_lower_is_better_score_leads_to_the_same_children():
    ledger = started()
    flipped = [replace(trial, score=Score(-trial.score.value, False)) for trial in ledger]
    assert surrogate().propose(1, flipped) == surrogate().propose(1, ledger)


def test_each_choice_adds_most_area_given_those_before():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        costs, promised = rng.uniform(0.1, 1, 20), rng.random(20)
        known_costs, known_scores = np.append(rng.uniform(0.1, 1, 6), 0.1), np.append(rng.random(6), 0.0)
        found = most_area(costs, promised, known_costs, known_scores, 1.0, MEASURED - EXPLORED)

        def with_these(taken, known=(known_costs, known_scores), pool=(costs, promised)):
            return staircase_area(*(np.append(a, b[taken]) for a, b in zip(known, pool, strict=True)), 0.1, 1)

        for position in range(len(found)):
            areas = [with_these([*found[:position], i]) for i in range(20)]
            assert found[position] == int(np.argmax(areas))
        best = max(with_these([*found, i]) for i in range(20))
        assert len(found) == MEASURED - EXPLORED or best == pytest.approx(with_these(found))


def matern(one: np.ndarray, other: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Rasmussen & Williams 2006, eq. 4.17: Matern of 5/2."""
    distance = np.sqrt(5 * (((one[:, None] - other[None]) / lengths) ** 2).sum(axis=-1))
    return (1 + distance + distance**2 / 3) * np.exp(-distance)


def test_what_is_promised_has_no_noise_in_it():
    """The posterior in closed form, with the kernel that was fitted, at measured points and at new ones."""
    rng = np.random.default_rng(0)
    known, new = rng.random((40, 3)), rng.random((15, 3))
    scores = 0.8 + 0.05 * known @ [1, 0.5, 0] + 0.02 * rng.standard_normal(40)
    process = fit_process(known, scores)
    signal, noise = process.kernel_.k1, process.kernel_.k2.noise_level
    assert noise > 0.05  # of a variance of 1: there is noise to leave out
    size, lengths, unit = signal.k1.constant_value, signal.k2.length_scale, scores.std()
    inverse = np.linalg.inv(size * matern(known, known, lengths) + noise * np.eye(40))
    for points in (known, new):
        cross = size * matern(points, known, lengths)
        mean, deviation = latent(process, points)
        assert mean == pytest.approx(scores.mean() + cross @ inverse @ (scores - scores.mean()))
        variance = size - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        assert deviation == pytest.approx(unit * np.sqrt(variance), rel=1e-4)
        with_noise = process.predict(points, return_std=True)[1]
        assert with_noise == pytest.approx(unit * np.sqrt(variance + noise), rel=1e-4)


def test_what_was_measured_without_noise_promises_nothing_more():
    known = np.random.default_rng(1).random((40, 3))
    scores = np.sin(known @ [1, 2, 3])
    mean, deviation = latent(fit_process(known, scores), known)
    assert mean == pytest.approx(scores, abs=0.01 * scores.std())
    assert deviation.max() < 0.005 * scores.std()


def test_the_best_of_noisy_scores_hides_no_gain():
    """One score is lucky by ten deviations of the noise: it is no bar that children have to pass."""
    lucky = replace(started()[5], score=Score(planted(SPACE.largest()) + 1.0))
    ledger = [lucky if trial.subnet == lucky.subnet else trial for trial in started()]
    features = np.array([SPACE.features(t.subnet) for t in ledger[1:]])
    scores = np.array([t.score.value for t in ledger[1:]])
    best, _ = surrogate()._predicted(features, scores, features)
    place = [t.subnet for t in ledger[1:]].index(lucky.subnet)
    truth = planted(lucky.subnet)
    assert abs(best[place] - truth) < 0.5 * abs(scores[place] - truth)
