"""Searches of other costs than MACs, and of several at once."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

from ldsearch.pareto import staircase_area
from ldsearch.search.loop import objectives, search
from ldsearch.search.searches import Asked, search_named
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial

BLOCKS = 10
SPACE = JointSpace(
    "depth", "", (DepthSpace("depth", "", BLOCKS, tuple(range(1, BLOCKS + 1)), (), "encoder"),)
)
FULL = Subnet.full(BLOCKS)
# The one block of the smallest sub-network is the cheapest either way: searches ask for nothing cheaper.
FIRST_DEAR = np.append(0.1, 1.5 ** np.arange(BLOCKS - 1, 0, -1))
LAST_DEAR = np.append(0.1, FIRST_DEAR[:0:-1])
WORTH = 1.0 + np.random.default_rng(3).random(BLOCKS)


def ran(subnet: Subnet) -> list[int]:
    return list(subnet.encoder.blocks) if subnet.encoder else []


def early(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
    """Nearly all of the cost is in the first blocks."""
    return np.array([FIRST_DEAR[ran(subnet)].sum() for subnet in subnets])


def late(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
    """Nearly all of it is in the last."""
    return np.array([LAST_DEAR[ran(subnet)].sum() for subnet in subnets])


def score(subnet: Subnet) -> float:
    """Every block adds its own."""
    return float(WORTH[ran(subnet)].sum())


def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
    return [
        Trial(s, "accuracy", Score(score(s)), {"early": a, "late": b}, 1, "search", 0.0, "f", generation)
        for s, a, b in zip(subnets, early(subnets).tolist(), late(subnets).tolist(), strict=True)
    ]


def asked(cost: Callable, others: tuple = (), seed: int = 0) -> Asked:
    return Asked(SPACE, cost, seed, 60, others=others)


@pytest.mark.parametrize(("strategy", "most"), [("surrogate", 60), ("nsga", 250)])
def test_the_cost_that_is_minimised_is_the_one_that_falls(strategy: str, most: int):
    found = {}
    for name, cost in (("early", early), ("late", late)):
        built = search_named(strategy).build(asked(cost))
        found[name] = search(built, evaluate, FULL, evaluations=most, costs=(name,), patience=None)
    everything = evaluate(list(SPACE.enumerate()), 0)
    for name, cost in (("early", early), ("late", late)):
        low, high = cost([SPACE.smallest(), FULL])

        def area(trials: Sequence[Trial], name: str = name, low: float = low, high: float = high) -> float:
            return staircase_area([t.costs[name] for t in trials], [t.score.value for t in trials], low, high)

        areas = {own: area(result.trials) for own, result in found.items()}
        assert areas[name] > max(own for other, own in areas.items() if other != name)
        assert areas[name] >= 0.97 * area(everything)


@pytest.mark.parametrize("strategy", ["surrogate", "nsga"])
def test_of_two_costs_the_frontier_is_pymoos_and_holds_both_cheap_ends(strategy: str):
    built = search_named(strategy).build(asked(early, (late,)))
    result = search(built, evaluate, FULL, evaluations=60, costs=("early", "late"), patience=None)
    values = objectives(result.trials, [early, late])
    sorted_by_pymoo = NonDominatedSorting().do(values, only_non_dominated_front=True)
    assert {result.trials[i].subnet for i in sorted_by_pymoo} == {trial.subnet for trial in result.frontier}
    # Each alone finds the other's cheap half only by the way.
    for name, cost in (("early", early), ("late", late)):
        alone = search_named(strategy).build(asked(cost))
        single = search(alone, evaluate, FULL, evaluations=60, costs=(name,), patience=None)
        assert len(result.frontier) > len(single.frontier)
    assert all(b >= a - 1e-12 for a, b in zip(result.areas, result.areas[1:], strict=False))


def test_two_costs_ask_the_same_thing_again_from_the_middle():
    """Proposals depend on generation and ledger only (law 5), whichever cost's turn it is."""
    ledger = evaluate([FULL], 0)
    for generation in range(4):
        first, second = (search_named(None).build(asked(early, (late,))) for _ in range(2))
        proposed = first.propose(generation, tuple(ledger))
        assert second.propose(generation, tuple(ledger)) == proposed
        known = {trial.subnet for trial in ledger}
        ledger += evaluate([subnet for subnet in proposed if subnet not in known], generation)


def test_costs_of_no_trials_have_a_shape():
    assert objectives([], [early, late]).shape == (0, 3)
