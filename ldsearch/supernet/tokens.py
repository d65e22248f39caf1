"""Tokens inside a block: score them, select which stay, gather their rows. Tensors only.

Nothing here knows a model. Shapes: B sequences of n positions, H heads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ldsearch.registry import Registry
from ldsearch.subnet import Lengths


@dataclass(frozen=True)
class Attention:
    """One block's attention, as token scores and the block itself see it.

    Args:
        queries: Shape (B, H, n, head width).
        keys: Shape (B, H, n, head width).
        values: Shape (B, H, n, head width).
        real: Shape (B, n), True where a position is no padding.
        scaling: Factor on the products of queries and keys.
        allowed: Shape (B, 1, n, n), True where a query may see a key (a window); None: every real key.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    real: Tensor
    scaling: float
    allowed: Tensor | None = None

    def of_heads(self, heads: Sequence[int]) -> "Attention":
        """The same with some of the heads only."""
        on = list(heads)
        return replace(self, queries=self.queries[:, on], keys=self.keys[:, on], values=self.values[:, on])

    @cached_property
    def probabilities(self) -> Tensor:
        """Shape (B, H, n, n): row q is the distribution of query q over the real keys."""
        products = self.queries @ self.keys.transpose(-1, -2) * self.scaling
        lowest = torch.finfo(products.dtype).min
        if self.allowed is not None:
            products = products.masked_fill(~self.allowed, lowest)
        elif not bool(self.real.all()):
            products = products.masked_fill(~self.real[:, None, None, :], lowest)
        return products.softmax(dim=-1)


TokenScore = Callable[[Attention], Tensor]


def column(attention: Attention) -> Tensor:
    """Attention received: column sums over heads and real query rows (Kim & Cho 2020, Sec. 3.1).

    Returns:
        Shape (B, n).
    """
    rows = attention.real[:, None, :, None]
    return (attention.probabilities * rows).sum(dim=(1, 2))


def power(attention: Attention) -> Tensor:
    """``column`` without what a token gives itself, as PoWER-BERT's code has it (Goyal et al. 2020).

    Returns:
        Shape (B, n).
    """
    own = attention.probabilities.diagonal(dim1=-2, dim2=-1) * attention.real[:, None, :]
    return column(attention) - own.sum(dim=1)


def column_with_pads(attention: Attention) -> Tensor:
    """``column`` with the rows of pad queries counted, as the length-adaptive reference code has it.

    Returns:
        Shape (B, n).
    """
    return attention.probabilities.sum(dim=(1, 2))


TOKEN_SCORES: Registry[TokenScore] = Registry(
    "token_scores", {"column": column, "power": power, "column-with-pads": column_with_pads}
)


def kept_counts(real: Tensor, lengths: Lengths, position: int, true_lengths: Tensor) -> Tensor:
    """How many tokens of each sequence leave the executed block at ``position``.

    Args:
        real: Shape (B, n), what entered the block.
        lengths: The length configuration.
        position: Index among the executed blocks.
        true_lengths: Shape (B,), real tokens of each input before any was dropped.

    Returns:
        Shape (B,), integers of at least 1 and at most what entered.
    """
    tokens = lengths.tokens[position]
    if lengths.mode == "absolute":
        counts = true_lengths.clamp(max=tokens)
    else:
        counts = -(-true_lengths * tokens // lengths.reference)
    return torch.minimum(counts.clamp(min=1), real.sum(dim=1))


def select(scores: Tensor, real: Tensor, counts: Tensor, keep_first: bool) -> tuple[Tensor, Tensor]:
    """The positions that stay: the best ``counts`` real tokens of each row, in their original order.

    Ties go to the earlier position. Pads never win against a real token; rows that keep fewer than
    the longest row end in pads.

    Args:
        scores: Shape (B, n).
        real: Shape (B, n).
        counts: Shape (B,).
        keep_first: Whether position 0 ([CLS]) always stays.

    Returns:
        Indices of shape (B, k), ascending over the kept tokens, and the new ``real`` of shape (B, k),
        with k the largest count.

    """
    ranked = scores.float().masked_fill(~real, -torch.inf)
    if keep_first:
        ranked[:, 0] = torch.inf
    order = ranked.sort(dim=1, descending=True, stable=True).indices[:, : int(counts.max())]
    stays = torch.arange(order.shape[1], device=order.device) < counts[:, None]
    # Rows shorter than the longest are filled with positions sorted behind every real one.
    position = torch.where(stays, order, order + real.shape[1]).sort(dim=1).values
    return position % real.shape[1], position < real.shape[1]


def gather(hidden: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` (B, k) of ``hidden`` (B, n, d): shape (B, k, d)."""
    return hidden.gather(1, index[..., None].expand(-1, -1, hidden.shape[-1]))
