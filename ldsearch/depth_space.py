"""Choices of blocks of an encoder as a search space."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.length_space import Gene
from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class DepthSpace:
    """Which blocks of an encoder run; every length is full. A gene holds one 0 or 1 per block.

    Args:
        name: For reports.
        source: The paper or the reason for the ranges.
        blocks: Number of blocks of the model.
        keep: The allowed numbers of executed blocks, ascending.
    """

    name: str
    source: str
    blocks: int
    keep: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.keep or not all(0 < count <= self.blocks for count in self.keep):
            raise SpaceError(f"keep {list(self.keep)} must name depths in 1..{self.blocks}")

    def full(self) -> Subnet:
        """All blocks."""
        return Subnet.full(self.blocks)

    def smallest(self) -> Subnet:
        """The first blocks, at the least allowed depth (blocks are alike, so any of that depth)."""
        return Subnet.of_encoder(range(self.keep[0]))

    def largest(self) -> Subnet:
        """The first blocks, at the greatest allowed depth."""
        return Subnet.of_encoder(range(self.keep[-1]))

    def contains(self, subnet: Subnet) -> bool:
        """Whether only whole blocks are missing and their number is allowed."""
        stack = subnet.encoder
        return (
            subnet.decoder is None
            and stack is not None
            and not stack.structured
            and stack.lengths is None
            and len(stack.blocks) in self.keep
            and stack.blocks[-1] < self.blocks
        )

    def size(self) -> int:
        """The sum of the binomials."""
        return sum(math.comb(self.blocks, count) for count in self.keep)

    def enumerate(self) -> Iterator[Subnet]:
        """Every allowed choice of blocks, shallow first."""
        for count in self.keep:
            for blocks in itertools.combinations(range(self.blocks), count):
                yield Subnet.of_encoder(blocks)

    def sample(self, rng: np.random.Generator) -> Subnet:
        """Uniform over all choices."""
        ways = np.array([math.comb(self.blocks, count) / self.size() for count in self.keep])
        count = int(rng.choice(self.keep, p=ways))
        return Subnet.of_encoder(sorted(rng.choice(self.blocks, size=count, replace=False).tolist()))

    def encode(self, subnet: Subnet) -> Gene:
        """One 0 or 1 per block.

        Raises:
            SpaceError: If the sub-network is not in the space.
        """
        if subnet.encoder is None or not self.contains(subnet):
            raise SpaceError(f"{subnet.describe()} is not in the search space {self.name}")
        return tuple(int(block in subnet.encoder.blocks) for block in range(self.blocks))

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of the blocks whose entry is not 0."""
        return Subnet.of_encoder(block for block, runs in enumerate(gene) if runs)

    def repair(self, gene: Sequence[int]) -> Gene:
        """To the nearest allowed depth: later blocks go first, earlier blocks come back first."""
        runs = [block for block, on in enumerate(gene) if on]
        count = min(self.keep, key=lambda depth: (abs(depth - len(runs)), depth))
        missing = [block for block in range(self.blocks) if block not in runs]
        chosen = set((runs + missing)[:count])
        return tuple(int(block in chosen) for block in range(self.blocks))
