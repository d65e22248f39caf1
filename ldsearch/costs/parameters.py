"""Parameters of a sub-network, materialised: embedding, what runs of the executed blocks, head."""

from collections.abc import Mapping, Sequence
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
        attention: Of the attention sub-layer, its norm included unless that stays.
        feed_forward: Of the feed-forward sub-layer, likewise.
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
        """Parameters left when groups are off."""
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
        per_block: Parameters of each block of each stack, by the stack's name.
        elsewhere: Parameters of everything that is not a block.
        once: Of a stack, those that its first block holds, whichever that is (T5's table of positions).
    """

    per_block: Mapping[str, tuple[BlockParameters, ...]]
    elsewhere: int
    once: Mapping[str, int] = field(default_factory=dict)
    name: str = field(default="parameters", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network names other stacks.
        """
        return np.array([self._count(subnet) for subnet in subnets], dtype=np.float64)

    def _count(self, subnet: Subnet) -> int:
        stacks = subnet.stacks()
        if set(stacks) != set(self.per_block):
            raise SubnetError(f"parameters are counted of {' and '.join(self.per_block)}")
        held = sum(self.once.get(name, 0) for name, stack in stacks.items() if stack.blocks)
        inside = sum(
            self.per_block[name][block].without(stack.groups(block))
            for name, stack in stacks.items()
            for block in stack.blocks
        )
        return self.elsewhere + held + inside
