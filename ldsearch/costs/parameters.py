"""Parameters of a sub-network as it would be exported: embedding, executed blocks, head."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SubnetError
from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class Parameters:
    """Parameter counts from the counts of the model's stages.

    Args:
        per_block: Parameters of each block.
        elsewhere: Parameters of everything that is not a block.
    """

    per_block: tuple[int, ...]
    elsewhere: int
    name: str = field(default="parameters", init=False)
    unit: str = field(default="parameters", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network is finer than blocks and lengths.
        """
        return np.array([self._count(subnet) for subnet in subnets], dtype=np.float64)

    def _count(self, subnet: Subnet) -> int:
        if subnet.encoder is None or subnet.encoder.structured or subnet.decoder is not None:
            raise SubnetError("parameters are counted for encoder blocks and lengths only")
        return self.elsewhere + sum(self.per_block[block] for block in subnet.encoder.blocks)
