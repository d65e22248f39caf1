"""The search space: which blocks run, how many tokens leave each, and what is off inside each."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import LdsearchError, SpaceError, one_line
from ldsearch.space.blocks import BlockGenes, DepthGenes, block_genes_from_dict
from ldsearch.space.lengths import LengthGenes, Shape
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack, Subnet

Gene = tuple[int, ...]
# The kinds of genes by the names that ``--genes`` joins; the last three are what ``--drop-groups`` trains.
GENES = ("lengths", "depth", "ffn", "head", "sublayer")


class _Parts(NamedTuple):
    """A gene taken apart, one entry per block, stack by stack, the encoder's first.

    ``runs`` holds 0 or 1; ``options`` indices of what is off inside a block, 0 where it does not run;
    ``levels`` indices of the encoder's lengths, of a block that does not run that of the block before.
    """

    runs: Sequence[int]
    options: Sequence[int]
    levels: Sequence[int]

    def gene(self) -> Gene:
        return (*self.runs, *self.options, *self.levels)


Mutation = Callable[[_Parts, float, np.random.Generator], _Parts]


@dataclass(frozen=True)
class Space:
    """A finite set of sub-networks, and the operators of the searches on their integer genes.

    A gene holds, for every block of every stack, whether it runs; then what is off inside it; then, where
    lengths are chosen, the level of every encoder block's length. Sub-networks that a kind of gene does not
    choose keep it whole: all blocks, nothing off, full lengths.

    Args:
        name: For reports.
        source: The paper or the reason for the ranges.
        depths: The choices of blocks of each stack, the encoder's first; a stack that keeps all of its
            blocks too (``DepthGenes.whole``).
        lengths: The encoder's lengths; None: all are full.
        options: What may be off inside a block; the first is nothing.

    Raises:
        SpaceError: If these do not fit together.
    """

    name: str
    source: str
    depths: tuple[BlockGenes, ...]
    lengths: LengthGenes | None = None
    options: tuple[Groups, ...] = (WHOLE,)

    def __post_init__(self) -> None:
        stacks = [depth.stack for depth in self.depths]
        if not stacks or stacks != [name for name in ("encoder", "decoder") if name in stacks]:
            raise SpaceError(f"the stacks of a space are an encoder, a decoder or both, not {stacks}")
        if not self.options or self.options[0] != WHOLE or len(set(self.options)) < len(self.options):
            raise SpaceError("the options of a block are distinct, and the first is that nothing is off")
        if self.lengths is None:
            return
        first = self.depths[0]
        if (first.stack, first.blocks) != ("encoder", len(self.lengths.floors)):
            raise SpaceError(f"lengths of {len(self.lengths.floors)} encoder blocks fit no such stack")
        if not all(option.runs("attention") for option in self.options):
            raise SpaceError("attention scores the tokens: it cannot be off where lengths are chosen")

    @classmethod
    def of_lengths(cls, lengths: LengthGenes, decoder: int = 0) -> "Space":
        """The space of an encoder's lengths alone; every block runs, those of a decoder behind it too."""
        stacks = {"encoder": len(lengths.floors), "decoder": decoder}
        depths = tuple(DepthGenes.whole(stack, blocks) for stack, blocks in stacks.items() if blocks)
        return cls("lengths", "built in code", depths, lengths)

    @property
    def blocks(self) -> int:
        """Number of blocks of all stacks together."""
        return sum(depth.blocks for depth in self.depths)

    @cached_property
    def varies(self) -> tuple[str, ...]:
        """The kinds of genes that are chosen, in the order of ``GENES``."""
        chosen = {
            "lengths": self.lengths is not None,
            "depth": any(_choices(depth) > 1 for depth in self.depths),
            "ffn": any(option.ffn_share < 1 for option in self.options),
            "head": any(option.heads_off for option in self.options),
            "sublayer": any(option.sublayers_off for option in self.options),
        }
        return tuple(kind for kind in GENES if chosen[kind])

    def full(self) -> Subnet:
        """All blocks, whole, at full length: the denominator of every share, in the space or not."""
        return Subnet.full(**{depth.stack: depth.blocks for depth in self.depths})

    def smallest(self) -> Subnet:
        """The first blocks of the least depths, the most off in each, at the smallest trained lengths.

        It bounds the cost of a search. Of a space that is not widened none is cheaper; where a single length
        may fall below the trained ones, others can be.
        """
        runs = [bit for depth in self.depths for bit in next(depth.enumerate(depth.keep[0]))]
        levels = () if self.lengths is None else self.lengths.smallest(self._running(runs))
        options = [_leanest(self.options) if on else 0 for on in runs]
        return self._decoded(_Parts(runs, options, self._spread(runs, levels)))

    def largest(self) -> Subnet:
        """The most blocks, whole, every free length at the reference."""
        runs = [bit for depth in self.depths for bit in next(depth.enumerate(depth.keep[-1]))]
        return self._decoded(self._repaired(_Parts(runs, [0] * self.blocks, [self._top] * self._lengths)))

    def contains(self, subnet: Subnet) -> bool:
        """Whether decoding its own gene gives it back."""
        parts = self._read(subnet)
        return parts is not None and self._decoded(self._repaired(parts)) == subnet

    def size(self) -> int:
        """Number of sub-networks; nothing is listed. Of a widened space those below the cost floor too."""
        return math.prod(sum(self._counts(depth).values()) for depth in self.depths)

    def enumerate(self) -> Iterator[Subnet]:
        """Every sub-network once: shallow first, of equal blocks the shortest first."""
        each = [[runs for keep in depth.keep for runs in depth.enumerate(keep)] for depth in self.depths]
        for chosen in itertools.product(*each):
            runs = [bit for bits in chosen for bit in bits]
            choices = [range(len(self.options) if on else 1) for on in runs]
            for options in itertools.product(*choices):
                count = self._running(runs)
                for levels in [()] if self.lengths is None else self.lengths.enumerate(count):
                    yield self._decoded(_Parts(runs, options, self._spread(runs, levels)))

    def sample(self, rng: np.random.Generator) -> Subnet:
        """One sub-network, uniformly: a depth in proportion to how many have it, then the rest."""
        runs: list[int] = []
        for depth in self.depths:
            keep = depth.keep[-1]
            if _choices(depth) > 1:
                counts = self._counts(depth)
                total = sum(counts.values())
                keep = int(rng.choice(list(counts), p=[count / total for count in counts.values()]))
            runs += depth.sample(keep, rng) if depth.size(keep) > 1 else next(depth.enumerate(keep))
        options = [int(rng.integers(len(self.options))) if on else 0 for on in runs]
        levels = () if self.lengths is None else self.lengths.sample(self._running(runs), rng)
        return self._decoded(_Parts(runs, options, self._spread(runs, levels)))

    def encode(self, subnet: Subnet) -> Gene:
        """The gene of a sub-network.

        Raises:
            SpaceError: If the sub-network is not in the space.
        """
        parts = self._read(subnet)
        if parts is None or self._decoded(self._repaired(parts)) != subnet:
            raise SpaceError(f"{subnet.describe()} is not in the search space {self.name}")
        return parts.gene()

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of a repaired gene; ``decode(encode(s)) == s``."""
        return self._decoded(self._parts(gene))

    def repair(self, gene: Sequence[int]) -> Gene:
        """The nearest allowed gene by each kind's own rule; options are clipped. Allowed genes stay."""
        return self._repaired(self._parts(gene)).gene()

    def regular(self, shape: Shape = Shape.EVEN) -> list[Subnet]:
        """Regular sub-networks, as a rule without a search names them, over many costs.

        Evenly spaced blocks of every depth, at lengths of a shape; nothing is off inside them.
        """
        subnets: dict[Subnet, None] = {}
        for keep in itertools.product(*(depth.keep for depth in self.depths)):
            evens = (depth.even(count) for depth, count in zip(self.depths, keep, strict=True))
            runs = [bit for bits in evens for bit in bits]
            count = self._running(runs)
            for levels in [()] if self.lengths is None else self.lengths.regular(count, shape):
                subnets[self._decoded(_Parts(runs, [0] * self.blocks, self._spread(runs, levels)))] = None
        return list(subnets)

    def mutate(self, gene: Sequence[int], probability: float, rng: np.random.Generator) -> Gene:
        """Mutate one kind of gene, chosen uniformly: blocks, options or lengths.

        Args:
            gene: A gene of the space.
            probability: Of each length to change.
            rng: Where the change comes from.
        """
        if not self._mutations:
            return tuple(gene)
        change = self._mutations[int(rng.integers(len(self._mutations)))]
        return self._repaired(change(self._parts(gene), probability, rng)).gene()

    def cross(self, first: Sequence[int], second: Sequence[int], rng: np.random.Generator) -> Gene:
        """Cross two genes: whether a block runs, and its option, from either; levels averaged.

        Halves are rounded up; levels rise in neither parent, so not here (Kim & Cho 2020, Sec. 3.2).
        """
        a, b = self._parts(first), self._parts(second)
        runs, options = a.runs, a.options
        if self.varies != ("lengths",):
            from_first = rng.random(self.blocks) < 0.5
            runs = np.where(from_first, a.runs, b.runs).tolist()
            options = np.where(from_first, a.options, b.options).tolist()
        levels = [(x + y + 1) // 2 for x, y in zip(a.levels, b.levels, strict=True)]
        return self._repaired(_Parts(runs, options, levels)).gene()

    def lowered(self, subnet: Subnet) -> list[Subnet]:
        """Its neighbours with less: one block left out, one option further, or one length a level shorter.

        Where a block leaves, those behind it move up in the order of blocks that run, whose trained lengths
        may be longer: without ``widened`` such a neighbour may cost more.
        """
        parts = self._parts(self.encode(subnet))
        children: dict[Subnet, None] = {}
        for step in _steps(parts):
            repaired = self._repaired(step)
            # Below the least depth a block comes back: that is no step down.
            if all(now <= then for now, then in zip(repaired.runs, step.runs, strict=True)):
                children[self._decoded(repaired)] = None
        return [child for child in children if child != subnet]

    def features(self, subnet: Subnet) -> NDArray[np.float64]:
        """Features for a model of the score, each from 0 to 1, always as many.

        Of stacks whose blocks are chosen, which blocks run; which of them has which option; the encoder's
        lengths as shares of the reference, a pinned one left out where it is always the same block's.
        """
        parts = self._parts(self.encode(subnet))
        bits = iter(parts.runs)
        runs = [(depth, [next(bits) for _ in range(depth.blocks)]) for depth in self.depths]
        chosen = [bit for depth, bits_of in runs if _choices(depth) > 1 for bit in bits_of]
        off = [option == other for option in parts.options for other in range(1, len(self.options))]
        shares: list[float] = []
        if self.lengths is not None:
            fixed = self.lengths.pin_last and _choices(self.depths[0]) == 1
            levels = parts.levels[: self._lengths - fixed]
            shares = [self.lengths.levels[level] / self.lengths.reference for level in levels]
        return np.array([*chosen, *off, *shares], dtype=np.float64)

    def widened(self) -> "Space":
        """The space without the limits of training on single blocks; the range of costs stays.

        Single lengths lose their floors (``LengthGenes.widened``), and listed choices of blocks become any
        choice. Searches of it propose nothing that costs fewer MACs than the smallest trained configuration.
        """
        lengths = None if self.lengths is None else self.lengths.widened()
        return replace(self, depths=tuple(depth.widened() for depth in self.depths), lengths=lengths)

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as JSON has them."""
        return {
            "name": self.name,
            "source": self.source,
            "depths": [asdict(depth) for depth in self.depths],
            "lengths": None if self.lengths is None else self.lengths.to_dict(),
            "options": [asdict(option) for option in self.options],
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Space":
        """From what ``to_dict`` gave.

        Raises:
            SpaceError: If the fields describe no space.
        """
        try:
            return cls(
                str(fields["name"]),
                str(fields["source"]),
                tuple(map(block_genes_from_dict, fields["depths"])),
                None if fields["lengths"] is None else LengthGenes.from_dict(fields["lengths"]),
                tuple(
                    Groups(tuple(option["heads_off"]), option["ffn_share"], tuple(option["sublayers_off"]))
                    for option in fields["options"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, LdsearchError) as error:
            raise SpaceError(f"the space that was trained is damaged: {one_line(error)}") from error

    def identity(self) -> dict[str, Any]:
        """Fields that equal spaces share; names are left out."""
        return {key: value for key, value in self.to_dict().items() if key not in ("name", "source")}

    @cached_property
    def _mutations(self) -> list[Mutation]:
        """One for each kind of gene that can change."""
        changes = {
            self._other_blocks: "depth" in self.varies,
            self._other_options: len(self.options) > 1,
            self._other_lengths: self.lengths is not None,
        }
        return [change for change, can in changes.items() if can]

    def _other_blocks(self, parts: _Parts, probability: float, rng: np.random.Generator) -> _Parts:
        runs: list[int] = []
        for depth in self.depths:
            runs += depth.mutate(parts.runs[len(runs) : len(runs) + depth.blocks], rng)
        return parts._replace(runs=runs)

    def _other_options(self, parts: _Parts, probability: float, rng: np.random.Generator) -> _Parts:
        """Each option is drawn again with probability 1 / blocks."""
        drawn = rng.integers(len(self.options), size=self.blocks)
        hit = rng.random(self.blocks) * self.blocks < 1
        return parts._replace(options=np.where(hit, drawn, parts.options).tolist())

    def _other_lengths(self, parts: _Parts, probability: float, rng: np.random.Generator) -> _Parts:
        assert self.lengths is not None
        levels = [level for level, on in zip(parts.levels, parts.runs, strict=False) if on]
        return parts._replace(levels=self._spread(parts.runs, self.lengths.mutate(levels, probability, rng)))

    @property
    def _lengths(self) -> int:
        """The number of levels that a gene holds."""
        return 0 if self.lengths is None else self.depths[0].blocks

    @property
    def _top(self) -> int:
        return 0 if self.lengths is None else self.lengths.top

    def _running(self, runs: Sequence[int]) -> int:
        """The number of executed blocks that have a length."""
        return sum(runs[: self._lengths])

    def _counts(self, depth: BlockGenes) -> dict[int, int]:
        """The number of a stack's sub-networks of each depth."""
        counts = {}
        for keep in depth.keep:
            vectors = 1
            if self.lengths is not None and depth.stack == "encoder":
                vectors = self.lengths.size(keep)
            counts[keep] = depth.size(keep) * len(self.options) ** keep * vectors
        return counts

    def _spread(self, runs: Sequence[int], levels: Sequence[int]) -> list[int]:
        """Levels of blocks that run, in order, as one entry for each block."""
        following, previous = iter(levels), self._top
        return [previous := next(following) if on else previous for on in runs[: self._lengths]]

    def _repaired(self, parts: _Parts) -> _Parts:
        runs: list[int] = []
        for depth in self.depths:
            runs += depth.repair(parts.runs[len(runs) : len(runs) + depth.blocks])
        last = len(self.options) - 1
        options = [
            min(max(int(option), 0), last) if on else 0
            for option, on in zip(parts.options, runs, strict=True)
        ]
        levels: Sequence[int] = ()
        if self.lengths is not None:
            levels = self.lengths.repair([n for n, on in zip(parts.levels, runs, strict=False) if on])
        return _Parts(runs, options, self._spread(runs, levels))

    def _parts(self, gene: Sequence[int]) -> _Parts:
        entries = [int(entry) for entry in gene]
        return _Parts(
            entries[: self.blocks], entries[self.blocks : 2 * self.blocks], entries[2 * self.blocks :]
        )

    def _decoded(self, parts: _Parts) -> Subnet:
        stacks: dict[str, Stack] = {}
        first = 0
        for depth in self.depths:
            blocks = tuple(block for block in range(depth.blocks) if parts.runs[first + block])
            off = {block: self.options[parts.options[first + block]] for block in blocks}
            lengths: Lengths | None = None
            if self.lengths is not None and depth.stack == "encoder":
                lengths = self.lengths.lengths([parts.levels[block] for block in blocks])
            stacks[depth.stack] = grouped(blocks, off, lengths)
            first += depth.blocks
        return Subnet(**stacks)

    def _read(self, subnet: Subnet) -> _Parts | None:
        """The gene of a sub-network, taken apart; None where it names what this space has not."""
        stacks = subnet.stacks()
        if list(stacks) != [depth.stack for depth in self.depths]:
            return None
        pairs = [(stacks[depth.stack], block) for depth in self.depths for block in range(depth.blocks)]
        off = [stack.groups(block) for stack, block in pairs]
        if not set(off) <= set(self.options):
            return None
        runs = [int(block in stack.blocks) for stack, block in pairs]
        levels: Sequence[int] | None = ()
        if self.lengths is not None:
            stack = stacks["encoder"]
            # A block that is not in this stack has a length, but no place among the levels.
            if len(stack.blocks) != self._running(runs):
                return None
            levels = self.lengths.read(stack.lengths, len(stack.blocks))
        if levels is None:
            return None
        return _Parts(runs, [self.options.index(option) for option in off], self._spread(runs, levels))


def grouped(blocks: Sequence[int], off: Mapping[int, Groups], lengths: Lengths | None = None) -> Stack:
    """A stack from what is off inside each of its blocks."""
    return Stack(
        tuple(blocks),
        lengths,
        heads_off=tuple((block, head) for block in blocks for head in off[block].heads_off),
        ffn_share=tuple((block, off[block].ffn_share) for block in blocks if off[block].ffn_share < 1),
        sublayers_off=tuple((block, name) for block in blocks for name in off[block].sublayers_off),
    )


def _choices(depth: BlockGenes) -> int:
    return sum(map(depth.size, depth.keep))


def _leanest(options: Sequence[Groups]) -> int:
    """The option that leaves least: the feed-forward share counts first, then attention, then heads."""

    def left(index: int) -> tuple[float, bool, int]:
        option = options[index]
        share = option.ffn_share * option.runs("feed_forward")
        return share, option.runs("attention"), -len(option.heads_off)

    return min(range(len(options)), key=left)


def _steps(parts: _Parts) -> Iterator[_Parts]:
    """One block left out, one option further, or one length a level shorter; not all of them allowed."""

    def stepped(values: Sequence[int], place: int, step: int) -> list[int]:
        return [value + step * (index == place) for index, value in enumerate(values)]

    for block, on in enumerate(parts.runs):
        if on:
            yield parts._replace(runs=stepped(parts.runs, block, -1))
            yield parts._replace(options=stepped(parts.options, block, 1))
            if block < len(parts.levels):
                yield parts._replace(levels=stepped(parts.levels, block, -1))
