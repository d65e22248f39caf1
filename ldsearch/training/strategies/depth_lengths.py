"""Flexible depth at dropped lengths: the sandwich (Kim & Cho 2020) over depth tasks (Wang et al. 2020)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.space.lengths import constant_ratio_lengths, draw_lengths
from ldsearch.subnet import Lengths, Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting


class DepthLengths:
    """The passes of a batch that trains depths and lengths together; no paper has them.

    1. The full model, with the task's loss, whatever depths were drawn: it is the sandwich's full pass, and
       teaches. It sees all rows, since a teacher must.
    2. The batch's other depth tasks at full length, with the task's loss, as Algorithm 1 has them.
    3. Each of its depth tasks, the full depth among them, at one LengthDrop draw over the encoder blocks it
       runs: Algorithm 1 trains every task at every step, and a depth whose lengths were not drawn beside it
       would see them only where depths share blocks.
    4. One depth task, drawn uniformly, at the smallest lengths: by the sandwich rule the range's ends bound
       what lies between, and the full pass is the other end.

    3 and 4 learn from the full pass's logits, as LengthDrop's sub-networks do, or from the labels where
    nothing is distilled. All gradients are summed, or all averaged. Lengths fall at blocks that run only.
    The cost is about twice that of the depth tasks; fewer tasks per step lower it.

    Raises:
        TrainingError: If the model has no encoder.
    """

    def __init__(self, setting: Setting) -> None:
        if "encoder" not in setting.stacks:
            raise TrainingError("lengths are dropped in encoders: train a decoder without --drop-bound")
        self.setting = setting
        self.begin = setting.plain_share

    def passes(
        self,
        tasks: Sequence[Subnet],
        rows: tuple[int, int],
        draws: Draws,
        weight: Callable[[int], float],
    ) -> list[Pass]:
        """The passes of one batch, the full model first.

        Args:
            tasks: The depth tasks of this batch.
            rows: What all but the full model see of it.
            draws: Generator of pass i; pass 0's has drawn the tasks.
            weight: Factor on each loss of so many.
        """
        full = self.setting.full
        labelled = [full, *(task for task in tasks if task != full)]
        first = len(labelled)
        shortened = [self._random(task, draws(first + index)) for index, task in enumerate(tasks)]
        shortened.append(self._smallest(tasks, draws(first + len(tasks))))
        loss: Literal["label", "distill"] = "distill" if self.setting.distil else "label"
        each = weight(first + len(shortened))
        return [
            Pass(full, "label", each),
            *(Pass(task, "label", each, rows) for task in labelled[1:]),
            *(Pass(subnet, loss, each, rows) for subnet in shortened),
        ]

    def _random(self, task: Subnet, rng: np.random.Generator) -> Subnet:
        reference, bound = self.setting.reference, self.setting.drop_bound
        return self._shortened(task, draw_lengths(reference, _depth(task), bound, rng))

    def _smallest(self, tasks: Sequence[Subnet], rng: np.random.Generator) -> Subnet:
        task = tasks[int(rng.integers(len(tasks)))]
        reference, bound = self.setting.reference, self.setting.drop_bound
        return self._shortened(task, constant_ratio_lengths(reference, _depth(task), bound))

    def _shortened(self, task: Subnet, tokens: tuple[int, ...]) -> Subnet:
        assert task.encoder is not None
        lengths = Lengths(tokens, self.setting.reference, self.setting.length_mode)
        return replace(task, encoder=replace(task.encoder, lengths=lengths))


def _depth(task: Subnet) -> int:
    assert task.encoder is not None
    return len(task.encoder.blocks)
