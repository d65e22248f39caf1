"""Maps the state of a dropped token to the last block's, for heads that answer at every token.

A head that tags every token reads states of the last block; the state that a token was dropped with
(Drop-and-Restore, Kim & Cho 2020, Sec. 3.3) it often reads wrongly. An affine map of low rank for each block
takes that state to the last block's (as the tuned lens, Belrose et al. 2023, arXiv 2303.08112). It is fitted
with the learned token score (``ldsearch.training.left_behind``), in a buffer of the stock layer beside it.
"""

from torch import Tensor, nn

MAP = "left_behind"  # the buffer's name
RANK = 32  # at least; a tag each needs a direction


def map_of(layer: nn.Module) -> Tensor | None:
    """A layer's map, shape (2 * rank + 1, d): rows that read, rows that write, a bias; None: it has none."""
    return getattr(layer, MAP, None)


def left_behind(layer: nn.Module, entered: Tensor) -> Tensor:
    """States (B, n, d) that entered a block, mapped to the last block's; as they are if there is no map."""
    if (weights := map_of(layer)) is None:
        return entered
    weights, rank = weights.to(entered.dtype), len(weights) // 2
    return nn.functional.linear(entered, weights[:rank]) @ weights[rank:-1] + weights[-1]
