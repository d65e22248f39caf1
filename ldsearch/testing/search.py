"""The laws of a search strategy (law 5): it stays in its space, repeats nothing, ends, and has one seed."""

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ldsearch.search.loop import SearchResult, SearchStrategy, search
from ldsearch.search.searches import Asked, Search
from ldsearch.space import EvolvingSpace
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.lengths import LengthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import WHOLE, Groups, Subnet
from ldsearch.trial import Score, Trial

MOST = 30


class SearchContract:
    """What a search strategy keeps on every space; a test class inherits it and says which search it is."""

    def search(self) -> Search:
        """What is registered."""
        raise NotImplementedError

    def spaces(self) -> Sequence[EvolvingSpace]:
        """Lengths, depths, everything together, two stacks, and two blocks only."""
        lengths = LengthSpace.build(4, 32, 0.4).widened()
        few = LengthSpace.build(2, 8, 0.5, levels=3).widened()
        half = (WHOLE, Groups(ffn_share=0.5))
        return (
            lengths,
            JointSpace("depth", "the contract", (_depth(5),)),
            JointSpace("joint", "the contract", (_depth(4),), lengths, half),
            JointSpace("stacks", "the contract", (_depth(3), _depth(4, "decoder"))),
            few,
            JointSpace("few", "the contract", (_depth(2),), few),
        )

    def test_it_stays_in_its_space_and_repeats_nothing(self) -> None:
        """And proposes nothing that is cheaper than the space's smallest, nor more than it was told."""
        for space in self.spaces():
            result = self._run(space, seed=3)
            asked = [trial.subnet for trial in result.trials]
            assert asked[0] == space.full()
            assert len(asked) == len(set(asked)) <= MOST
            assert len(asked) > 1, f"nothing was proposed of {space.name}"
            assert all(space.contains(subnet) for subnet in asked[1:])
            assert contract_costs(asked[1:]).min() >= contract_costs([space.smallest()])[0]

    def test_it_ends(self) -> None:
        """Without a limit of evaluations, where there are only few sub-networks."""
        for space in self.spaces():
            if space.size() < 100:
                result = search(
                    self._made(space, 1, 4 * space.size()), _evaluate, space.full(), patience=None
                )
                assert len(result.trials) <= space.size() + 1

    def test_one_seed_asks_one_thing(self) -> None:
        """From new, and whatever was asked in between."""
        for space in self.spaces():
            first, _, again = (self._run(space, seed) for seed in (3, 4, 3))
            assert [trial.subnet for trial in first.trials] == [trial.subnet for trial in again.trials]

    def test_proposals_depend_on_generation_and_ledger_only(self) -> None:
        """An interrupted search goes on by asking again: with another object, from the middle."""
        for space in self.spaces():
            for generation, ledger, proposed in self._generations(space):
                assert self._made(space, 3, MOST).propose(generation, ledger) == proposed

    def _generations(self, space: EvolvingSpace) -> Iterator[tuple[int, Sequence[Trial], list[Subnet]]]:
        strategy = self._made(space, 3, MOST)
        ledger = _evaluate([space.full()], 0)
        for generation in range(3):
            proposed = strategy.propose(generation, tuple(ledger))
            yield generation, tuple(ledger), proposed
            seen = {trial.subnet for trial in ledger}
            ledger += _evaluate([subnet for subnet in dict.fromkeys(proposed) if subnet not in seen], 0)

    def _made(self, space: EvolvingSpace, seed: int, most: int) -> SearchStrategy:
        return self.search().build(Asked(space, contract_costs, seed, most))

    def _run(self, space: EvolvingSpace, seed: int) -> SearchResult:
        return search(self._made(space, seed, MOST), _evaluate, space.full(), evaluations=MOST, patience=None)


def contract_costs(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
    """A cost that falls with every block, token and feed-forward unit that goes."""
    return np.array([_cost(subnet) for subnet in subnets])


def _cost(subnet: Subnet) -> float:
    cost = 0.0
    for stack in subnet.stacks().values():
        for position, block in enumerate(stack.blocks):
            kept = stack.lengths.tokens[position] / stack.lengths.reference if stack.lengths else 1.0
            cost += 1 + kept + kept * stack.groups(block).ffn_share
    return cost


def _evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
    """A score that rises with the cost and bumps, so that neighbours differ and ties occur."""
    costs = contract_costs(subnets)
    bumps = [zlib.crc32(subnet.to_json().encode()) % 7 / 10 for subnet in subnets]
    values = [round(cost + bump, 1) for cost, bump in zip(costs, bumps, strict=True)]
    return [
        Trial(subnet, "accuracy", Score(value), {"macs": cost}, 1, "search", 0.0, "f", generation)
        for subnet, cost, value in zip(subnets, costs, values, strict=True)
    ]


def _depth(blocks: int, stack: str = "encoder") -> DepthSpace:
    return DepthSpace("depth", "the contract", blocks, tuple(range(1, blocks + 1)), (), stack)
