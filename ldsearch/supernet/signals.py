"""Block influence: how much each block changes its input, measured while a supernet runs."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ldsearch.errors import SupernetError
from ldsearch.supernet.tokens import State


class BlockInfluence:
    """Mean of 1 - cos(input, output) of each block over real tokens (ShortGPT, Men et al. 2024).

    Near 0, a block hands on what it got and can go. It says how much a block changes, not whether the
    change helps: a block that adds noise ranks high.

    Args:
        blocks: Number of blocks.
    """

    def __init__(self, blocks: int) -> None:
        self._sums = np.zeros(blocks)
        self._tokens = np.zeros(blocks, dtype=np.int64)

    @torch.no_grad()
    def observe(self, block: int, before: State, after: State) -> Tensor:
        """Count one executed block; called by the supernet between blocks.

        Args:
            block: 0-based id.
            before: What entered it.
            after: What left it, at the same length.

        Returns:
            ``after.hidden``, as it is.

        Raises:
            SupernetError: If the block dropped tokens.
        """
        if before.hidden.shape != after.hidden.shape:
            raise SupernetError("block influence is measured at full length: no block may drop tokens")
        # Half the squared distance of unit vectors is 1 - cos, and exactly 0 where nothing changed.
        entered, left = (nn.functional.normalize(state.hidden.float(), dim=-1) for state in (before, after))
        change = (left - entered).square().sum(dim=-1) / 2
        self._sums[block] += float(change[after.real].sum())
        self._tokens[block] += int(after.real.sum())
        return after.hidden

    def values(self) -> NDArray[np.float64]:
        """Shape (blocks,), each in [0, 2]; however the tokens were cut into batches.

        Raises:
            SupernetError: If a block never ran.
        """
        if not self._tokens.all():
            missing = ", ".join(map(str, np.flatnonzero(self._tokens == 0)))
            raise SupernetError(f"no influence of blocks that never ran: {missing}")
        means: NDArray[np.float64] = self._sums / self._tokens
        return means
