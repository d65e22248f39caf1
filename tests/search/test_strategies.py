"""Every registered search under law 5; several costs; what evolution finds in joint spaces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

from ldsearch.errors import RunError, SpaceError
from ldsearch.search.controls import random_search
from ldsearch.search.loop import StrategyContext, objectives, search
from ldsearch.search.strategies import SEARCHES, Search, search_named
from ldsearch.space import DepthGenes, LengthGenes, Space
from ldsearch.subnet import WHOLE, Groups, Subnet
from ldsearch.testing.search import SearchContract, contract_costs
from ldsearch.trials.pareto import staircase_area
from ldsearch.trials.trial import Score, Trial
from tests.search.scoring import measure


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
    own = Search(random_search, options=Own)
    assert own.options_of({}) == Own()
    assert own.options_of({"steps": "4", "twice": "True"}) == Own(4, twice=True)
    assert own.options_of({"share": 1}) == Own(share=1.0)
    for given, says in (
        ({"step": "4"}, "step: this strategy has steps, share, twice"),
        ({"steps": "many"}, "steps is of type int, not 'many'"),
        ({"twice": "perhaps"}, "twice is of type bool"),
    ):
        with pytest.raises(RunError, match=says):
            own.options_of(given)
    assert Search(random_search).options_of({}) is None
    with pytest.raises(RunError, match="steps: this strategy has no options"):
        Search(random_search).options_of({"steps": "4"})


def test_lat_refuses_other_genes_than_lengths():
    space = Space("d", "a test", (DepthGenes("encoder", 4, (2, 3)),))
    with pytest.raises(SpaceError, match="lengths only"):
        search_named("lat").build(StrategyContext(space, contract_costs, 0, 10))


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


BLOCKS = 10
SPACE = Space("depth", "", (DepthGenes("encoder", BLOCKS, tuple(range(1, BLOCKS + 1))),))
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


def context(cost: Callable, others: tuple = ()) -> StrategyContext:
    return StrategyContext(SPACE, cost, 0, 60, others=others)


@pytest.mark.parametrize(("strategy", "most"), [("surrogate", 60), ("nsga", 250)])
def test_the_cost_that_is_minimised_is_the_one_that_falls(strategy: str, most: int):
    found = {}
    for name, cost in (("early", early), ("late", late)):
        built = search_named(strategy).build(context(cost))
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
    built = search_named(strategy).build(context(early, (late,)))
    result = search(built, evaluate, FULL, evaluations=60, costs=("early", "late"), patience=None)
    values = objectives(result.trials, [early, late])
    sorted_by_pymoo = NonDominatedSorting().do(values, only_non_dominated_front=True)
    assert {result.trials[i].subnet for i in sorted_by_pymoo} == {trial.subnet for trial in result.frontier}
    # Each alone finds the other's cheap half only by the way.
    for name, cost in (("early", early), ("late", late)):
        alone = search_named(strategy).build(context(cost))
        single = search(alone, evaluate, FULL, evaluations=60, costs=(name,), patience=None)
        assert len(result.frontier) > len(single.frontier)
    assert all(b >= a - 1e-12 for a, b in zip(result.areas, result.areas[1:], strict=False))


def test_costs_of_no_trials_have_a_shape():
    assert objectives([], [early, late]).shape == (0, 3)
