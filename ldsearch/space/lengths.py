"""Length configurations of an encoder as a search space: levels, floors, counting and uniform sampling."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SpaceError
from ldsearch.space.length_drop import MINIMUM_TOKENS, as_rate, constant_ratio_lengths
from ldsearch.subnet import LengthMode, Lengths, Stack, Subnet

Gene = tuple[int, ...]
_RATES = 400  # rates between 0 and 1 that name the constant-ratio configurations


@dataclass(frozen=True)
class LengthSpace:
    """Length configurations of an encoder: never rising, on given levels, within the trained range.

    A gene holds, for each block, the index of its length in ``levels``.

    Args:
        name: For reports.
        source: The paper or the reason for the ranges.
        blocks: Number of blocks, all of which run.
        reference: Reference input length l₀ in tokens.
        mode: How lengths apply to shorter inputs (``Lengths.mode``).
        levels: The allowed lengths, ascending; the last is the reference.
        floors: The smallest allowed length of each block: the smallest configuration of the training.
        pin_last: Whether the last length is fixed to its floor: after the last attention, a head that
            reads only [CLS] cannot see which other tokens are left.
        decoder: Number of blocks of the decoder behind the encoder, all of which run; 0: there is none.
        least: The configuration whose cost a search does not go below (``widened``); (): the floors, which
            nothing in the space is cheaper than.
    """

    name: str
    source: str
    blocks: int
    reference: int
    mode: LengthMode
    levels: tuple[int, ...]
    floors: tuple[int, ...]
    pin_last: bool
    decoder: int = 0
    least: tuple[int, ...] = ()

    @classmethod
    def build(
        cls,
        blocks: int,
        reference: int,
        drop_bound: Any,
        *,
        levels: int | None = 16,
        mode: LengthMode = "ratio",
        pin_last: bool = True,
        name: str = "lengths",
        source: str = "built from the supernet's own training",
        decoder: int = 0,
    ) -> "LengthSpace":
        """The space of a LengthDrop bound: floors from its smallest configuration.

        Args:
            blocks: Number of blocks.
            reference: l₀ in tokens.
            drop_bound: The LengthDrop probability p of the training.
            levels: Size of the grid; None allows every length.
            mode: ``"ratio"`` or ``"absolute"``.
            pin_last: See the class.
            name: For reports.
            source: For reports.
            decoder: See the class.

        Raises:
            SpaceError: If a number makes no sense.
        """
        if blocks < 1 or reference < 2:
            raise SpaceError(f"a length space needs blocks and a reference length, not {blocks}, {reference}")
        if levels is None:
            grid = tuple(range(1, reference + 1))
        elif levels < 2:
            raise SpaceError(f"a grid needs at least 2 levels, not {levels}")
        else:
            grid = tuple(sorted({-(-reference * level // levels) for level in range(1, levels + 1)}))
        smallest = constant_ratio_lengths(reference, blocks, as_rate(drop_bound))
        floors = tuple(next(level for level in grid if level >= tokens) for tokens in smallest)
        return cls(name, source, blocks, reference, mode, grid, floors, pin_last, decoder)

    def full(self) -> Subnet:
        """All tokens through all blocks."""
        return Subnet.full(self.blocks, self.decoder)

    def smallest(self) -> Subnet:
        """Every length at its floor; of a widened space, what bounds the cost instead."""
        return self._subnet(self.least or self.floors)

    def widened(self) -> "LengthSpace":
        """The same range of costs, but no floor for a single block: only the least cost bounds a search.

        So the length-adaptive paper's code searches. Every length may fall to the last one's floor where that
        is pinned, else to ``MINIMUM_TOKENS``; ``size``, ``sample`` and ``enumerate`` know no costs and give
        cheaper configurations too, which strategies leave out.
        """
        lowest = next(level for level in self.levels if level >= min(MINIMUM_TOKENS, self.reference))
        floor = self.floors[-1] if self.pin_last else lowest
        return replace(self, floors=(floor,) * self.blocks, least=self.least or self.floors)

    def largest(self) -> Subnet:
        """Every free length at the reference."""
        return self.decode(self.repair((len(self.levels) - 1,) * self.blocks))

    def contains(self, subnet: Subnet) -> bool:
        """Whether decoding this sub-network's own lengths gives it back."""
        tokens = self._tokens(subnet)
        if tokens is None or not set(tokens) <= set(self.levels):
            return False
        gene = tuple(self._index[t] for t in tokens)
        return self.repair(gene) == gene

    def size(self) -> int:
        """Number of allowed length vectors."""
        return self._completions[0][-1]

    def enumerate(self) -> Iterator[Subnet]:
        """Every allowed length vector, smallest first."""

        def extend(prefix: Gene) -> Iterator[Gene]:
            if len(prefix) == self.blocks:
                yield prefix
                return
            for level in self._choices(len(prefix), prefix[-1] if prefix else len(self.levels) - 1):
                yield from extend((*prefix, level))

        return (self.decode(gene) for gene in extend(()))

    def sample(self, rng: np.random.Generator) -> Subnet:
        """Uniform over the whole space: each length is drawn in proportion to how many ways go on."""
        gene: list[int] = []
        previous = len(self.levels) - 1
        for block in range(self.blocks):
            choices = self._choices(block, previous)
            total = self._completions[block][previous]
            weights = [self._completions[block + 1][level] / total for level in choices]
            previous = choices[int(rng.choice(len(choices), p=weights))]
            gene.append(previous)
        return self.decode(gene)

    def encode(self, subnet: Subnet) -> Gene:
        """Level indices.

        Raises:
            SpaceError: If the sub-network is not in the space.
        """
        tokens = self._tokens(subnet)
        if tokens is None or not self.contains(subnet):
            raise SpaceError(f"{subnet.describe()} is not in the search space {self.name}")
        return tuple(self._index[t] for t in tokens)

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of level indices."""
        return self._subnet(tuple(self.levels[level] for level in gene))

    def repair(self, gene: Sequence[int]) -> Gene:
        """Clip each level to its floor and to the block before; pin the last where it is pinned."""
        repaired: list[int] = []
        previous = len(self.levels) - 1
        for level, floor in zip(gene, self.floor_levels, strict=True):
            previous = min(max(int(level), floor), previous)
            repaired.append(previous)
        if self.pin_last:
            repaired[-1] = self.floor_levels[-1]
        return tuple(repaired)

    def regular(self) -> list[Subnet]:
        """Constant-ratio configurations, shortest first, raised to the levels and pinned like all."""
        rates = (Fraction(step, _RATES) for step in reversed(range(_RATES)))
        vectors = (constant_ratio_lengths(self.reference, self.blocks, rate) for rate in rates)
        return list(dict.fromkeys(map(self.snap, vectors)))

    def mutate(self, gene: Sequence[int], probability: float, rng: np.random.Generator) -> Gene:
        """Sweep the blocks; with the probability p_m draw l_i uniformly between l_{i+1} and the new l_{i-1}.

        Levels never rise by construction: each draw lies between its two neighbours (Kim & Cho 2020,
        Sec. 3.2).
        """
        return self.repair(swept(gene, self.floor_levels, len(self.levels) - 1, probability, rng))

    def cross(self, first: Sequence[int], second: Sequence[int], rng: np.random.Generator) -> Gene:
        """Average two parents block by block, halves rounded up; levels rise in neither, so not here."""
        return self.repair(averaged(first, second))

    def lowered(self, subnet: Subnet) -> list[Subnet]:
        """One block shortened by one level, and those behind it as far as they must be."""
        gene = self.encode(subnet)
        shorter = (self.repair([n - (i == block) for i, n in enumerate(gene)]) for block in range(len(gene)))
        return [self.decode(one) for one in dict.fromkeys(shorter) if one != gene]

    def features(self, subnet: Subnet) -> NDArray[np.float64]:
        """Each length that is not pinned as a share of the reference."""
        tokens = self._tokens(subnet)
        assert tokens is not None
        return np.array(tokens[: self.blocks - self.pin_last]) / self.reference

    def snap(self, tokens: Sequence[int]) -> Subnet:
        """The sub-network with each length raised to the next level, repaired into the space."""
        return self.decode(self.repair([int(np.searchsorted(self.levels, t)) for t in tokens]))

    @cached_property
    def floor_levels(self) -> Gene:
        """The floors as level indices."""
        return tuple(self._index[t] for t in self.floors)

    @cached_property
    def _index(self) -> Mapping[int, int]:
        return {tokens: index for index, tokens in enumerate(self.levels)}

    @cached_property
    def _completions(self) -> list[list[int]]:
        """[block][previous level]: number of ways to choose the lengths from ``block`` on."""
        table = [[1] * len(self.levels)]
        for block in reversed(range(self.blocks)):
            ways = table[0]
            row = [sum(ways[c] for c in self._choices(block, level)) for level in range(len(self.levels))]
            table.insert(0, row)
        return table

    def _choices(self, block: int, previous: int) -> range:
        floor = self.floor_levels[block]
        if self.pin_last and block == self.blocks - 1:
            return range(floor, floor + 1)
        return range(floor, previous + 1)

    def _tokens(self, subnet: Subnet) -> tuple[int, ...] | None:
        """The sub-network's lengths, or None where it is of another kind than this space."""
        stack = subnet.encoder
        if subnet.decoder != Subnet.full(decoder=self.decoder).decoder or stack is None or stack.structured:
            return None
        if stack.blocks != tuple(range(self.blocks)):
            return None
        if stack.lengths is None:
            return (self.reference,) * self.blocks
        if (stack.lengths.reference, stack.lengths.mode) != (self.reference, self.mode):
            return None
        return stack.lengths.tokens

    def _subnet(self, tokens: tuple[int, ...]) -> Subnet:
        stack = Stack(tuple(range(self.blocks)), Lengths(tokens, self.reference, self.mode))
        return Subnet(stack, Subnet.full(decoder=self.decoder).decoder)


def swept(
    gene: Sequence[int], floors: Sequence[int], top: int, probability: float, rng: np.random.Generator
) -> list[int]:
    """The paper's mutation of levels that never rise (``LengthSpace.mutate``)."""
    mutated: list[int] = []
    previous = top
    following = [*gene[1:], 0]
    for level, after, floor in zip(gene, following, floors, strict=True):
        if rng.random() < probability:
            previous = int(rng.integers(max(after, floor), previous, endpoint=True))
        else:
            previous = int(level)
        mutated.append(previous)
    return mutated


def averaged(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The paper's crossover of levels (``LengthSpace.cross``)."""
    return [(a + b + 1) // 2 for a, b in zip(first, second, strict=True)]
