"""MACs from traced counts: each block's, and everything else's, as a quadratic of the input length."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SubnetError
from ldsearch.subnet import Subnet
from ldsearch.workload import Workload

# Coefficients of 1, n and n².
Quadratic = tuple[float, float, float]


@dataclass(frozen=True)
class TracedMacs:
    """MACs per example of depth sub-networks at the lengths of a workload.

    Args:
        blocks: Of each block.
        elsewhere: Of everything that is not a block.
        workload: The lengths to average over.
        name: The cost's name in tables.
    """

    blocks: tuple[Quadratic, ...]
    elsewhere: Quadratic
    workload: Workload
    name: str = "macs"
    unit: str = field(default="MACs/example", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network is finer than whole blocks, or has one that the model has not.
        """
        return np.array([self._count(subnet) for subnet in subnets], dtype=np.float64)

    def _count(self, subnet: Subnet) -> float:
        stack = subnet.encoder
        if stack is None or subnet.decoder is not None or stack.structured or stack.lengths is not None:
            raise SubnetError("traced MACs are counted for whole blocks only")
        if stack.blocks and stack.blocks[-1] >= len(self.blocks):
            raise SubnetError(f"block {stack.blocks[-1]} of a model of {len(self.blocks)} blocks (0-based)")
        return self._mean(self.elsewhere) + sum(self._mean(self.blocks[block]) for block in stack.blocks)

    def _mean(self, quadratic: Quadratic) -> float:
        n = self.workload.lengths.astype(np.float64)
        per_length = sum(c * n**power for power, c in enumerate(quadratic))
        return float(per_length @ self.workload.shares)
