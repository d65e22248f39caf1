"""MACs from traced counts: each block's, and everything else's, as a polynomial of the lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ldsearch.costs.macs import Macs, kept
from ldsearch.errors import SubnetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.workload import Workload

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
    """

    blocks: Mapping[str, tuple[Polynomial, ...]]
    elsewhere: Polynomial
    workload: Workload
    name: str = "macs"
    unit: str = field(default="MACs/example", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network is finer than whole blocks, or has one that the model has not.
        """
        read = self.workload.lengths.astype(np.float64)
        return np.array([self._count(subnet, read) for subnet in subnets], dtype=np.float64)

    def of_stack(self, name: str, stack: Stack, read: NDArray[np.float64]) -> float:
        """Mean MACs of a stack's blocks where these lengths (inputs,) are read instead of the workload's."""
        known = self.blocks[name]
        if stack.blocks and stack.blocks[-1] >= len(known):
            raise SubnetError(f"block {stack.blocks[-1]} of a model of {len(known)} blocks (0-based)")
        return sum(self._mean(known[block], read) for block in stack.blocks)

    def outside(self, read: NDArray[np.float64]) -> float:
        """Mean MACs of everything that is not a block."""
        return self._mean(self.elsewhere, read)

    def _count(self, subnet: Subnet, read: NDArray[np.float64]) -> float:
        stacks = subnet.stacks()
        if set(stacks) != set(self.blocks):
            raise SubnetError(f"these MACs are counted of {' and '.join(self.blocks)}")
        if any(stack.structured or stack.lengths is not None for stack in stacks.values()):
            raise SubnetError("traced MACs are counted for whole blocks only")
        return self.outside(read) + sum(self.of_stack(name, stack, read) for name, stack in stacks.items())

    def _mean(self, polynomial: Polynomial, read: NDArray[np.float64]) -> float:
        per_input = terms(read, self.workload.written_lengths.astype(np.float64)) @ np.array(polynomial)
        return float(per_input @ self.workload.shares)


@dataclass(frozen=True)
class EncoderDecoderMacs:
    """MACs per example of an encoder-decoder whose encoder can drop tokens.

    Args:
        encoder: Of its encoder, in closed form.
        traced: Of everything else.
        kept_memory: Whether the decoder attends to the kept tokens only.
    """

    encoder: Macs
    traced: TracedMacs
    kept_memory: bool
    unit: str = field(default="MACs/example", init=False)

    @property
    def name(self) -> str:
        """The cost's name in tables."""
        return self.traced.name

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,).

        Raises:
            SubnetError: If a sub-network does not name both stacks, or not blocks of this model.
        """
        return np.array([self._count(subnet) for subnet in subnets], dtype=np.float64)

    def _count(self, subnet: Subnet) -> float:
        encoder, decoder = subnet.encoder, subnet.decoder
        if encoder is None or decoder is None:
            raise SubnetError("these MACs are counted of encoder and decoder")
        n = self.traced.workload.lengths
        memory = n
        if self.kept_memory and encoder.lengths is not None and encoder.blocks:
            memory = kept(encoder.lengths, len(encoder.blocks) - 1, n)
        (own,) = self.encoder([Subnet(encoder=encoder)])
        rest = self.traced.of_stack("decoder", decoder, memory.astype(np.float64))
        return float(own) + rest + self.traced.outside(n.astype(np.float64))
