"""Search on validation data where there are too many choices: a sample, then swaps of single blocks."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.search.every_other import every_other
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

Blocks = tuple[int, ...]


class Swaps:
    """Climbs, at each depth on its own, from the best of a sample by swapping one block for another.

    Approximates the "Search on Valid" of Fan, Grave & Joulin 2019, Sec. 3.2 (``Validation`` measures every
    choice). Every swap of the best sub-network so far is measured before the best of them takes its place
    (steepest ascent); a depth is done when none is better. One step takes up to keep * (blocks - keep)
    evaluations: 32 for 4 of 12, 144 for 12 of 24. Where blocks simply add up the end is the best of all;
    elsewhere it is one that no single swap improves.

    It must run to its end (``patience=None``): a step at one depth may show nowhere on the frontier.

    Args:
        space: Names the depths.
        seed: Of the sample.
        sampled: How many random choices of each depth it starts from, beside the evenly spaced one (with
            pinned blocks, the allowed one nearest to that).

    Raises:
        SpaceError: If ``sampled`` is negative.
    """

    name = "swaps"

    def __init__(self, space: DepthSpace, seed: int = 0, sampled: int = 16) -> None:
        if sampled < 0:
            raise SpaceError(f"a sample of {sampled} sub-networks at each depth makes no sense")
        self.space = space
        self.seed = seed
        self.sampled = sampled

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The starts in generation 0; then the swaps of the best of each depth that are not measured yet."""
        levels = [replace(self.space, keep=(depth,)) for depth in self.space.keep]
        if generation == 0:
            return [subnet for level in levels for subnet in self._starts(level)]
        known = {trial.subnet for trial in ledger}
        swapped = [subnet for level in levels for subnet in self._swapped(level, ledger)]
        return [subnet for subnet in swapped if subnet not in known]

    def _starts(self, level: DepthSpace) -> list[Subnet]:
        """The evenly spaced choice of a depth and distinct random ones, all choices where they are few."""
        even = every_other(level.blocks, level.keep[0])
        first = level.decode(level.repair([int(block in even) for block in range(level.blocks)]))
        if level.size() <= self.sampled + 1:
            return list(dict.fromkeys([first, *level.enumerate()]))
        rng = np.random.default_rng([self.seed, level.keep[0]])
        starts = {first: None}
        while len(starts) <= self.sampled:
            starts[level.sample(rng)] = None
        return list(starts)

    def _swapped(self, level: DepthSpace, ledger: Sequence[Trial]) -> list[Subnet]:
        """Every exchange of a block that runs for one that does not, in the best sub-network of a depth."""
        scored = [
            (trial.score.loss, trial.subnet.stacks()[level.stack].blocks)
            for trial in ledger
            if level.contains(trial.subnet) and not math.isnan(trial.score.loss)
        ]
        if not scored:
            return []
        best: Blocks = min(scored)[1]  # of equal scores the one with earlier blocks
        spare = [block for block in range(level.blocks) if block not in best]
        return [
            Subnet.of_blocks({level.stack: sorted({*best, new} - {old})})
            for old in best
            if old not in level.pinned
            for new in spare
        ]
