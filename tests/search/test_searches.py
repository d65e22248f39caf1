"""Every registered search under law 5; searches of one's own; what evolution finds in joint spaces."""

from collections.abc import Sequence

import numpy as np
import pytest

from ldsearch.errors import RunError, SpaceError
from ldsearch.search.loop import search
from ldsearch.search.searches import SEARCHES, Asked, Search, search_named
from ldsearch.space import EvolvingSpace
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.lengths import LengthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import WHOLE, Groups, Subnet
from ldsearch.testing.search import SearchContract, contract_costs
from ldsearch.trial import Score, Trial


@pytest.mark.parametrize("name", SEARCHES)
class TestSearches(SearchContract):
    """Every shipped search; the reference's knows lengths only."""

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.name = name

    def search(self) -> Search:
        return SEARCHES[self.name]

    def spaces(self) -> Sequence[EvolvingSpace]:
        spaces = super().spaces()
        return [one for one in spaces if isinstance(one, LengthSpace)] if self.name == "lat" else spaces


def test_the_contract_notices_a_strategy_that_leaves_its_space():
    class Astray:
        name = "astray"

        def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
            return [Subnet.of_encoder([0, 7])] if generation == 0 else []

    class Broken(SearchContract):
        def search(self) -> Search:
            return Search(lambda asked: Astray())

    with pytest.raises(AssertionError):
        Broken().test_it_stays_in_its_space_and_repeats_nothing()


def test_the_contract_notices_a_strategy_that_remembers():
    class Forgetful:
        name = "forgetful"

        def __init__(self, space: EvolvingSpace) -> None:
            self.rng, self.space = np.random.default_rng(0), space

        def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
            return [self.space.sample(self.rng)]

    class Broken(SearchContract):
        def search(self) -> Search:
            return Search(lambda asked: Forgetful(asked.space))

    with pytest.raises(AssertionError):
        Broken().test_proposals_depend_on_generation_and_ledger_only()


def test_lat_refuses_other_genes_than_lengths():
    space = JointSpace("d", "a test", (DepthSpace("d", "a test", 4, (2, 3)),))
    with pytest.raises(SpaceError, match="lengths only"):
        search_named("lat").build(Asked(space, contract_costs, 0, 10))


def test_an_unknown_strategy_names_the_known_ones():
    with pytest.raises(RunError, match="surrogate, nsga, greedy, random, lat"):
        search_named("magic")


@pytest.mark.parametrize(("name", "most"), [("surrogate", 120), ("nsga", 400)])
def test_evolution_finds_planted_sub_networks_of_depth_lengths_and_groups(name, most):
    """Blocks 1 and 3 carry nothing, nor do tokens beyond a half: the knee is known."""
    lengths = LengthSpace.build(5, 16, 0.36, levels=8).widened()
    depth = DepthSpace("d", "a test", 5, (2, 3, 4, 5))
    space = JointSpace("joint", "a test", (depth,), lengths, (WHOLE, Groups(ffn_share=0.5)))

    def planted(subnet: Subnet) -> float:
        stack = subnet.encoder
        score = 0.0
        for position, block in enumerate(stack.blocks):
            kept = stack.lengths.tokens[position] / 16 if stack.lengths else 1.0
            if block not in (1, 3):
                # The last length is pinned, and a half of the feed-forward units is as good as all.
                score += 1.0 if position == len(stack.blocks) - 1 else min(1.0, 2 * kept)
        return score

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        costs = contract_costs(subnets)
        return [
            Trial(s, "planted", Score(planted(s)), {"macs": c}, 1, "search", 0.0, "f", generation)
            for s, c in zip(subnets, costs, strict=True)
        ]

    asked = Asked(space, contract_costs, 0, most)
    result = search(SEARCHES[name].build(asked), evaluate, space.full(), evaluations=most, patience=None)
    best = min((t for t in result.trials if t.score.value == 3.0), key=lambda trial: trial.costs["macs"])
    perfect = min((s for s in space.enumerate() if planted(s) == 3.0), key=lambda s: contract_costs([s])[0])
    assert best.subnet.encoder.blocks == perfect.encoder.blocks == (0, 2, 4)
    assert best.costs["macs"] <= 1.1 * contract_costs([perfect])[0]
