"""Climbing searches: one step in one place at a time, from the best so far.

Greedy descent goes down from the dearest sub-network; beam and swaps approximate the "Search on Valid" of
Fan, Grave & Joulin 2019, Sec. 3.2 (``rules.every_choice`` measures all), which may, as they warn, fit
the data that it chooses by.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.search.loop import StrategyContext
from ldsearch.search.rules import blocks_of, only_stack
from ldsearch.space import Space
from ldsearch.space.blocks import evenly_spaced
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Trial


class Descent:
    """Proposes every way to lower the current configuration by one step; the cheapest loss goes on.

    A step shortens one block by one level or, where the space chooses those, leaves one block out or one
    group off.

    Of the children it takes the one that loses least score for each cost that it saves (marginal analysis,
    Fox 1966): where blocks add up and each loses more with every level, every configuration on the way is the
    best of its cost. About blocks^2 * levels evaluations, of which those of a step share long prefixes. It
    needs a score that moves with every token: the divergence from the full model, not an accuracy.

    Args:
        context: Space and cost.
    """

    name = "greedy"

    def __init__(self, context: StrategyContext) -> None:
        self.context = context

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """Children of the first sub-network on the way down of which not all are measured.

        In the first generation the dearest too.
        """
        current = self.context.space.largest()
        if generation == 0:
            return [current, *self._children(current)]
        losses = {trial.subnet: trial.score.loss for trial in ledger}
        while losses.keys() >= set(children := self._children(current)):
            best = self._best(current, losses)
            if best is None:
                return []
            current = best
        return children

    def _best(self, parent: Subnet, losses: Mapping[Subnet, float]) -> Subnet | None:
        """The measured child that pays least for what it saves; of equals the one shortened first."""
        children = [child for child in self._children(parent) if not math.isnan(losses[child])]
        if not children:
            return None
        before, *after = self.context.cost([parent, *children])
        prices = [
            (losses[child] - losses[parent]) / (before - cost)
            for child, cost in zip(children, after, strict=True)
        ]
        return children[prices.index(min(prices))]

    def _children(self, parent: Subnet) -> list[Subnet]:
        """One step further down each: cheaper than the parent, and none too cheap.

        Where no step changes the cost (short inputs, of which neighbouring levels keep as many tokens), the
        steps from one of them.
        """
        while children := self.context.space.lowered(parent):
            before, *costs = self.context.cost([parent, *children])
            after, allowed = np.array(costs), self.context.allowed(children)
            cheaper, same = (np.flatnonzero(allowed & steps) for steps in (after < before, after == before))
            if len(cheaper) or not len(same):
                return [children[index] for index in cheaper]
            parent = children[same[0]]
        return []


class Beam:
    """Proposes every way to leave one more block out of the best sub-networks with as many blocks.

    Takes about width * blocks^2 / 2 evaluations down to one block, a little fewer where sub-networks lead to
    the same one (width 4: 1,050 for 24 blocks, 1,900 for 32). Width 1 is greedy backward elimination. Of two
    stacks a block of either may go.

    Depths above the least are passed through whether or not the space holds them: what may be chosen is
    what the space contains (``selectable`` of ``search``). It must run to its end (``patience=None``), since
    leaving blocks out need not gain anything.

    Args:
        context: Its space holds the depths of each stack, and nothing else.
        width: How many sub-networks of a number of blocks go on.

    Raises:
        SpaceError: If the width is below 1.
    """

    name = "beam"

    def __init__(self, context: StrategyContext, width: int = 4) -> None:
        if width < 1:
            raise SpaceError(f"a beam keeps at least one sub-network of each depth, not {width}")
        self.space = context.space
        self.width = width
        steps = (
            replace(depth, keep=tuple(range(depth.keep[0], depth.blocks + 1))) for depth in blocks_of(context)
        )
        self.steps = replace(context.space, depths=tuple(steps))

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """Sub-networks of ``blocks - generation - 1`` blocks; nothing once the least depths are measured.

        Generation 0 also names the full model, where the space holds it.
        """
        full = self.space.full()
        parents = [full] if generation == 0 else self._best(self.space.blocks - generation, ledger)
        children = [child for parent in parents for child in reversed(self.steps.lowered(parent))]
        first = [full] if generation == 0 and self.space.contains(full) else []
        return list(dict.fromkeys([*first, *children]))

    def _best(self, blocks: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The best sub-networks of so many blocks; of equal scores those with earlier blocks."""
        scored = []
        for trial in ledger:
            if self.steps.contains(trial.subnet) and not math.isnan(trial.score.loss):
                kept = [stack.blocks for stack in trial.subnet.stacks().values()]
                if sum(map(len, kept)) == blocks:
                    scored.append((trial.score.loss, kept, trial.subnet))
        return [subnet for _, _, subnet in sorted(scored, key=lambda entry: entry[:2])[: self.width]]


