"""Learned: the blocks with the strongest signal (Fan, Grave & Joulin 2019, "Data Driven Pruning")."""

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SpaceError
from ldsearch.search.listed import Listed
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Subnet


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


class Learned(Listed):
    """Proposes the blocks with the strongest signal at each depth of the space, once.

    A shallower choice is part of every deeper one, and no input changes it.

    Args:
        space: Names the depths.
        signal: Shape (blocks,), higher for blocks that matter more: learned importance, or influence.
        name: The strategy's name in tables: what the signal is.

    Raises:
        SpaceError: If there is not one finite number per block.
    """

    def __init__(self, space: DepthSpace, signal: NDArray[np.float64], name: str = "learned") -> None:
        if signal.shape != (space.blocks,) or not np.isfinite(signal).all():
            raise SpaceError(f"{space.name} needs one finite signal for each of its {space.blocks} blocks")
        ranked = signal.astype(np.float64)
        ranked[list(space.pinned)] = np.inf
        kept = (strongest(ranked, count) for count in space.keep)
        super().__init__(name, [Subnet.of_blocks({space.stack: own}) for own in kept])
