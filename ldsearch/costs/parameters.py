"""Parameters of a sub-network, materialised: embedding, what runs of the executed blocks, head."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SubnetError
from ldsearch.subnet import Groups, Subnet


@dataclass(frozen=True)
class BlockParameters:
    """Parameter counts of one block.

    Args:
        total: All of it.
        attention: Of the attention sub-layer, its norm included.
        feed_forward: Of the feed-forward sub-layer, its norm included.
        per_head: Of one attention head.
        units: Width of the feed-forward layer.
        per_unit: Of one feed-forward unit.
    """

    total: int
    attention: int = 0
    feed_forward: int = 0
    per_head: int = 0
    units: int = 0
    per_unit: int = 0

    def without(self, groups: Groups) -> int:
        """What is left when groups are off."""
        left = self.total
        if groups.runs("attention"):
            left -= self.per_head * len(groups.heads_off)
        else:
            left -= self.attention
        if groups.runs("feed_forward"):
            left -= self.per_unit * (self.units - groups.width(self.units)) if self.units else 0
        else:
            left -= self.feed_forward
        return left


@dataclass(frozen=True)
class Parameters:
    """Parameter counts from the counts of the model's stages.

    Args:
        per_block: Parameters of each block.
        elsewhere: Parameters of everything that is not a block.
    """

    per_block: tuple[BlockParameters, ...]
    elsewhere: int
    name: str = field(default="parameters", init=False)
    unit: str = field(default="parameters", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network is not an encoder's.
        """
        return np.array([self._count(subnet) for subnet in subnets], dtype=np.float64)

    def _count(self, subnet: Subnet) -> int:
        stack = subnet.encoder
        if stack is None or subnet.decoder is not None:
            raise SubnetError("parameters are counted for encoders only")
        return self.elsewhere + sum(self.per_block[b].without(stack.groups(b)) for b in stack.blocks)