class Swaps:
    """Climbs, at each depth on its own, from the best of a sample by swapping one block for another.

    Every swap of the best sub-network so far is measured before the best of them takes its place
    (steepest ascent); a depth is done when none is better. One step takes up to keep * (blocks - keep)
    evaluations: 32 for 4 of 12, 144 for 12 of 24. Where blocks simply add up the end is the best of all;
    elsewhere it is one that no single swap improves.

    It must run to its end (``patience=None``): a step at one depth may show nowhere on the frontier.

    Args:
        context: The depths and pinned blocks of one stack, and the seed of the sample.
        sampled: How many random choices of each depth it starts from, with the evenly spaced one (with
            pinned blocks, the allowed one nearest to that).

    Raises:
        SpaceError: If there are two stacks, or ``sampled`` is negative.
    """

    name = "swaps"

    def __init__(self, context: StrategyContext, sampled: int = 16) -> None:
        if sampled < 0:
            raise SpaceError(f"a sample of {sampled} sub-networks at each depth makes no sense")
        self.depth = only_stack(context, self.name)
        self.seed = context.seed
        self.sampled = sampled

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The starts in generation 0; then the swaps of the best of each depth that are not measured yet."""
        if generation == 0:
            return [subnet for keep in self.depth.keep for subnet in self._starts(keep)]
        known = {trial.subnet for trial in ledger}
        swapped = [subnet for keep in self.depth.keep for subnet in self._swapped(keep, ledger)]
        return [subnet for subnet in swapped if subnet not in known]

    def _starts(self, keep: int) -> list[Subnet]:
        """The evenly spaced choice of a depth and distinct random ones, all choices where they are few."""
        space = self._space(keep)
        even = evenly_spaced(self.depth.blocks, keep)
        gene = [int(block in even) for block in range(self.depth.blocks)]
        first = space.decode(space.repair([*gene, *[0] * len(gene)]))
        if space.size() <= self.sampled + 1:
            return list(dict.fromkeys([first, *space.enumerate()]))
        rng = np.random.default_rng([self.seed, keep])
        starts = {first: None}
        while len(starts) <= self.sampled:
            starts[space.sample(rng)] = None
        return list(starts)

    def _swapped(self, keep: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """Every exchange of a block that runs for one that does not, in the best sub-network of a depth."""
        space, stack = self._space(keep), self.depth.stack
        scored = [
            (trial.score.loss, trial.subnet.stacks()[stack].blocks)
            for trial in ledger
            if space.contains(trial.subnet) and not math.isnan(trial.score.loss)
        ]
        if not scored:
            return []
        best = min(scored)[1]  # of equal scores the one with earlier blocks
        spare = [block for block in range(self.depth.blocks) if block not in best]
        return [
            Subnet.of_blocks({stack: sorted({*best, new} - {old})})
            for old in best
            if old not in self.depth.pinned
            for new in spare
        ]

    def _space(self, keep: int) -> Space:
        return Space("swaps", "one depth", (replace(self.depth, keep=(keep,)),))
