"""A list of sub-networks as a strategy."""

from collections.abc import Sequence

from ldsearch.subnet import Subnet
from ldsearch.trial import Trial


class Listed:
    """Proposes what it was given, once.

    Args:
        name: For reports.
        subnets: What to measure.
    """

    def __init__(self, name: str, subnets: Sequence[Subnet]) -> None:
        self.name = name
        self.subnets = list(subnets)

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """All of them in generation 0, then nothing."""
        return self.subnets if generation == 0 else []
