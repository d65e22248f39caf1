"""Loss of score without a block, over random sub-networks (Fan, Grave & Joulin 2019, Fig. 5): NumPy only."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ldsearch.errors import SpaceError

Blocks = tuple[int, ...]


@dataclass(frozen=True)
class Importance:
    """Loss of score without a block, over random sub-networks.

    Args:
        block: Its id, 0-based.
        without: Mean score of the sub-networks that lack it: what the paper's Fig. 5 shows.
        restored: Mean score of the same sub-networks with the block put back.
        loss: How much worse the first are than the second on average, in the unit of the score; positive
            where the block is of use, whichever direction of the score is better.
        standard_error: Of ``loss``, from the spread over sub-networks; 0 where all there are were measured,
            NaN for a single one of many. That examples are few is not in it.
        subsets: How many sub-networks that lack it were measured.
        possible: How many there are.
    """

    block: int
    without: float
    restored: float
    loss: float
    standard_error: float
    subsets: int
    possible: int


@dataclass(frozen=True)
class Ablation:
    """Random sub-networks of one depth that lack a given block.

    Fig. 5 of the paper averages, for each of 16 blocks, over 20 random sets of 8 removed blocks that
    contain it. Here each of them is compared with the same sub-network with the block put back, too:
    differences within pairs are free of how good the rest happens to be.

    Args:
        blocks: Number of blocks of the stack.
        keep: Blocks of a sub-network that lacks the given one.
        subsets: The most sub-networks for each block; all of them where there are fewer.
        seed: Of the draws.
        pinned: Blocks that always run, and have no importance.

    Raises:
        SpaceError: If a number makes no sense, or every block is pinned.
    """

    blocks: int
    keep: int
    subsets: int = 20
    seed: int = 0
    pinned: Blocks = ()

    def __post_init__(self) -> None:
        if not self.free:
            raise SpaceError(f"all {self.blocks} blocks are pinned: none can be left out")
        least = max(1, len(self.pinned))
        if not least <= self.keep < self.blocks:
            most = f"{least} to {self.blocks - 1}" if least < self.blocks else "none"
            raise SpaceError(
                f"cannot keep {self.keep} of {self.blocks} blocks and leave one out: possible is {most}"
            )
        if self.subsets < 1:
            raise SpaceError(f"importance needs at least one sub-network for each block, not {self.subsets}")

    @property
    def free(self) -> Blocks:
        """The blocks that can be left out."""
        return tuple(block for block in range(self.blocks) if block not in self.pinned)

    @property
    def possible(self) -> int:
        """The number of sub-networks that lack a given block."""
        return math.comb(len(self.free) - 1, self.keep - len(self.pinned))

    @property
    def count(self) -> int:
        """The number of them that are measured."""
        return min(self.subsets, self.possible)

    def lacking(self, block: int) -> list[Blocks]:
        """Distinct sub-networks of ``keep`` blocks without the given one, uniformly drawn.

        The draws for a block depend on (seed, block) only.
        """
        others = [other for other in self.free if other != block]
        size = self.keep - len(self.pinned)
        if self.count == self.possible:
            return [self._with_pinned(chosen) for chosen in itertools.combinations(others, size)]
        rng = np.random.default_rng([self.seed, block])
        drawn: dict[Blocks, None] = {}
        while len(drawn) < self.count:
            drawn[self._with_pinned(rng.choice(others, size, replace=False).tolist())] = None
        return list(drawn)

    def _with_pinned(self, chosen: Sequence[int]) -> Blocks:
        return tuple(sorted({*chosen, *self.pinned}))


def importance(
    block: int,
    without: Sequence[float],
    restored: Sequence[float],
    *,
    higher_is_better: bool,
    possible: int,
) -> Importance:
    """Mean scores and the mean loss within pairs.

    The standard error has the correction for finite populations (Cochran 1977, Sec. 2.6).

    Args:
        block: What was left out.
        without: Scores of sub-networks that lack it.
        restored: Scores of the same with the block put back, in the same order.
        higher_is_better: Of the score.
        possible: How many such pairs there are.

    Raises:
        ValueError: If there are no pairs, or more than are possible.
    """
    lacking, having = np.asarray(without, np.float64), np.asarray(restored, np.float64)
    count = len(lacking)
    if lacking.shape != having.shape or not 1 <= count <= possible:
        raise ValueError(f"{count} and {len(having)} scores of {possible} possible pairs")
    losses = having - lacking if higher_is_better else lacking - having
    error = 0.0 if count == possible else math.nan
    if 1 < count < possible:
        error = float(losses.std(ddof=1) * math.sqrt((1 - count / possible) / count))
    without_it, with_it, loss = (float(values.mean()) for values in (lacking, having, losses))
    return Importance(block, without_it, with_it, loss, error, count, possible)
