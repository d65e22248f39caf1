"""Every registered search under law 5; several costs; what evolution finds in joint spaces."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

from ldsearch.errors import RunError
from ldsearch.search.controls import random_search
from ldsearch.search.loop import SearchResult, StrategyContext, objectives, search
from ldsearch.search.strategies import SEARCHES, Search, search_named
from ldsearch.space import DepthGenes, LengthGenes, Space
from ldsearch.subnet import WHOLE, Groups, Subnet
from ldsearch.testing.search import SearchContract, contract_costs
from ldsearch.trials.pareto import staircase_area
from ldsearch.trials.trial import Score, Trial
from tests.search.scoring import BLOCKS, DEPTHS, blocks_of, measure, worth


@pytest.mark.parametrize("name", SEARCHES)
class TestSearches(SearchContract):
    """Every shipped search; the reference's knows lengths only."""

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.name = name

    def search(self) -> Search:
        return SEARCHES[self.name]

    def spaces(self) -> Sequence[Space]:
        spaces = super().spaces()
        return [space for space in spaces if space.varies == ("lengths",)] if self.name == "lat" else spaces


@dataclass(frozen=True)
class Own:
    """Options of a strategy of one's own."""

    steps: int = 3
    share: float = 0.5
    twice: bool = False


def test_options_of_ones_own_have_the_types_of_their_defaults() -> None:
    own, none = Search(random_search, options=Own), Search(random_search)
    assert own.options_of({"steps": "4", "share": 1, "twice": "True"}) == Own(4, 1.0, twice=True)
    assert (own.options_of({}), none.options_of({})) == (Own(), None)
    for strategy, given, says in (
        (own, {"step": "4"}, "step: this strategy has steps, share, twice"),
        (own, {"steps": "many"}, "steps is of type int, not 'many'"),
        (own, {"twice": "perhaps"}, "twice is of type bool"),
        (none, {"steps": "4"}, "steps: this strategy has no options"),
    ):
        with pytest.raises(RunError, match=says):
            strategy.options_of(given)


def test_an_unknown_strategy_names_the_known_ones():
    with pytest.raises(RunError, match="surrogate, nsga, greedy, random, lat"):
        search_named("magic")


@pytest.mark.parametrize(("name", "most"), [("surrogate", 120), ("nsga", 400)])
def test_evolution_finds_planted_sub_networks_of_depth_lengths_and_groups(name, most):
    """Blocks 1 and 3 carry nothing, nor do tokens beyond a half: the knee is known."""
    lengths = LengthGenes.build(5, 16, 0.36, levels=8).widened()
    depth = DepthGenes("encoder", 5, (2, 3, 4, 5))
    space = Space("joint", "a test", (depth,), lengths, (WHOLE, Groups(ffn_share=0.5)))

    def planted(subnet: Subnet) -> float:
        stack = subnet.encoder
        score = 0.0
        for position, block in enumerate(stack.blocks):
            kept = stack.lengths.tokens[position] / 16 if stack.lengths else 1.0
            if block not in (1, 3):
                # The last length is pinned, and a half of the feed-forward units is as good as all.
                score += 1.0 if position == len(stack.blocks) - 1 else min(1.0, 2 * kept)
        return score

    evaluate = measure(planted, contract_costs)
    context = StrategyContext(space, contract_costs, 0, most)
    result = search(SEARCHES[name].build(context), evaluate, space.full(), evaluations=most, patience=None)
    best = min((t for t in result.trials if t.score.value == 3.0), key=lambda trial: trial.costs["macs"])
    perfect = min((s for s in space.enumerate() if planted(s) == 3.0), key=lambda s: contract_costs([s])[0])
    assert best.subnet.encoder.blocks == perfect.encoder.blocks == (0, 2, 4)
    assert best.costs["macs"] <= 1.1 * contract_costs([perfect])[0]


FULL = Subnet.full(BLOCKS)
# The one block of the smallest sub-network is the cheapest either way: searches ask for nothing cheaper.
FIRST_DEAR = np.append(0.1, 1.5 ** np.arange(BLOCKS - 1, 0, -1))
LAST_DEAR = np.append(0.1, FIRST_DEAR[:0:-1])


def early(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
    """Nearly all of the cost is in the first blocks."""
    return np.array([FIRST_DEAR[list(blocks_of(subnet))].sum() for subnet in subnets])


def late(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
    """Nearly all of it is in the last."""
    return np.array([LAST_DEAR[list(blocks_of(subnet))].sum() for subnet in subnets])


COSTS = {"early": early, "late": late}


def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
    return [
        Trial(s, "accuracy", Score(worth(s)), {"early": a, "late": b}, 1, "search", 0.0, "f", generation)
        for s, a, b in zip(subnets, early(subnets).tolist(), late(subnets).tolist(), strict=True)
    ]


def searched(strategy: str, most: int, *costs: str) -> SearchResult:
    first, *others = (COSTS[name] for name in costs)
    built = search_named(strategy).build(StrategyContext(DEPTHS, first, 0, 60, others=tuple(others)))
    return search(built, evaluate, FULL, evaluations=most, costs=costs, patience=None)


@pytest.mark.parametrize(("strategy", "most"), [("surrogate", 60), ("nsga", 250)])
def test_the_cost_that_is_minimised_is_the_one_that_falls(strategy: str, most: int):
    found = {name: searched(strategy, most, name).trials for name in COSTS}
    everything = evaluate(list(DEPTHS.enumerate()), 0)
    for name, other in pairwise(["early", "late", "early"]):
        low, high = COSTS[name]([DEPTHS.smallest(), FULL])
        own, others, best = (
            staircase_area([t.costs[name] for t in trials], [t.score.value for t in trials], low, high)
            for trials in (found[name], found[other], everything)
        )
        assert own > others
        assert own >= 0.97 * best


@pytest.mark.parametrize("strategy", ["surrogate", "nsga"])
def test_of_two_costs_the_frontier_is_pymoos_and_holds_both_cheap_ends(strategy: str):
    result = searched(strategy, 60, *COSTS)
    values = objectives(result.trials, [early, late])
    sorted_by_pymoo = NonDominatedSorting().do(values, only_non_dominated_front=True)
    assert {result.trials[i].subnet for i in sorted_by_pymoo} == {trial.subnet for trial in result.frontier}
    # Each alone finds the other's cheap half only by the way.
    for name in COSTS:
        assert len(result.frontier) > len(searched(strategy, 60, name).frontier)
    assert all(b >= a - 1e-12 for a, b in pairwise(result.areas))


def test_costs_of_no_trials_have_a_shape():
    assert objectives([], [early, late]).shape == (0, 3)
