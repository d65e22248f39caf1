"""Surrogate-assisted evolution: its laws, its choice of children, and what it saves on a planted score."""

import math

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.pareto import staircase_area
from ldsearch.search.evolve import Evolve
from ldsearch.search.loop import objectives, search
from ldsearch.search.surrogate import EXPLORED, MEASURED, Surrogate, most_area
from ldsearch.space import LengthSpace
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload

SPACE = LengthSpace.build(5, 64, 0.4)
COST = Macs(EncoderShape(5, 128, 512), Workload.from_lengths([64, 40, 13], 64))
LOW, HIGH = COST([SPACE.smallest(), SPACE.full()])


def planted(subnet) -> float:
    """Additive over blocks, each with diminishing returns; two of them matter little."""
    lengths = subnet.encoder.lengths
    shares = np.array(lengths.tokens if lengths else (64,) * 5) / 64
    return float(np.array([1, 0.2, 3, 0.1, 0]) @ (1 - np.exp(-3 * shares)))


def measure(score, cost=COST):
    def evaluate(subnets, generation):
        return [
            Trial(s, "accuracy", Score(score(s)), {"macs": float(c)}, 1, "search", 0.0, "f", generation)
            for s, c in zip(subnets, cost(subnets), strict=True)
        ]

    return evaluate


def started(score=planted):
    strategy = Surrogate(SPACE, COST, seed=0)
    return measure(score)([SPACE.full(), *strategy.propose(0, ())], 0)


def area(trials) -> float:
    values = objectives(trials, [COST])
    return staircase_area(values[:, 0], -values[:, 1], LOW, HIGH)


def test_it_is_nearer_to_the_true_frontier_than_evolution_with_twice_the_evaluations():
    evaluate = measure(planted)
    truth, line = area(evaluate(list(SPACE.enumerate()), 0)), area(started())
    for seed in range(5):
        ours = search(Surrogate(SPACE, COST, seed), evaluate, SPACE.full(), evaluations=50)
        theirs = search(Evolve(SPACE, COST, seed), evaluate, SPACE.full(), evaluations=100)
        assert len(ours.trials) == 50
        assert area(ours.trials) > area(theirs.trials)
        # At least three quarters of what there is to be won over constant ratio.
        assert (area(ours.trials) - line) / (truth - line) > 0.75


def test_a_generation_is_new_in_the_space_and_in_no_other_order_of_calls_another():
    ledger = started()
    first, second = Surrogate(SPACE, COST, seed=0), Surrogate(SPACE, COST, seed=0)
    asked = {generation: first.propose(generation, ledger) for generation in (1, 2)}
    assert {generation: second.propose(generation, ledger) for generation in (2, 1)} == asked
    for proposals in asked.values():
        assert len(set(proposals)) == MEASURED
        assert all(SPACE.contains(subnet) for subnet in proposals)
        assert not set(proposals) & {trial.subnet for trial in ledger}
    assert asked[1] != asked[2]
    assert Surrogate(SPACE, COST, seed=1).propose(1, ledger) != asked[1]


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_small_space_is_measured_once_and_ends(blocks):
    space = LengthSpace.build(blocks, 8, 0.5, levels=4)
    cost = Macs(EncoderShape(blocks, 16, 32), Workload.padded(8))
    result = search(Surrogate(space, cost, seed=0), measure(lambda s: 0.0, cost), space.full())
    assert {trial.subnet for trial in result.trials} == {space.full(), *space.enumerate()}
    assert result.stopped == "exhausted"


def test_what_has_no_score_is_not_learned_from():
    def score(subnet):
        return math.nan if subnet == SPACE.largest() else planted(subnet)

    without = [trial for trial in started(score) if trial.subnet != SPACE.largest()]
    strategy = Surrogate(SPACE, COST, seed=0)
    strategy.evolution.children = lambda *_: POOL  # of the same children
    assert strategy.propose(1, started(score)) == strategy.propose(1, without)


POOL = [SPACE.sample(np.random.default_rng(i)) for i in range(40)]


def test_a_lower_is_better_score_leads_to_the_same_children():
    def flipped(trial):
        return Trial(trial.subnet, "loss", Score(-trial.score.value, False), trial.costs, 1, "s", 0.0, "f")

    ledger = started()
    strategy = Surrogate(SPACE, COST, seed=0)
    assert strategy.propose(1, [flipped(trial) for trial in ledger]) == strategy.propose(1, ledger)


@pytest.mark.parametrize("seed", range(5))
def test_each_choice_adds_most_area_given_those_before(seed):
    rng = np.random.default_rng(seed)
    costs, promised = rng.uniform(0.1, 1, 20), rng.random(20)
    known_costs, known_scores = np.append(rng.uniform(0.1, 1, 6), 0.1), np.append(rng.random(6), 0.0)
    found = most_area(costs, promised, known_costs, known_scores, 1.0, MEASURED - EXPLORED)

    def with_these(taken):
        return staircase_area(
            np.append(known_costs, costs[taken]), np.append(known_scores, promised[taken]), 0.1, 1.0
        )

    for position in range(len(found)):
        areas = [with_these([*found[:position], i]) for i in range(20)]
        assert found[position] == int(np.argmax(areas))
    left = [i for i in range(20) if i not in found]
    assert len(found) == MEASURED - EXPLORED or max(with_these([*found, i]) for i in left) == pytest.approx(
        with_these(found)
    )
