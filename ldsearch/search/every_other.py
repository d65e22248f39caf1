"""Every Other: evenly spaced blocks, no search (Fan, Grave & Joulin 2019, Sec. 3.2)."""

from collections.abc import Sequence
from fractions import Fraction

from ldsearch.errors import SpaceError
from ldsearch.search.listed import Listed
from ldsearch.space.blocks import DepthSpace, evenly_spaced
from ldsearch.subnet import Subnet


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


class EveryOther(Listed):
    """Proposes the evenly spaced sub-network of each wanted depth, once.

    Args:
        blocks: Number of blocks of the model.
        keep: Depths to propose.
        pinned: Blocks that must stay (``Supernet.pinned``).
        stack: The name of the blocks' stack.

    Raises:
        SpaceError: If a depth is not there, or its even spacing would drop a pinned block.
    """

    def __init__(
        self, blocks: int, keep: Sequence[int], pinned: Sequence[int] = (), stack: str = "encoder"
    ) -> None:
        kept = (every_other(blocks, count, pinned) for count in keep)
        super().__init__("every-other", [Subnet.of_blocks({stack: own}) for own in kept])


def literal_depths(blocks: int) -> tuple[int, ...]:
    """The depths below the full one that the printed rule gives exactly, ascending: 6, 8, 9, 10, 11 of 12."""
    return tuple(sorted({blocks - blocks // step for step in range(2, blocks + 1)}))


class EveryOtherLiteral(Listed):
    """Proposes what the printed rule keeps at the rate 1 - keep / blocks of each depth of the space, once.

    Args:
        space: Names the depths; ``literal_depths`` has those that will do.

    Raises:
        SpaceError: If the rate of a depth is not in (0, 1/2], the rule gives another depth at that rate,
            or it would drop a pinned block.
    """

    def __init__(self, space: DepthSpace) -> None:
        super().__init__("every-other-literal", [])
        for depth in space.keep:
            kept = every_other_literal(space.blocks, 1 - Fraction(depth, space.blocks))
            if len(kept) != depth:
                raise SpaceError(
                    f"the literal Every Other rule keeps {len(kept)} blocks instead of {depth} of "
                    f"{space.blocks}: use every-other, or keep one of {list(literal_depths(space.blocks))}"
                )
            if dropped := sorted(set(space.pinned) - set(kept)):
                raise SpaceError(
                    f"the literal Every Other rule keeps blocks {list(kept)} of {space.blocks}, but "
                    f"{dropped} must stay in this model"
                )
            self.subnets.append(Subnet.of_blocks({space.stack: kept}))
