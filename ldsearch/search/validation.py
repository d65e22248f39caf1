"""Search on validation data: every choice of blocks, measured (Fan, Grave & Joulin 2019, Sec. 3.2)."""

from collections.abc import Sequence

from ldsearch.errors import SpaceError
from ldsearch.space import SearchSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

MOST = 20_000


class Validation:
    """Proposes every choice of the space, once, shallow first.

    Args:
        space: Names the depths.

    Raises:
        SpaceError: If there are more than ``MOST`` choices.
    """

    name = "validation"

    def __init__(self, space: SearchSpace) -> None:
        if (choices := space.size()) > MOST:
            raise SpaceError(
                f"{choices:,} choices of blocks are too many to measure one and all ({MOST:,} are the most): "
                "keep another number, or use beam, swaps, every-other or learned"
            )
        self.space = space

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """All choices in generation 0, then nothing."""
        return list(self.space.enumerate()) if generation == 0 else []
