"""LayerDrop: every block is skipped at its rate, once per batch (Fan, Grave & Joulin 2019)."""

from collections.abc import Sequence

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.subnet import Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting
from ldsearch.training.strategies.groups import draw_stack, parts_of


def draw_blocks(setting: Setting, rng: np.random.Generator) -> tuple[int, ...]:
    """The blocks that run: block i is skipped iff u_i < its rate, u_i uniform on [0, 1).

    At rate 0 all run, at rate 1 none does, but for pinned blocks and ``min_layers`` (``draw_stack``).
    """
    return draw_stack(setting, ("layer",), rng).blocks


class LayerDrop:
    """One pass a batch of a random sub-network, with the task's loss.

    Raises:
        TrainingError: If the setting's groups are unknown, or heads are to be dropped of a model without.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.parts = parts_of(setting.drop_groups)
        if "head" in self.parts and setting.heads < 1:
            raise TrainingError(f"drop groups {setting.drop_groups} need a model with attention heads")

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """One draw for the whole batch."""
        return [Pass(Subnet(encoder=draw_stack(self.setting, self.parts, draws(0))), "label", 1.0)]
