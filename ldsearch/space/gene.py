"""The gene of a joint space, taken apart: what runs, what is off inside, levels; and steps between genes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ldsearch.space.lengths import Gene, averaged, swept
from ldsearch.subnet import Groups, Lengths, Stack


@dataclass(frozen=True)
class Parts:
    """A gene taken apart, one entry per block, stack by stack, the encoder's first.

    Args:
        runs: 0 or 1.
        options: Indices of what is off inside a block; 0 where it does not run.
        levels: Indices of the encoder's lengths, where those are chosen; of a block that does not run that
            of the one before.
    """

    runs: Sequence[int]
    options: Sequence[int]
    levels: Sequence[int] = ()

    @classmethod
    def of(cls, gene: Sequence[int], blocks: int) -> "Parts":
        """From a gene of so many blocks, those of all stacks together."""
        entries = [int(entry) for entry in gene]
        return cls(entries[:blocks], entries[blocks : 2 * blocks], entries[2 * blocks :])

    def gene(self) -> Gene:
        """In one tuple."""
        return (*self.runs, *self.options, *self.levels)

    def drawn(self, options: int, rng: np.random.Generator) -> "Parts":
        """Each option is drawn again, of so many, with probability 1 / blocks."""
        drawn = rng.integers(options, size=len(self.options))
        hit = rng.random(len(self.options)) * len(self.options) < 1
        return replace(self, options=np.where(hit, drawn, self.options).tolist())

    def swept(self, floor: int, top: int, probability: float, rng: np.random.Generator) -> "Parts":
        """Levels of blocks that run, as the length-adaptive paper's mutation changes them."""
        running = [block for block in range(len(self.levels)) if self.runs[block]]
        levels = list(self.levels)
        own = swept([levels[b] for b in running], [floor] * len(running), top, probability, rng)
        for block, level in zip(running, own, strict=True):
            levels[block] = level
        return replace(self, levels=levels)

    def crossed(self, other: "Parts", rng: np.random.Generator) -> "Parts":
        """Whether a block runs, and its option, from either parent; levels averaged, halves rounded up."""
        own = rng.random(len(self.runs)) < 0.5
        return Parts(
            np.where(own, self.runs, other.runs).tolist(),
            np.where(own, self.options, other.options).tolist(),
            averaged(self.levels, other.levels),
        )

    def steps(self) -> Iterator["Parts"]:
        """One block left out, one option further, or one length a level shorter; not all of them allowed."""
        for block, on in enumerate(self.runs):
            if on:
                yield replace(self, runs=_stepped(self.runs, block, -1))
                yield replace(self, options=_stepped(self.options, block, 1))
                if block < len(self.levels):
                    yield replace(self, levels=_stepped(self.levels, block, -1))


def grouped(blocks: Sequence[int], off: Mapping[int, Groups], lengths: Lengths | None = None) -> Stack:
    """A stack from what is off inside each of its blocks."""
    return Stack(
        tuple(blocks),
        lengths,
        heads_off=tuple((block, head) for block in blocks for head in off[block].heads_off),
        ffn_share=tuple((block, off[block].ffn_share) for block in blocks if off[block].ffn_share < 1),
        sublayers_off=tuple((block, name) for block in blocks for name in off[block].sublayers_off),
    )


def leanest(options: Sequence[Groups]) -> int:
    """The option that leaves least: the feed-forward share counts first, then attention, then heads."""

    def left(index: int) -> tuple[float, bool, int]:
        own = options[index]
        share = own.ffn_share * own.runs("feed_forward")
        return share, own.runs("attention"), -len(own.heads_off)

    return min(range(len(options)), key=left)


def _stepped(values: Sequence[int], place: int, step: int) -> list[int]:
    return [value + step * (index == place) for index, value in enumerate(values)]
