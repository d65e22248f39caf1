"""Chunks: consecutive blocks go, the baselines that hurt (Fan, Grave & Joulin 2019, Sec. 3.2)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ldsearch.errors import SpaceError
from ldsearch.search.listed import Listed
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Subnet

# From how many free blocks stay to how many of them lie before the chunk. An odd one stays behind the
# middle chunk.
PLACES: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"first": lambda staying: 0, "middle": lambda staying: staying // 2, "last": lambda staying: staying}
)


class Chunks(Listed):
    """Proposes, at each depth of the space, the sub-network without a chunk of consecutive blocks, once.

    The chunk is taken from the blocks that are not pinned; a pinned one inside it stays.

    Args:
        space: Names the depths.
        place: Where the chunk lies: ``"first"``, ``"middle"`` or ``"last"``.

    Raises:
        SpaceError: If the place is none of them.
    """

    def __init__(self, space: DepthSpace, place: str) -> None:
        if place not in PLACES:
            raise SpaceError(f"no place {place!r} for a chunk of blocks: use one of {', '.join(PLACES)}")
        super().__init__(f"chunk-{place}", [])
        free = [block for block in range(space.blocks) if block not in space.pinned]
        for depth in space.keep:
            staying = depth - len(space.pinned)
            before = PLACES[place](staying)
            kept = [*space.pinned, *free[:before], *free[len(free) - (staying - before) :]]
            self.subnets.append(Subnet.of_blocks({space.stack: sorted(kept)}))
