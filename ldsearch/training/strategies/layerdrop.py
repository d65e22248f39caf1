"""LayerDrop: every block is skipped with probability p, once per batch (Fan, Grave & Joulin 2019)."""

from collections.abc import Sequence

import numpy as np

from ldsearch.subnet import Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting


def draw_blocks(blocks: int, rate: float, rng: np.random.Generator) -> tuple[int, ...]:
    """The blocks that run: block i is skipped iff u_i < rate, u_i uniform on [0, 1).

    A skipped block is the identity, norms included, and nothing is rescaled (Sec. 3.1 and fairseq's
    code). At rate 0 all run, at rate 1 none does.
    """
    return tuple(int(block) for block in np.flatnonzero(rng.random(blocks) >= rate))


class LayerDrop:
    """One pass of a random depth a batch, with the task's loss."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """One draw for the whole batch."""
        blocks = draw_blocks(self.setting.blocks, self.setting.layer_drop, draws(0))
        return [Pass(Subnet.of_encoder(blocks), "label", 1.0)]
