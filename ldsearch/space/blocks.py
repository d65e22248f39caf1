"""Genes for the executed blocks of a stack: any choice of so many, or listed choices."""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.space.assignments import assignment_named, check_blocks

# One 0 or 1 per block.
Runs = tuple[int, ...]


@dataclass(frozen=True)
class DepthGenes:
    """Any blocks of a stack, so many of them.

    Args:
        stack: ``"encoder"`` or ``"decoder"``.
        blocks: Number of blocks of the stack.
        keep: The allowed numbers of executed blocks, ascending, those of pinned blocks included.
        pinned: Blocks that always run (``Supernet.pinned_of``).

    Raises:
        SpaceError: If a depth or a pinned block is not there, or a depth is below the number of pinned ones.
    """

    stack: str
    blocks: int
    keep: tuple[int, ...]
    pinned: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_blocks(self.blocks)
        if list(self.pinned) != sorted({*self.pinned} & {*range(self.blocks)}):
            raise SpaceError(f"pinned blocks {list(self.pinned)} must be ascending ids below {self.blocks}")
        least = max(1, len(self.pinned))
        if not self.keep or not all(least <= count <= self.blocks for count in self.keep):
            pinned = f", since {least} blocks are pinned" if least > 1 else ""
            raise SpaceError(f"keep {list(self.keep)} must name depths in {least}..{self.blocks}{pinned}")

    @classmethod
    def whole(cls, stack: str, blocks: int) -> "DepthGenes":
        """A stack that keeps all of its blocks."""
        return cls(stack, blocks, (blocks,))

    def size(self, depth: int) -> int:
        """The binomial over the blocks that are not pinned."""
        return math.comb(len(self.free), depth - len(self.pinned))

    def enumerate(self, depth: int) -> Iterator[Runs]:
        """In lexicographic order of the blocks: the earliest that are not pinned first."""
        for chosen in itertools.combinations(self.free, depth - len(self.pinned)):
            yield self._runs({*chosen, *self.pinned})

    def sample(self, depth: int, rng: np.random.Generator) -> Runs:
        """Uniform over the choices of so many blocks."""
        chosen = rng.choice(self.free, size=depth - len(self.pinned), replace=False).tolist()
        return self._runs({*chosen, *self.pinned})

    def even(self, depth: int) -> Runs:
        """Evenly spaced blocks; pinned ones take the place of the last others."""
        return self._nearest({*evenly_spaced(self.blocks, depth), *self.pinned}, depth)

    def repair(self, runs: Sequence[int]) -> Runs:
        """To the nearest allowed depth: later blocks go first, earlier blocks come back first.

        Pinned blocks come back before anything else.
        """
        running = {block for block, on in enumerate(runs) if on} | set(self.pinned)
        return self._nearest(running, self._allowed(len(running)))

    def mutate(self, runs: Sequence[int], rng: np.random.Generator) -> Runs:
        """Each block starts or stops running with probability 1 / blocks.

        Where that is no allowed depth, it goes on to the nearest by random blocks: ``repair`` favours early
        ones.
        """
        hit = rng.random(self.blocks) * self.blocks < 1
        running = {b for b in range(self.blocks) if bool(runs[b]) != hit[b]} | set(self.pinned)
        luck = rng.random(self.blocks)
        order = sorted(range(self.blocks), key=lambda b: (b not in self.pinned, b not in running, luck[b]))
        return self._runs(order[: self._allowed(len(running))])

    def widened(self) -> "DepthGenes":
        """Itself: any choice of these depths is allowed already."""
        return self

    @property
    def free(self) -> list[int]:
        """The blocks that are not pinned."""
        return [block for block in range(self.blocks) if block not in self.pinned]

    def _runs(self, blocks: Collection[int]) -> Runs:
        return tuple(int(block in blocks) for block in range(self.blocks))

    def _nearest(self, running: Collection[int], count: int) -> Runs:
        """So many blocks: first the pinned ones, then those that run, then the others, each in order."""
        order = sorted(range(self.blocks), key=lambda b: (b not in self.pinned, b not in running))
        return self._runs(order[:count])

    def _allowed(self, depth: int) -> int:
        """The nearest allowed depth; of two the shallower."""
        return min(self.keep, key=lambda allowed: (abs(allowed - depth), allowed))


