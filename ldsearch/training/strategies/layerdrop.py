"""LayerDrop: every block is skipped at its rate, once per batch (Fan, Grave & Joulin 2019)."""

from collections.abc import Sequence

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.subnet import Stack, Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting
from ldsearch.training.strategies.groups import Parts, draw_stack, parts_of


class LayerDrop:
    """One pass a batch of a random sub-network, with the task's loss.

    Block i of a stack is skipped iff u_i < its rate, u_i uniform on [0, 1): at rate 0 all run, at rate 1
    none does, but for pinned blocks and ``min_layers`` (``groups.draw_stack``).

    Raises:
        TrainingError: If the setting's groups are unknown, or heads are to be dropped of a model without.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.parts = parts_of(setting.drop_groups)
        if "head" in self.parts and any(stack.heads < 1 for stack in setting.stacks.values()):
            raise TrainingError(f"drop groups {setting.drop_groups} need a model with attention heads")

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """One draw for the whole batch."""
        return [Pass(Subnet(**draw_stacks(self.setting, self.parts, draws(0))), "label", 1.0)]


def draw_stacks(setting: Setting, parts: Parts, rng: np.random.Generator) -> dict[str, Stack]:
    """One draw for each of the model's stacks, the encoder first."""
    return {name: draw_stack(stack, parts, rng) for name, stack in setting.stacks.items()}
