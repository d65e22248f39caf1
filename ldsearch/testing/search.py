"""The laws of a search strategy (law 5): it stays in its space, repeats nothing, ends, and has one seed."""

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ldsearch.search.loop import Ask, SearchResult, SearchStrategy, StrategyContext, search
from ldsearch.search.strategies import Search
from ldsearch.space import DepthGenes, LengthGenes, ListedDepths, Space
from ldsearch.subnet import WHOLE, Groups, Subnet
from ldsearch.trials.trial import Score, Trial

MOST = 30


class SearchContract:
    """Laws of a search strategy on every space; a test class inherits it and names the search."""

    def search(self) -> Search:
        """The registered search."""
        raise NotImplementedError

    def spaces(self) -> Sequence[Space]:
        """Lengths, depths, everything together, listed depths in two stacks, two blocks; some widened."""
        lengths = Space.of_lengths(LengthGenes.build(4, 32, 0.4, per_block=True))
        few = LengthGenes.build(2, 8, 0.5, levels=3)
        half = (WHOLE, Groups(ffn_share=0.5))
        joint = Space("joint", "the contract", (_depth(4),), lengths.lengths, half)
        listed = (ListedDepths.assigned("encoder", 4, "optimal"), _depth(3, "decoder"))
        return (
            lengths,
            Space("depth", "the contract", (_depth(5),)),
            joint,
            joint.widened(),
            Space("stacks", "the contract", listed, lengths.lengths),
            Space.of_lengths(few).widened(),
            Space("few", "the contract", (_depth(2),), few),
        )

    def test_it_stays_in_its_space_and_repeats_nothing(self) -> None:
        """And proposes nothing that is cheaper than the space's smallest, nor more than its limit."""
        for space in self.spaces():
            result = self._run(space, seed=3)
            subnets = [trial.subnet for trial in result.trials]
            assert subnets[0] == space.full(), "the full model is measured first"
            assert len(subnets) == len(set(subnets)), f"a sub-network of {space.name} was proposed twice"
            assert len(subnets) <= MOST, f"{len(subnets)} evaluations of {space.name}, {MOST} were allowed"
            assert len(subnets) > 1, f"nothing was proposed of {space.name}"
            outside = [subnet.describe() for subnet in subnets[1:] if not space.contains(subnet)]
            assert not outside, f"{outside[0]} lies outside {space.name}"
            least, smallest = contract_costs(subnets[1:]).min(), contract_costs([space.smallest()])[0]
            assert least >= smallest, f"cheaper than space.smallest() of {space.name}: {least} of {smallest}"

    def test_it_ends(self) -> None:
        """Without a limit of evaluations, where there are only few sub-networks."""
        for space in self.spaces():
            if space.size() < 100:
                strategy = self._made(space, 1, 4 * space.size())
                result = search(strategy, _evaluate, space.full(), patience=None, on_rows=lambda _: _evaluate)
                assert len(result.trials) <= space.size() + 1

    def test_proposals_depend_on_generation_and_ledger_only(self) -> None:
        """With one seed: an interrupted search goes on with another object, from the middle."""
        for space in self.spaces():
            for generation, ledger, proposed in self._generations(space):
                assert self._made(space, 3, MOST).propose(generation, ledger) == proposed

    def _generations(self, space: Space) -> Iterator[tuple[int, Sequence[Trial], Sequence[Subnet | Ask]]]:
        strategy = self._made(space, 3, MOST)
        ledger = _evaluate([space.full()], 0)
        for generation in range(2):
            proposed = strategy.propose(generation, tuple(ledger))
            yield generation, tuple(ledger), proposed
            seen = {trial.subnet for trial in ledger}
            subnets = dict.fromkeys(one.subnet if isinstance(one, Ask) else one for one in proposed)
            ledger += _evaluate([subnet for subnet in subnets if subnet not in seen], generation)

    def _made(self, space: Space, seed: int, most: int) -> SearchStrategy:
        own = self.search()
        return own.build(StrategyContext(space, contract_costs, seed, most, options=own.options_of({})))

    def _run(self, space: Space, seed: int) -> SearchResult:
        return search(
            self._made(space, seed, MOST),
            _evaluate,
            space.full(),
            evaluations=MOST,
            patience=None,
            on_rows=lambda _: _evaluate,
        )


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


def _depth(blocks: int, stack: str = "encoder") -> DepthGenes:
    return DepthGenes(stack, blocks, tuple(range(1, blocks + 1)))
