"""Rules: strategies that list what they propose once, whatever is measured.

Every Other, chunks, search on validation data and data-driven pruning are those of Fan, Grave & Joulin 2019,
Sec. 3.2; chunks are the baselines that hurt.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SpaceError
from ldsearch.space import DepthGenes, Space
from ldsearch.space.blocks import evenly_spaced
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

MOST = 20_000  # choices that are measured one and all
# From how many free blocks stay to how many of them lie before the chunk. An odd one stays behind the
# middle chunk.
PLACES: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"first": lambda staying: 0, "middle": lambda staying: staying // 2, "last": lambda staying: staying}
)


class Listed:
    """Proposes a list of sub-networks, once.

    Args:
        name: For reports.
        subnets: The list.
    """

    def __init__(self, name: str, subnets: Sequence[Subnet]) -> None:
        self.name = name
        self.subnets = list(subnets)

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


class EveryOther(Listed):
    """Proposes the evenly spaced sub-network of each depth, once.

    Args:
        depth: The stack, the depths to propose, and blocks that must stay.

    Raises:
        SpaceError: If the even spacing of a depth would drop a pinned block.
    """

    def __init__(self, depth: DepthGenes) -> None:
        kept = (every_other(depth.blocks, count, depth.pinned) for count in depth.keep)
        super().__init__("every-other", [Subnet.of_blocks({depth.stack: blocks}) for blocks in kept])


class EveryOtherLiteral(Listed):
    """Proposes what the printed rule keeps at the rate 1 - keep / blocks of each depth, once.

    Args:
        depth: The stack and the depths; ``literal_depths`` has those that will do.

    Raises:
        SpaceError: If the rate of a depth is not in (0, 1/2], the rule gives another depth at that rate,
            or it would drop a pinned block.
    """

    def __init__(self, depth: DepthGenes) -> None:
        super().__init__("every-other-literal", [])
        for count in depth.keep:
            kept = every_other_literal(depth.blocks, 1 - Fraction(count, depth.blocks))
            if len(kept) != count:
                raise SpaceError(
                    f"the literal Every Other rule keeps {len(kept)} blocks instead of {count} of "
                    f"{depth.blocks}: use every-other, or keep one of {list(literal_depths(depth.blocks))}"
                )
            if dropped := sorted(set(depth.pinned) - set(kept)):
                raise SpaceError(
                    f"the literal Every Other rule keeps blocks {list(kept)} of {depth.blocks}, but "
                    f"{dropped} must stay in this model"
                )
            self.subnets.append(Subnet.of_blocks({depth.stack: kept}))


class Chunks(Listed):
    """Proposes, at each depth, the sub-network without a chunk of consecutive blocks, once.

    The chunk is taken from the blocks that are not pinned; a pinned one inside it stays.

    Args:
        depth: The stack, its depths and pinned blocks.
        place: Where the chunk lies: ``"first"``, ``"middle"`` or ``"last"``.

    Raises:
        SpaceError: If the place is none of them.
    """

    def __init__(self, depth: DepthGenes, place: str) -> None:
        if place not in PLACES:
            raise SpaceError(f"no place {place!r} for a chunk of blocks: use one of {', '.join(PLACES)}")
        super().__init__(f"chunk-{place}", [])
        free = depth.free
        for count in depth.keep:
            staying = count - len(depth.pinned)
            before = PLACES[place](staying)
            kept = [*depth.pinned, *free[:before], *free[len(free) - (staying - before) :]]
            self.subnets.append(Subnet.of_blocks({depth.stack: sorted(kept)}))


class Learned(Listed):
    """Proposes the blocks with the strongest signal at each depth, once ("Data Driven Pruning").

    A shallower choice is part of every deeper one, and no input changes it.

    Args:
        depth: The stack, its depths and pinned blocks.
        signal: Shape (blocks,), higher for blocks that matter more: learned importance, or influence.
        name: The strategy's name in tables: what the signal is.

    Raises:
        SpaceError: If there is not one finite number per block.
    """

    def __init__(self, depth: DepthGenes, signal: NDArray[np.float64], name: str = "learned") -> None:
        if signal.shape != (depth.blocks,) or not np.isfinite(signal).all():
            raise SpaceError(f"{name} needs one finite signal for each of the {depth.blocks} blocks")
        ranked = signal.astype(np.float64)
        ranked[list(depth.pinned)] = np.inf
        kept = (strongest(ranked, count) for count in depth.keep)
        super().__init__(name, [Subnet.of_blocks({depth.stack: blocks}) for blocks in kept])


class Validation:
    """Proposes every choice of the space, once, shallow first.

    Args:
        space: The depths of each stack.

    Raises:
        SpaceError: If there are more than ``MOST`` choices.
    """

    name = "validation"

    def __init__(self, space: Space) -> None:
        if (choices := space.size()) > MOST:
            raise SpaceError(
                f"{choices:,} choices of blocks are too many to measure one and all ({MOST:,} are the most): "
                "keep another number, or use beam, swaps, every-other or learned"
            )
        self.space = space

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """All choices in generation 0, then nothing."""
        return list(self.space.enumerate()) if generation == 0 else []
