"""Blocks, lengths and what is off inside blocks, chosen together, as one search space."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SpaceError
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.gene import Parts, grouped, leanest
from ldsearch.space.length_drop import constant_ratio_lengths
from ldsearch.space.lengths import Gene, LengthSpace
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack, Subnet

_RATES = 50  # rates between 0 and 1 that name the regular configurations of each depth


@dataclass(frozen=True)
class JointSpace:
    """Which blocks of each stack run, how many tokens leave each, and what is off inside each.

    Args:
        name: For reports.
        source: The paper or the reason for the ranges.
        depths: The blocks of each stack, the encoder's first; a stack that keeps all of its blocks too.
        lengths: Levels, kind and pinning of the encoder's lengths, and their least configuration; every
            length may fall to the last one's floor (``LengthSpace.widened``). None: lengths are full.
        options: What may be off inside a block; the first is nothing.

    Raises:
        SpaceError: If these do not fit together.
    """

    name: str
    source: str
    depths: tuple[DepthSpace, ...]
    lengths: LengthSpace | None = None
    options: tuple[Groups, ...] = (WHOLE,)

    def __post_init__(self) -> None:
        if self.options[0] != WHOLE or len(set(self.options)) < len(self.options):
            raise SpaceError("the options of a block are distinct, and the first is that nothing is off")
        if self.lengths is None:
            return
        first = self.depths[0]
        if (first.stack, first.blocks) != ("encoder", self.lengths.blocks):
            raise SpaceError(f"lengths of {self.lengths.blocks} encoder blocks fit no such stack")
        if not all(option.runs("attention") for option in self.options):
            raise SpaceError("attention scores the tokens: it cannot be off where lengths are chosen")

    @property
    def blocks(self) -> int:
        """Number of blocks of all stacks together."""
        return sum(depth.blocks for depth in self.depths)

    def full(self) -> Subnet:
        """All blocks, whole, at full length."""
        return Subnet.full(**{depth.stack: depth.blocks for depth in self.depths})

    def smallest(self) -> Subnet:
        """The first blocks of the least depths, the most off in each, at the smallest trained lengths.

        It bounds the cost of a search; where a single length may fall below the trained ones, others of the
        space can be cheaper.
        """
        levels: list[int] = []
        if self.lengths is not None:
            levels = [self.lengths.levels.index(n) for n in self.lengths.least or self.lengths.floors]
        runs = [bit for depth in self.depths for bit in depth.encode(depth.smallest())]
        return self._of(Parts(runs, [leanest(self.options)] * self.blocks, levels))

    def largest(self) -> Subnet:
        """The most blocks, whole, every free length at the reference."""
        runs = [bit for depth in self.depths for bit in depth.encode(depth.largest())]
        return self._of(Parts(runs, [0] * self.blocks, [self._top] * self._lengths))

    def contains(self, subnet: Subnet) -> bool:
        """Whether decoding its own gene gives it back."""
        parts = self._read(subnet)
        return parts is not None and self._of(parts) == subnet

    def size(self) -> int:
        """From binomials: nothing is listed."""
        return math.prod(sum(self._counts(depth).values()) for depth in self.depths)

    def enumerate(self) -> Iterator[Subnet]:
        """Every sub-network, shallow first."""
        for chosen in itertools.product(*(depth.enumerate() for depth in self.depths)):
            runs = [bit for depth, own in zip(self.depths, chosen, strict=True) for bit in depth.encode(own)]
            choices = [range(len(self.options) if on else 1) for on in runs]
            for options in itertools.product(*choices):
                for levels in itertools.combinations_with_replacement(self._levels, self._free(runs)):
                    yield self._of(Parts(runs, list(options), self._spread(runs, levels)))

    def sample(self, rng: np.random.Generator) -> Subnet:
        """Uniform: a depth in proportion to how many sub-networks have it, then the rest."""
        runs: list[int] = []
        for depth in self.depths:
            counts = self._counts(depth)
            weights = [count / sum(counts.values()) for count in counts.values()]
            keep = int(rng.choice(list(counts), p=weights))
            runs += depth.encode(replace(depth, keep=(keep,)).sample(rng))
        options = [int(rng.integers(len(self.options))) if on else 0 for on in runs]
        # A sorted choice without repeats, less 0, 1, 2, ...: each multiset is one such choice.
        free = self._free(runs)
        places = np.sort(rng.choice(len(self._levels) + free - 1, free, replace=False)) - np.arange(free)
        return self._of(Parts(runs, options, self._spread(runs, [self._levels[place] for place in places])))

    def encode(self, subnet: Subnet) -> Gene:
        """The entries of ``Parts``.

        Raises:
            SpaceError: If the sub-network is not in the space.
        """
        return self._parts_of(subnet).gene()

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of a repaired gene."""
        parts = self._parts(gene)
        stacks: dict[str, Stack] = {}
        first = 0
        for depth in self.depths:
            blocks = tuple(block for block in range(depth.blocks) if parts.runs[first + block])
            off = {block: self.options[parts.options[first + block]] for block in blocks}
            lengths = None
            if self.lengths is not None and depth.stack == "encoder":
                tokens = tuple(self.lengths.levels[parts.levels[block]] for block in blocks)
                lengths = Lengths(tokens, self.lengths.reference, self.lengths.mode)
            stacks[depth.stack] = grouped(blocks, off, lengths)
            first += depth.blocks
        return Subnet(**stacks)

    def repair(self, gene: Sequence[int]) -> Gene:
        """Depths by ``DepthSpace.repair``; options and levels clipped, levels to the block before too.

        The level of the last block that runs goes to the floor where the last length is pinned.
        """
        parts = self._parts(gene)
        runs: list[int] = []
        for depth in self.depths:
            runs += depth.repair(parts.runs[len(runs) : len(runs) + depth.blocks])
        options = [
            min(max(int(option), 0), len(self.options) - 1) if on else 0
            for option, on in zip(parts.options, runs, strict=True)
        ]
        running = [block for block in range(len(parts.levels)) if runs[block]]
        levels: list[int] = []
        previous = self._top
        for block, level in enumerate(parts.levels):
            if block in running:
                pinned = self.lengths is not None and self.lengths.pin_last and block == running[-1]
                previous = self._floor if pinned else min(max(int(level), self._floor), previous)
            levels.append(previous)
        return Parts(runs, options, levels).gene()

    def regular(self) -> list[Subnet]:
        """Evenly spaced blocks of every depth with constant-ratio lengths; nothing is off inside them."""
        found: dict[Subnet, None] = {}
        for evens in itertools.product(*(depth.regular() for depth in self.depths)):
            runs = [bit for depth, own in zip(self.depths, evens, strict=True) for bit in depth.encode(own)]
            for levels in self._constant_ratios(runs):
                found[self._of(Parts(runs, [0] * self.blocks, levels))] = None
        return list(found)

    def mutate(self, gene: Sequence[int], probability: float, rng: np.random.Generator) -> Gene:
        """Of depths, options and levels one kind changes, so that a mutant tries one thing."""
        change = self._mutations[int(rng.integers(len(self._mutations)))]
        return self.repair(change(self._parts(gene), probability, rng).gene())

    def cross(self, first: Sequence[int], second: Sequence[int], rng: np.random.Generator) -> Gene:
        """A child of two, block by block (``Parts.crossed``)."""
        return self.repair(self._parts(first).crossed(self._parts(second), rng).gene())

    def lowered(self, subnet: Subnet) -> list[Subnet]:
        """One block left out, one option further, or one length shortened by a level."""
        children: dict[Subnet, None] = {}
        for step in self._parts_of(subnet).steps():
            repaired = self._parts(self.repair(step.gene()))
            # Below the least depth a block comes back: that is no step down.
            if all(now <= then for now, then in zip(repaired.runs, step.runs, strict=True)):
                children[self.decode(repaired.gene())] = None
        return [child for child in children if child != subnet]

    def features(self, subnet: Subnet) -> NDArray[np.float64]:
        """Which blocks run, which of them has which option, and how high each level is, from 0 to 1."""
        parts = self._parts_of(subnet)
        off = [option == other for option in parts.options for other in range(1, len(self.options))]
        shares = [level / self._top for level in parts.levels]
        return np.array([*parts.runs, *off, *shares], dtype=np.float64)

    @cached_property
    def _mutations(self) -> list[Callable[[Parts, float, np.random.Generator], Parts]]:
        """One for each kind of gene that can change."""
        found: list[Callable[[Parts, float, np.random.Generator], Parts]] = []
        if any(depth.size() > 1 for depth in self.depths):
            found.append(lambda parts, probability, rng: self._other_blocks(parts, rng))
        if len(self.options) > 1:
            found.append(lambda parts, probability, rng: parts.drawn(len(self.options), rng))
        if self.lengths is not None:
            found.append(lambda parts, p, rng: parts.swept(self._floor, self._top, p, rng))
        return found

    def _other_blocks(self, parts: Parts, rng: np.random.Generator) -> Parts:
        runs: list[int] = []
        for depth in self.depths:
            runs += depth.mutate(parts.runs[len(runs) : len(runs) + depth.blocks], rng)
        return replace(parts, runs=runs)

    @property
    def _lengths(self) -> int:
        return 0 if self.lengths is None else self.lengths.blocks

    @cached_property
    def _top(self) -> int:
        return 0 if self.lengths is None else len(self.lengths.levels) - 1

    @cached_property
    def _floor(self) -> int:
        return 0 if self.lengths is None else self.lengths.widened().floor_levels[-1]

    @cached_property
    def _levels(self) -> range:
        """What a level may be, longest first."""
        return range(self._top, self._floor - 1, -1)

    def _free(self, runs: Sequence[int]) -> int:
        """How many lengths of the blocks that run can be chosen."""
        if self.lengths is None:
            return 0
        return sum(runs[: self._lengths]) - self.lengths.pin_last

    def _counts(self, depth: DepthSpace) -> Mapping[int, int]:
        """How many choices each depth of a stack has."""
        counts = {}
        for keep in depth.keep:
            free = self._free([1] * keep) if depth.stack == "encoder" else 0
            vectors = math.comb(len(self._levels) + free - 1, free)
            counts[keep] = replace(depth, keep=(keep,)).size() * len(self.options) ** keep * vectors
        return counts

    def _spread(self, runs: Sequence[int], levels: Sequence[int]) -> list[int]:
        """Levels of blocks that run, in order, as one entry for each block; repair does the rest."""
        following = iter([*levels, self._floor])
        return [next(following) if on else self._top for on in runs[: self._lengths]]

    def _constant_ratios(self, runs: Sequence[int]) -> Iterator[list[int]]:
        if self.lengths is None:
            yield []
            return
        count = sum(runs[: self._lengths])
        for step in range(_RATES):
            tokens = constant_ratio_lengths(self.lengths.reference, count, Fraction(step, _RATES))
            yield self._spread(runs, np.searchsorted(self.lengths.levels, tokens).tolist())

    def _of(self, parts: Parts) -> Subnet:
        return self.decode(self.repair(parts.gene()))

    def _parts(self, gene: Sequence[int]) -> Parts:
        return Parts.of(gene, self.blocks)

    def _parts_of(self, subnet: Subnet) -> Parts:
        parts = self._read(subnet)
        if parts is None or self._of(parts) != subnet:
            raise SpaceError(f"{subnet.describe()} is not in the search space {self.name}")
        return self._parts(self.repair(parts.gene()))

    def _read(self, subnet: Subnet) -> Parts | None:
        """What can be read of a sub-network; None where it names what this space has not."""
        stacks = subnet.stacks()
        if list(stacks) != [depth.stack for depth in self.depths]:
            return None
        pairs = [(stacks[depth.stack], block) for depth in self.depths for block in range(depth.blocks)]
        off = [stack.groups(block) for stack, block in pairs]
        if not set(off) <= set(self.options):
            return None
        runs = [int(block in stack.blocks) for stack, block in pairs]
        levels: list[int] = []
        if self.lengths is not None:
            stack = stacks["encoder"]
            full = (self.lengths.reference,) * len(stack.blocks)
            tokens = full if stack.lengths is None else stack.lengths.tokens
            if not set(tokens) <= set(self.lengths.levels):
                return None
            levels = self._spread(runs, [self.lengths.levels.index(n) for n in tokens])
        return Parts(runs, [self.options.index(own) for own in off], levels)
