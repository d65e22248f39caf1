"""What steps that many sub-networks share are made of: rows of an attention, and what a step costs."""

from dataclasses import dataclass, replace

from torch import Tensor

from ldsearch.costs.macs import EncoderShape
from ldsearch.subnet import WHOLE, Groups
from ldsearch.supernet.tokens import Attention


def rows_of(attention: Attention, index: Tensor, real: Tensor) -> Attention:
    """The attention among some tokens only: queries, keys and values belong to a token, as windows do.

    Args:
        attention: Among n tokens.
        index: Shape (B, k), positions among the n.
        real: Shape (B, k).
    """

    def of_heads(whole: Tensor) -> Tensor:
        return whole.gather(2, index[:, None, :, None].expand(-1, whole.shape[1], -1, whole.shape[3]))

    allowed = attention.allowed
    if allowed is not None:
        rows, k = index.shape
        allowed = allowed.gather(2, index[:, None, :, None].expand(-1, 1, -1, allowed.shape[3]))
        allowed = allowed.gather(3, index[:, None, None, :].expand(rows, 1, k, k))
        # Where a row is shorter here than others, its last positions hold tokens that are gone.
        allowed = allowed & real[:, None, None, :]
    return replace(
        attention,
        queries=of_heads(attention.queries),
        keys=of_heads(attention.keys),
        values=of_heads(attention.values),
        real=real,
        allowed=allowed,
    )


@dataclass(frozen=True)
class StepMacs:
    """Multiply-accumulates of a step's matrix products as they are executed: on whole layers, pads too.

    Args:
        shape: The model's dimensions.
    """

    shape: EncoderShape

    def projected(self, rows: int, n: int) -> int:
        """Queries, keys and values of n tokens."""
        return 3 * rows * n * self.shape.hidden**2

    def mixed(self, rows: int, queries: int, n: int, groups: Groups = WHOLE) -> int:
        """Products of queries with n keys and of those with the values."""
        d, off = self.shape.hidden, len(groups.heads_off)
        on = d - d // self.shape.heads * off
        return 2 * rows * queries * n * on

    def merged(self, rows: int, n: int) -> int:
        """The output projection of n tokens."""
        return rows * n * self.shape.hidden**2

    def fed(self, rows: int, n: int) -> int:
        """The feed-forward layer of n tokens."""
        return rows * n * self.shape.ffn_matrices * self.shape.hidden * self.shape.feed_forward

    def whole(self, rows: int, n: int) -> int:
        """A block with nothing off and no token dropped."""
        return self.projected(rows, n) + self.mixed(rows, n, n) + self.merged(rows, n) + self.fed(rows, n)

    def head(self, rows: int, n: int) -> int:
        """The head on inputs of n tokens."""
        return rows * (self.shape.head_per_example + n * self.shape.head_per_token)
