"""Rules: strategies that list what they propose once, whatever is measured.

Every Other, chunks, search on validation data and data-driven pruning are those of Fan, Grave & Joulin 2019,
Sec. 3.2; chunks are the baselines that hurt.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SpaceError
from ldsearch.search.loop import StrategyContext
from ldsearch.space import DepthGenes
from ldsearch.space.blocks import evenly_spaced
from ldsearch.subnet import Stack, Subnet
from ldsearch.trials.trial import Trial

MOST = 20_000  # choices that are measured one and all
# From how many free blocks stay to how many of them lie before the chunk. An odd one stays behind the
# middle chunk.
PLACES: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"first": lambda staying: 0, "middle": lambda staying: staying // 2, "last": lambda staying: staying}
)
# Blocks that a rule keeps of a stack, given how many.
Kept = Callable[[DepthGenes, int], Sequence[int]]


class Listed:
    """Proposes a list of sub-networks, once.

    Args:
        name: For reports.
        subnets: The list.
        facts: What they were chosen by, for the run's record.
    """

    def __init__(self, name: str, subnets: Sequence[Subnet], facts: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.subnets = list(subnets)
        self.facts = facts or {}

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """All of them in generation 0, then nothing."""
        return self.subnets if generation == 0 else []


def every_other(blocks: int, keep: int, pinned: Sequence[int] = ()) -> tuple[int, ...]:
    """Keep ``keep`` of ``blocks`` blocks (0-based): ``floor(i * blocks / keep)`` for i = 0..keep-1.

    Equals the paper's rule where that one keeps the wanted number, and also reaches depths that it
    cannot express (12 to 3). Block 0 is always kept.

    Raises:
        SpaceError: If ``keep`` is not in 1..blocks, or the rule would drop a pinned block.
    """
    if not 1 <= keep <= blocks:
        raise SpaceError(f"cannot keep {keep} of {blocks} blocks")
    kept = evenly_spaced(blocks, keep)
    if dropped := sorted(set(pinned) - set(kept)):
        raise SpaceError(
            f"every-other keeps blocks {list(kept)} of {blocks}, but {dropped} must stay in this model"
        )
    return kept


def every_other_literal(blocks: int, rate: Fraction) -> tuple[int, ...]:
    """The printed rule: drop depths d (1-based) with d = 0 mod floor(1 / rate). Returns 0-based ids.

    It drops half at 0.4 and everything above 0.5, which is why ``every_other`` is the default. The rate
    is a fraction: as a float, 1 - 8/12 would drop a half instead of a third.

    Raises:
        SpaceError: If the rate is not in (0, 1/2].
    """
    if not 0 < rate <= Fraction(1, 2):
        raise SpaceError(
            f"the literal Every Other rule needs a rate in (0, 0.5], not {rate}: above, it drops every block"
        )
    step = rate.denominator // rate.numerator
    return tuple(depth - 1 for depth in range(1, blocks + 1) if depth % step)


def literal_depths(blocks: int) -> tuple[int, ...]:
    """The depths below the full one that the printed rule gives exactly, ascending: 6, 8, 9, 10, 11 of 12."""
    return tuple(sorted({blocks - blocks // step for step in range(2, blocks + 1)}))


def strongest(signal: NDArray[np.float64], keep: int) -> tuple[int, ...]:
    """The ``keep`` blocks (0-based, ascending) with the highest signal; ties to the earlier block.

    Args:
        signal: Shape (blocks,), higher for blocks that matter more.
        keep: How many.

    Raises:
        SpaceError: If ``keep`` is not in 1..blocks.
    """
    if not 1 <= keep <= len(signal):
        raise SpaceError(f"cannot keep {keep} of {len(signal)} blocks")
    return tuple(sorted(np.argsort(-signal, kind="stable")[:keep].tolist()))


def per_stack(name: str, kept: Kept) -> Callable[[StrategyContext], Listed]:
    """A rule for each stack on its own: what ``kept`` keeps at every depth; of two stacks every pair."""

    def build(context: StrategyContext) -> Listed:
        return Listed(name, _pairs({depth: depth.keep for depth in blocks_of(context)}, kept))

    return build


def build_every_other_literal(context: StrategyContext) -> Listed:
    """The printed rule at the rate 1 - keep / blocks of each depth; without a depth, at those it can express.

    Raises:
        SpaceError: If the rate of the only depth is not in (0, 1/2], the rule gives another depth at that
            rate, or it would drop a pinned block.
    """

    def kept(depth: DepthGenes, count: int) -> tuple[int, ...]:
        blocks = every_other_literal(depth.blocks, 1 - Fraction(count, depth.blocks))
        if len(blocks) != count:
            raise SpaceError(
                f"the literal Every Other rule keeps {len(blocks)} blocks instead of {count} of "
                f"{depth.blocks}: use every-other, or keep one of {list(literal_depths(depth.blocks))}"
            )
        if dropped := sorted(set(depth.pinned) - set(blocks)):
            raise SpaceError(
                f"the literal Every Other rule keeps blocks {list(blocks)} of {depth.blocks}, but "
                f"{dropped} must stay in this model"
            )
        return blocks

    counts = {
        depth: depth.keep if len(depth.keep) == 1 else literal_depths(depth.blocks)
        for depth in blocks_of(context)
    }
    return Listed("every-other-literal", _pairs(counts, kept))


def without_chunk(place: str) -> Kept:
    """Keep all but a chunk of consecutive blocks, taken from those that are not pinned.

    Args:
        place: Where the chunk lies: a key of ``PLACES``.
    """

    def kept(depth: DepthGenes, count: int) -> list[int]:
        staying = count - len(depth.pinned)
        before = PLACES[place](staying)
        free = depth.free
        return sorted([*depth.pinned, *free[:before], *free[len(free) - (staying - before) :]])

    return kept


def by_signal(name: str) -> Callable[[StrategyContext], Listed]:
    """Keep the blocks with the strongest signal at each depth ("Data Driven Pruning").

    A shallower choice is part of every deeper one, and no input changes it. The strategy raises
    ``SpaceError`` if there is not one finite number per block.

    Args:
        name: The signal's, and the strategy's: what ``StrategyContext.signal`` knows.
    """

    def build(context: StrategyContext) -> Listed:
        depth = only_stack(context, name)
        signal = np.zeros(0) if context.signal is None else context.signal(name)
        if signal.shape != (depth.blocks,) or not np.isfinite(signal).all():
            raise SpaceError(f"{name} needs one finite signal for each of the {depth.blocks} blocks")
        ranked = signal.astype(np.float64)
        ranked[list(depth.pinned)] = np.inf
        subnets = _pairs({depth: depth.keep}, lambda _, count: strongest(ranked, count))
        return Listed(name, subnets, {"signal": signal.tolist()})

    return build


def every_choice(name: str) -> Callable[[StrategyContext], Listed]:
    """Propose every sub-network of the space, shallow first; more than ``MOST`` are refused."""

    def build(context: StrategyContext) -> Listed:
        if (choices := context.space.size()) > MOST:
            raise SpaceError(
                f"{choices:,} choices of blocks are too many to measure one and all ({MOST:,} are the most): "
                "keep another number, or use beam, swaps, every-other or learned"
            )
        return Listed(name, list(context.space.enumerate()))

    return build


def blocks_of(context: StrategyContext) -> tuple[DepthGenes, ...]:
    """The choices of blocks of each stack; listed choices stand for any of their depths."""
    return tuple(depth.widened() for depth in context.space.depths)


def only_stack(context: StrategyContext, name: str) -> DepthGenes:
    """The choices of blocks of the only stack.

    Raises:
        SpaceError: If there are two.
    """
    if len(context.space.depths) > 1:
        raise SpaceError(f"{name} chooses blocks of one stack, this model has two")
    return blocks_of(context)[0]


def _pairs(counts: Mapping[DepthGenes, Sequence[int]], kept: Kept) -> list[Subnet]:
    """Sub-networks of the blocks kept at each depth; of two stacks every pair."""
    stacks = ([(depth.stack, Stack(tuple(kept(depth, n)))) for n in keep] for depth, keep in counts.items())
    return [Subnet(**dict(pair)) for pair in itertools.product(*stacks)]
