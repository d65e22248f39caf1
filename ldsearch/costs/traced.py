"""MACs from traced counts: each block's, and everything else's, as a polynomial of the lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldsearch.costs.macs import Macs
from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError
from ldsearch.subnet import Subnet

# Coefficients of the powers (of n, of t) in POWERS: n tokens are read, t written.
Polynomial = tuple[float, ...]
POWERS = ((0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 1))


def terms(read: NDArray[np.float64], written: NDArray[np.float64]) -> NDArray[np.float64]:
    """The powers of lengths of shape (inputs,), in the order of ``POWERS``: shape (inputs, 6)."""
    return np.stack([read**n * written**t for n, t in POWERS], axis=-1)


@dataclass(frozen=True)
class TracedMacs:
    """MACs per example of depth sub-networks at the lengths of a workload.

    A decoder is counted as it reads a whole text at once, without a search over texts.

    Args:
        blocks: Of each block of each stack, by the stack's name.
        elsewhere: Of everything that is not a block.
        workload: The lengths to average over.
        name: The cost's name in tables.
        encoder: Closed form of an encoder-decoder's encoder that can drop tokens, instead of its ``blocks``.
        kept_memory: Whether the decoder attends to the kept tokens only.
    """

    blocks: Mapping[str, tuple[Polynomial, ...]]
    elsewhere: Polynomial
    workload: Workload
    name: str = "macs"
    encoder: Macs | None = None
    kept_memory: bool = False

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network names other stacks or blocks than the model has, or is finer than
                whole blocks where the closed form does not count it.
        """
        return np.array([self._count(subnet) for subnet in subnets], dtype=np.float64)

    def _count(self, subnet: Subnet) -> float:
        stacks = subnet.stacks()
        if set(stacks) != set(self.blocks):
            raise SubnetError(f"these MACs are counted of {' and '.join(self.blocks)}")
        read, closed = self.workload.lengths, 0.0
        memory, outside = read, self._mean(self.elsewhere, read)
        if self.encoder is not None:
            stack = stacks.pop("encoder")
            if self.kept_memory and stack.lengths is not None and stack.blocks:
                memory = stack.lengths.kept(len(stack.blocks) - 1, read)
            closed = float(self.encoder([Subnet(encoder=stack)])[0])
        if any(stack.structured or stack.lengths is not None for stack in stacks.values()):
            raise SubnetError("traced MACs are counted for whole blocks only")
        for name, stack in stacks.items():
            known = self.blocks[name]
            if stack.blocks and stack.blocks[-1] >= len(known):
                raise SubnetError(f"block {stack.blocks[-1]} of a model of {len(known)} blocks (0-based)")
            closed += sum(self._mean(known[block], memory) for block in stack.blocks)
        return closed + outside

    def _mean(self, polynomial: Polynomial, read: NDArray[np.int64]) -> float:
        """Mean where these lengths (inputs,) are read instead of the workload's."""
        powers = terms(read.astype(np.float64), self.workload.written_lengths.astype(np.float64))
        return float(powers @ np.array(polynomial) @ self.workload.shares)
