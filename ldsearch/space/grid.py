"""The depth configurations of one or two stacks as a search space."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.space.assignments import configurations, divisors
from ldsearch.space.lengths import Gene
from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class DepthGrid:
    """One sub-network for each pair of depths that flexible depth trains (Wang, Xiao & Zhu 2020).

    A gene holds, for each stack, the index of its depth among the divisors; the encoder comes first.

    Args:
        name: For reports.
        source: The paper or the reason for the ranges.
        depths: Number of blocks of each stack, ``(("encoder", 12), ("decoder", 6))``; one stack will do.
        assignment: Which blocks make up each depth (``ldsearch.space.assignments.ASSIGNMENTS``).

    Raises:
        SpaceError: If a stack, a depth or the assignment makes no sense.
    """

    name: str
    source: str
    depths: tuple[tuple[str, int], ...]
    assignment: str

    def __post_init__(self) -> None:
        if len(dict(self.depths)) < len(self.depths):
            raise SpaceError(f"a stack is named twice: {[name for name, _ in self.depths]}")
        configurations(dict(self.depths), self.assignment)

    @property
    def blocks(self) -> int:
        """Number of blocks of all stacks together."""
        return sum(depth for _, depth in self.depths)

    def full(self) -> Subnet:
        """All blocks of all stacks."""
        return self._subnets[-1]

    def smallest(self) -> Subnet:
        """One block in each stack."""
        return self._subnets[0]

    def largest(self) -> Subnet:
        """The full model."""
        return self._subnets[-1]

    def contains(self, subnet: Subnet) -> bool:
        """Whether it is the one sub-network of its depths."""
        return subnet in self._genes

    def size(self) -> int:
        """Number of depth configurations: 24 for 12 and 6 blocks."""
        return len(self._subnets)

    def enumerate(self) -> Iterator[Subnet]:
        """Every depth configuration, shallow first, the encoder's depth outermost."""
        yield from self._subnets

    def sample(self, rng: np.random.Generator) -> Subnet:
        """Uniform over the depth configurations."""
        return self._subnets[int(rng.integers(self.size()))]

    def encode(self, subnet: Subnet) -> Gene:
        """One index for each stack.

        Raises:
            SpaceError: If the sub-network is not in the space.
        """
        if not self.contains(subnet):
            raise SpaceError(f"{subnet.describe()} is not in the search space {self.name}")
        return self._genes[subnet]

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of one depth index for each stack."""
        return self._subnets[int(np.ravel_multi_index(tuple(gene), self._shape))]

    def repair(self, gene: Sequence[int]) -> Gene:
        """Clip each index to the depths there are."""
        return tuple(
            min(max(int(index), 0), count - 1) for index, count in zip(gene, self._shape, strict=True)
        )

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        """How many depths each stack has, in the order of the genes."""
        ordered = sorted(self.depths, key=lambda stack: stack[0] != "encoder")
        return tuple(len(divisors(depth)) for _, depth in ordered)

    @cached_property
    def _subnets(self) -> tuple[Subnet, ...]:
        return tuple(configurations(dict(self.depths), self.assignment).values())

    @cached_property
    def _genes(self) -> Mapping[Subnet, Gene]:
        return dict(zip(self._subnets, np.ndindex(self._shape), strict=True))
