"""Multiply-accumulates (MACs) in closed form, per stage, from a model's dimensions and a workload.

Convention: one MAC is one multiply-add of a matrix product; biases, norms, softmax and activations are
free; the value is per example, averaged over the workload's true lengths. This is half of what
``torch.utils.flop_counter.FlopCounterMode`` counts on the eager model. The ``torchprofile`` convention
is for parity with the length-adaptive paper: it adds what that tool counts (norms, the mask product), and
the output projection of dropped tokens, which the paper's code runs and ours does not.
Knows dimensions and sub-networks; knows no weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SubnetError
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.workload import Workload


class Cost(Protocol):
    """What a sub-network costs: a name, a unit, and a call on many sub-networks at once."""

    @property
    def name(self) -> str:
        """The cost's name in tables and budgets."""

    @property
    def unit(self) -> str:
        """What one of it is."""

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """One value per sub-network."""


@dataclass(frozen=True)
class EncoderShape:
    """The dimensions of an encoder and its head that matrix products are made of.

    Args:
        blocks: Number of blocks.
        hidden: Width d of the residual stream.
        feed_forward: Width of the feed-forward layer.
        heads: Attention heads, which share the width d.
        ffn_matrices: Matrices of width d × feed_forward: 2, or 3 with a gate.
        head_per_example: MACs of the head per example (a [CLS] head).
        head_per_token: MACs of the head per input token (a span or token head).
    """

    blocks: int
    hidden: int
    feed_forward: int
    heads: int = 1
    ffn_matrices: int = 2
    head_per_example: int = 0
    head_per_token: int = 0


@dataclass(frozen=True)
class Macs:
    """MACs per example of encoder sub-networks at the lengths of a workload.

    Args:
        shape: The model's dimensions.
        workload: The lengths to average over; ``Workload.padded(l0)`` for the paper's protocol.
        name: The cost's name in tables.
        torchprofile: Count as torchprofile does on the paper's code: embedding norm and mask product, both
            norms of a block, the output projection of every token that entered.

    Raises:
        SubnetError: If a sub-network does not fit the shape.
    """

    shape: EncoderShape
    workload: Workload
    name: str = "macs"
    torchprofile: bool = False
    unit: str = field(default="MACs/example", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,)."""
        if not subnets:
            return np.zeros(0)
        per_block = np.stack([self._blocks(self._stack(subnet)) for subnet in subnets])
        return np.asarray(per_block.sum(axis=1) + self._embed() + self._head(), dtype=np.float64)

    def by_stage(self, subnet: Subnet) -> Mapping[str, float]:
        """The parts (``embed``, ``block 0`` …, ``head``); they sum to the whole."""
        blocks = self._blocks(self._stack(subnet))
        named = {f"block {block}": float(macs) for block, macs in enumerate(blocks)}
        return {"embed": self._embed(), **named, "head": self._head()}

    def _stack(self, subnet: Subnet) -> Stack:
        stack = subnet.encoder
        if subnet.decoder is not None or stack is None:
            raise SubnetError("MACs are counted for encoders only")
        if stack.blocks and stack.blocks[-1] >= self.shape.blocks:
            raise SubnetError(f"block {stack.blocks[-1]} of a model of {self.shape.blocks} blocks (0-based)")
        return stack

    def _blocks(self, stack: Stack) -> NDArray[np.float64]:
        """Mean MACs of each block of the model over the workload; 0 for blocks that do not run."""
        d, ff = self.shape.hidden, self.shape.feed_forward
        n, shares = self.workload.lengths, self.workload.shares
        macs = np.zeros(self.shape.blocks)
        enter = n
        for position, block in enumerate(stack.blocks):
            leave = enter if stack.lengths is None else kept(stack.lengths, position, n)
            groups = stack.groups(block)
            per_length = np.zeros(len(n))
            if groups.runs("attention"):
                # Projections of queries, keys and values; scores and their product with the values; the
                # output projection of what is kept, which the paper's code runs before it drops tokens.
                on = 1 - len(groups.heads_off) / self.shape.heads
                projected = 3 * enter + (enter if self.torchprofile else leave)
                per_length = per_length + on * (projected * d**2 + 2 * enter**2 * d)
            if groups.runs("feed_forward"):
                # Which only the kept tokens reach.
                per_length = per_length + self.shape.ffn_matrices * leave * d * groups.width(ff)
            if self.torchprofile:
                norms = enter * groups.runs("attention") + leave * groups.runs("feed_forward")
                per_length = per_length + norms * d
            macs[block] = per_length @ shares
            enter = leave
        return macs

    def _embed(self) -> float:
        if not self.torchprofile:
            return 0.0
        return float((self.workload.lengths * (self.shape.hidden + 1)) @ self.workload.shares)

    def _head(self) -> float:
        per_token = self.shape.head_per_token * self.workload.mean_length
        return float(self.shape.head_per_example + per_token)


def kept(lengths: Lengths, position: int, n: NDArray[np.int64]) -> NDArray[np.int64]:
    """``Lengths.kept`` for many lengths at once."""
    tokens = lengths.tokens[position]
    if lengths.mode == "absolute":
        return np.minimum(tokens, n)
    return np.maximum(1, -(-n * tokens // lengths.reference))
