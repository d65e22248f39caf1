"""Multiply-accumulates (MACs) in closed form, per stage, from a model's dimensions and a workload.

Convention: one MAC is one multiply-add of a matrix product; biases, norms, softmax and activations are
free, as is what does not depend on the example (DeBERTa's projected table of positions, once a batch or a
graph); the value is per example, averaged over the workload's true lengths. This is half of what another
example adds to what ``torch.utils.flop_counter.FlopCounterMode`` counts on the eager model. The
``torchprofile`` convention is for parity with the length-adaptive paper: it adds what that tool counts
(norms, the mask product), and the output projection of dropped tokens, which the paper's code runs and ours
does not.
Knows dimensions and sub-networks; knows no weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError
from ldsearch.subnet import Groups, Lengths, Stack, Subnet

# How many heads of a block are off, the kept share of its feed-forward width, which sub-layers are off.
_Inside = tuple[int, float, tuple[str, ...]]
_WHOLE: _Inside = (0, 1.0, ())


class Cost(Protocol):
    """Cost of sub-networks: a name, and a call on many sub-networks at once."""

    @property
    def name(self) -> str:
        """The cost's name in tables and budgets."""

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """One value per sub-network."""


@dataclass(frozen=True)
class EncoderShape:
    """The dimensions of an encoder and its head that matrix products are made of.

    Args:
        blocks: Number of blocks.
        hidden: Width d of the residual stream.
        feed_forward: Width of the feed-forward layer.
        heads: Attention heads.
        ffn_matrices: Matrices of width d × feed_forward: 2, or 3 with a gate.
        head_per_example: MACs of the head per example (a [CLS] head).
        head_per_token: MACs of the head per input token (a span or token head).
        norms_stay: Whether a sub-layer that is off still norms what enters it.
        table_rows: Rows of tables of relative positions that each token is multiplied with (DeBERTa).
        attention: Width of all heads together; 0: d.
        dropped_rank: Rank of the map that a dropped token's state goes through; 0: it goes through none.
        correcting: MACs of the map that corrects the answer of a text of which tokens are dropped.
    """

    blocks: int
    hidden: int
    feed_forward: int
    heads: int = 1
    ffn_matrices: int = 2
    head_per_example: int = 0
    head_per_token: int = 0
    norms_stay: bool = False
    table_rows: int = 0
    attention: int = 0
    dropped_rank: int = 0
    correcting: int = 0

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.attention or self.hidden

    @property
    def mapping(self) -> int:
        """MACs of the map of a dropped token's state."""
        return 2 * self.dropped_rank * self.hidden

    @property
    def projecting(self) -> int:
        """MACs of a token's query, key and value, and of what a position bias makes of them."""
        return self.inner * (3 * self.hidden + self.table_rows)


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

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Shape (subnets,)."""
        shape, workload = self.shape, self.workload
        head = float(shape.head_per_example + shape.head_per_token * workload.mean_length)
        embedding = float((workload.lengths * (shape.hidden + 1)) @ workload.shares)
        rest = (embedding if self.torchprofile else 0.0) + head
        return np.array([self._of_stack(self._stack(subnet)) + rest for subnet in subnets])

    def _stack(self, subnet: Subnet) -> Stack:
        stack = subnet.encoder
        if subnet.decoder is not None or stack is None:
            raise SubnetError("MACs are counted for encoders only")
        if stack.blocks and stack.blocks[-1] >= self.shape.blocks:
            raise SubnetError(f"block {stack.blocks[-1]} of a model of {self.shape.blocks} blocks (0-based)")
        return stack

    def _of_stack(self, stack: Stack) -> float:
        """Mean MACs over the workload of the blocks, and of what is corrected behind the last."""
        macs = sum(self._blocks(stack))
        if self.shape.correcting and stack.blocks and stack.lengths is not None:
            longest = int(self.workload.lengths.max())
            macs += self.shape.correcting * (stack.lengths.kept(len(stack.blocks) - 1, longest) < longest)
        return macs

    def _blocks(self, stack: Stack) -> list[float]:
        """Mean MACs over the workload of each block that runs."""
        lengths = stack.lengths
        read = None if lengths is None else (lengths.reference, lengths.mode)
        # Searches ask for the same blocks a million times: what one takes is looked up.
        known = self._known.setdefault(read, {})
        tokens = (0,) * len(stack.blocks) if lengths is None else lengths.tokens
        inside = _inside(stack) if stack.structured else {}
        macs = []
        entering = 0
        for position, block in enumerate(stack.blocks):
            key = (entering, tokens[position], inside.get(block))
            if (cost := known.get(key)) is None:
                enter, leave = self._tokens(lengths, position - 1), self._tokens(lengths, position)
                cost = known[key] = self._block(enter, leave, stack.groups(block))
            macs.append(cost)
            entering = tokens[position]
        return macs

    @cached_property
    def _known(self) -> dict[tuple[int, str] | None, dict[tuple[int, int, _Inside | None], float]]:
        """Cache of block costs, by (reference, mode), then (tokens entering, 0: all; leaving; groups off)."""
        return {}

    def _tokens(self, lengths: Lengths | None, position: int) -> tuple[float, float]:
        """Means of the tokens after a position (-1: before the first) and of their squares."""
        n, shares = self.workload.lengths, self.workload.shares
        if lengths is not None and position >= 0:
            n = np.maximum(lengths.kept(position, n), self.workload.pinned or 1)
        return float(n @ shares), float(n**2 @ shares)

    def _block(self, enter: tuple[float, float], leave: tuple[float, float], groups: Groups) -> float:
        """Mean MACs over the workload of a block, from what ``_tokens`` says of its two ends."""
        d, ff = self.shape.hidden, self.shape.feed_forward
        (entered, squared), (left, _) = enter, leave
        macs = 0.0
        if groups.runs("attention"):
            # Projections of queries, keys and values; scores and their product with the values; the output
            # projection of what is kept, which the paper's code runs before it drops tokens.
            on = 1 - len(groups.heads_off) / self.shape.heads
            inner, merged = self.shape.inner, entered if self.torchprofile else left
            macs += on * (entered * self.shape.projecting + merged * inner * d + 2 * squared * inner)
        if groups.runs("feed_forward"):
            # Which only the kept tokens reach.
            macs += self.shape.ffn_matrices * left * d * groups.width(ff)
        if left < entered:
            # All that entered are mapped at once; what stays is written over.
            macs += entered * self.shape.mapping
        if self.torchprofile:
            normed = [groups.runs(name) or self.shape.norms_stay for name in ("attention", "feed_forward")]
            macs += (entered * normed[0] + left * normed[1]) * d
        return macs


def _inside(stack: Stack) -> dict[int, _Inside]:
    """Groups off, by block; plain values, since ``Groups`` are slow to build and to compare."""
    found: dict[int, _Inside] = {block: (0, share, ()) for block, share in stack.ffn_share}
    for block, _ in stack.heads_off:
        heads, share, skipped = found.get(block, _WHOLE)
        found[block] = (heads + 1, share, skipped)
    for block, sublayer in stack.sublayers_off:
        heads, share, skipped = found.get(block, _WHOLE)
        found[block] = (heads, share, (*skipped, sublayer))
    return found
