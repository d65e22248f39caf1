"""Rows in which the last kept and the first dropped token score alike: rounding decides which one stays."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.pipeline import Pipeline
from ldsearch.supernet.stages import State
from ldsearch.supernet.supernet import evaluating
from ldsearch.supernet.tokens import TOKEN_SCORES, Attention

# Of one and a score: sums in another order differ by less than this, rarely by a tenth of it.
CLOSE = 1e-5


def ties(supernet: Supernet, batch: Mapping[str, Tensor], subnet: Subnet) -> Tensor:
    """Whether some block of the sub-network kept one token rather than another for almost nothing.

    Returns:
        Shape (B,), on the CPU.
    """
    watch = _Watch(supernet)
    encoder = subnet.encoder
    if supernet.family is None or encoder is None or encoder.lengths is None:
        return torch.zeros(len(batch["input_ids"]), dtype=torch.bool)
    pipeline = Pipeline(supernet.model, supernet.family, watch.score, supernet.reads_first, restores=False)
    with evaluating(supernet, batch) as moved:
        pipeline(moved, encoder, False, watch.between)
    return torch.stack([torch.zeros_like(moved["input_ids"][:, 0]).bool(), *watch.found]).any(dim=0).cpu()


class _Watch:
    """Sees the scores of each block, and how many tokens were kept by them."""

    def __init__(self, supernet: Supernet) -> None:
        self._score = TOKEN_SCORES[supernet.score]
        self._keep_first = supernet.reads_first
        self._scores = torch.empty(0)
        self.found: list[Tensor] = []

    def score(self, attention: Attention) -> Tensor:
        """What the supernet scores by."""
        self._scores = self._score(attention)
        return self._scores

    def between(self, block: int, before: State, after: State) -> Tensor:
        """Compare the scores on both sides of where a block cut."""
        if after.positions is not before.positions:
            ranked = self._scores.float().masked_fill(~before.real, -torch.inf)
            if self._keep_first:
                ranked[:, 0] = torch.inf
            ranked = ranked.sort(dim=1, descending=True).values
            kept = after.real.sum(dim=1, keepdim=True)
            last = ranked.gather(1, kept - 1)
            # Infinite where every token was kept, or [CLS] alone.
            gap = last - ranked.gather(1, kept.clamp(max=ranked.shape[1] - 1))
            some = kept < before.real.sum(dim=1, keepdim=True)
            self.found.append((some & (gap <= CLOSE * (1 + last.abs())) & last.isfinite())[:, 0])
        return after.hidden
