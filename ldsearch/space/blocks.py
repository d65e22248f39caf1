"""Choices of blocks of one stack as a search space."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.space.lengths import Gene
from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class DepthSpace:
    """Which blocks of a stack run; every length is full. A gene holds one 0 or 1 per block.

    Args:
        name: For reports.
        source: The paper or the reason for the ranges.
        blocks: Number of blocks of the model.
        keep: The allowed numbers of executed blocks, ascending, those of pinned blocks included.
        pinned: Blocks that always run (``Supernet.pinned``).
        stack: ``"encoder"``, or ``"decoder"`` for a causal language model.

    Raises:
        SpaceError: If a depth or a pinned block is not there, or a depth is below the number of pinned ones.
    """

    name: str
    source: str
    blocks: int
    keep: tuple[int, ...]
    pinned: tuple[int, ...] = ()
    stack: str = "encoder"

    def __post_init__(self) -> None:
        if list(self.pinned) != sorted({*self.pinned} & {*range(self.blocks)}):
            raise SpaceError(f"pinned blocks {list(self.pinned)} must be ascending ids below {self.blocks}")
        least = max(1, len(self.pinned))
        if not self.keep or not all(least <= count <= self.blocks for count in self.keep):
            pinned = f", since {least} blocks are pinned" if least > 1 else ""
            raise SpaceError(f"keep {list(self.keep)} must name depths in {least}..{self.blocks}{pinned}")

    def full(self) -> Subnet:
        """All blocks."""
        return Subnet.full(**{self.stack: self.blocks})

    def smallest(self) -> Subnet:
        """The pinned and the first blocks, at the least depth (blocks are alike, so any of that depth)."""
        return self.decode(self._nearest((), self.keep[0]))

    def largest(self) -> Subnet:
        """The pinned and the first blocks, at the greatest allowed depth."""
        return self.decode(self._nearest((), self.keep[-1]))

    def regular(self) -> list[Subnet]:
        """Evenly spaced blocks of every depth; pinned ones take the place of the last others."""
        evens = ({*evenly_spaced(self.blocks, keep), *self.pinned} for keep in self.keep)
        return [self.decode(self._nearest(even, keep)) for even, keep in zip(evens, self.keep, strict=True)]

    def contains(self, subnet: Subnet) -> bool:
        """Whether only whole blocks are missing, none of them pinned, and their number is allowed."""
        stacks = subnet.stacks()
        stack = stacks.get(self.stack)
        return (
            len(stacks) == 1
            and stack is not None
            and not stack.structured
            and stack.lengths is None
            and len(stack.blocks) in self.keep
            and stack.blocks[-1] < self.blocks
            and set(self.pinned) <= set(stack.blocks)
        )

    def size(self) -> int:
        """The sum of the binomials over the blocks that are not pinned."""
        return sum(self._ways(count) for count in self.keep)

    def enumerate(self) -> Iterator[Subnet]:
        """Every allowed choice of blocks, shallow first."""
        for count in self.keep:
            for blocks in itertools.combinations(self._free, count - len(self.pinned)):
                yield self._with_pinned(blocks)

    def sample(self, rng: np.random.Generator) -> Subnet:
        """Uniform over all choices."""
        ways = np.array([self._ways(count) / self.size() for count in self.keep])
        count = int(rng.choice(self.keep, p=ways)) - len(self.pinned)
        return self._with_pinned(rng.choice(self._free, size=count, replace=False).tolist())

    def encode(self, subnet: Subnet) -> Gene:
        """One 0 or 1 per block.

        Raises:
            SpaceError: If the sub-network is not in the space.
        """
        if not self.contains(subnet):
            raise SpaceError(f"{subnet.describe()} is not in the search space {self.name}")
        return tuple(int(block in subnet.stacks()[self.stack].blocks) for block in range(self.blocks))

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of the blocks whose entry is not 0."""
        return Subnet.of_blocks({self.stack: [block for block, runs in enumerate(gene) if runs]})

    def repair(self, gene: Sequence[int]) -> Gene:
        """To the nearest allowed depth: later blocks go first, earlier blocks come back first.

        Pinned blocks come back before anything else.
        """
        runs = {block for block, on in enumerate(gene) if on} | set(self.pinned)
        return self._nearest(runs, self._allowed(len(runs)))

    def mutate(self, gene: Sequence[int], rng: np.random.Generator) -> Gene:
        """Each block starts or stops running with probability 1 / blocks.

        Where that is no allowed depth, it goes on to the nearest by random blocks: ``repair`` favours early
        ones.
        """
        hit = rng.random(self.blocks) * self.blocks < 1
        runs = {block for block in range(self.blocks) if bool(gene[block]) != hit[block]} | set(self.pinned)
        count = self._allowed(len(runs))
        luck = rng.random(self.blocks)
        order = sorted(range(self.blocks), key=lambda b: (b not in self.pinned, b not in runs, luck[b]))
        return tuple(int(block in order[:count]) for block in range(self.blocks))

    def _nearest(self, runs: Collection[int], count: int) -> Gene:
        """So many blocks: first the pinned ones, then those that run, then the others, each in order."""
        order = sorted(range(self.blocks), key=lambda b: (b not in self.pinned, b not in runs))
        return tuple(int(block in order[:count]) for block in range(self.blocks))

    def _allowed(self, depth: int) -> int:
        """The nearest allowed depth; of two the shallower."""
        return min(self.keep, key=lambda allowed: (abs(allowed - depth), allowed))

    @property
    def _free(self) -> list[int]:
        return [block for block in range(self.blocks) if block not in self.pinned]

    def _ways(self, count: int) -> int:
        return math.comb(len(self._free), count - len(self.pinned))

    def _with_pinned(self, blocks: Iterable[int]) -> Subnet:
        return Subnet.of_blocks({self.stack: sorted({*blocks, *self.pinned})})


def evenly_spaced(blocks: int, keep: int) -> tuple[int, ...]:
    """``floor(i * blocks / keep)`` for i = 0..keep-1: every other block, and any other share."""
    return tuple(i * blocks // keep for i in range(keep))