@dataclass(frozen=True)
class ListedDepths:
    """Listed choices of blocks of a stack, as flexible depth trains them (Wang, Xiao & Zhu 2020).

    Args:
        stack: ``"encoder"`` or ``"decoder"``.
        blocks: Number of blocks of the stack.
        choices: Ascending 0-based block ids of each choice, shallow first.

    Raises:
        SpaceError: If there is no choice, or one is empty or names a block that is not there.
    """

    stack: str
    blocks: int
    choices: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        check_blocks(self.blocks)
        for choice in self.choices or ((),):
            if not choice or list(choice) != sorted({*choice} & {*range(self.blocks)}):
                raise SpaceError(f"choices of {self.blocks} blocks hold ascending ids, not {list(choice)}")

    @classmethod
    def assigned(cls, stack: str, blocks: int, assignment: str) -> "ListedDepths":
        """One choice for each divisor of the number of blocks (``assignments.ASSIGNMENTS``).

        Raises:
            SpaceError: If there is no such assignment, or no block.
        """
        return cls(stack, blocks, tuple(assignment_named(assignment, blocks).values()))

    @property
    def keep(self) -> tuple[int, ...]:
        """The numbers of blocks of the choices, ascending."""
        return tuple(sorted({len(choice) for choice in self.choices}))

    def size(self, depth: int) -> int:
        """Number of choices of so many blocks."""
        return len(self._of(depth))

    def enumerate(self, depth: int) -> Iterator[Runs]:
        """Every choice of so many blocks, in the order of the list."""
        return iter(self._of(depth))

    def sample(self, depth: int, rng: np.random.Generator) -> Runs:
        """Uniform over the choices of so many blocks."""
        choices = self._of(depth)
        return choices[int(rng.integers(len(choices)))]

    def even(self, depth: int) -> Runs:
        """The first choice of so many blocks."""
        return self._of(depth)[0]

    def repair(self, runs: Sequence[int]) -> Runs:
        """The choice that differs in fewest blocks; of equal ones the first of the list."""
        on = [bool(bit) for bit in runs]
        return min(self._every, key=lambda bits: sum(bool(a) != b for a, b in zip(bits, on, strict=True)))

    def mutate(self, runs: Sequence[int], rng: np.random.Generator) -> Runs:
        """Any choice, uniformly: the list is short."""
        return self._every[int(rng.integers(len(self._every)))]

    def widened(self) -> DepthGenes:
        """Any choice of at least as many blocks as the shallowest has."""
        return DepthGenes(self.stack, self.blocks, tuple(range(self.keep[0], self.blocks + 1)))

    @property
    def _every(self) -> list[Runs]:
        return [tuple(int(block in choice) for block in range(self.blocks)) for choice in self.choices]

    def _of(self, depth: int) -> list[Runs]:
        return [runs for runs in self._every if sum(runs) == depth]


BlockGenes = DepthGenes | ListedDepths


def block_genes_from_dict(fields: Mapping[str, Any]) -> BlockGenes:
    """The choices that ``dataclasses.asdict`` gave as fields."""
    if "choices" in fields:
        choices = tuple(tuple(choice) for choice in fields["choices"])
        return ListedDepths(fields["stack"], int(fields["blocks"]), choices)
    return DepthGenes(fields["stack"], int(fields["blocks"]), tuple(fields["keep"]), tuple(fields["pinned"]))


def evenly_spaced(blocks: int, keep: int) -> tuple[int, ...]:
    """``floor(i * blocks / keep)`` for i = 0..keep-1: every other block, and any other share."""
    return tuple(i * blocks // keep for i in range(keep))
