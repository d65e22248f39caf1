"""Flexible depth: every depth configuration on the same batch, gradients summed (Wang, Xiao & Zhu 2020).

With lengths each configuration runs at dropped lengths too: the sandwich of Kim & Cho 2020 over depth tasks.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ldsearch.errors import TrainingError, unknown
from ldsearch.space import ListedDepths, Space
from ldsearch.space.assignments import ASSIGNMENTS, configurations
from ldsearch.subnet import Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting, reads
from ldsearch.training.strategies.lengthdrop import LENGTHS, TEACHING, shortened

DEPTH_TASKS = ("assignment", "encoder_tasks", "decoder_tasks", "batch_share", "always_full", "reduction")


@reads(*DEPTH_TASKS, drop_bound=(*LENGTHS, *TEACHING))
class FlexibleDepth:
    """One pass for each depth configuration, with the task's loss (Algorithm 1; there is no logit teacher).

    Where lengths are trained too (``depth_lengths``), once the plain share is over; no paper has this:

    1. The full model, with the task's loss, whatever depths were drawn: it is the sandwich's full pass, and
       teaches. It sees all rows, since a teacher must.
    2. The batch's other depth tasks at full length, with the task's loss, as Algorithm 1 has them.
    3. Each of its depth tasks, the full depth among them, at one LengthDrop draw over the encoder blocks it
       runs: Algorithm 1 trains every task at every step, and a depth whose lengths were not drawn with it
       would see them only where depths share blocks.
    4. One depth task, drawn uniformly, at the smallest lengths: by the sandwich rule the range's ends bound
       what lies between, and the full pass is the other end.

    3 and 4 learn from the full pass's logits, as LengthDrop's sub-networks do, or from the labels where
    nothing is distilled. All gradients are summed, or all averaged. Lengths fall at blocks that run only.
    The cost is about twice that of the depth tasks; fewer tasks per step lower it.

    Raises:
        TrainingError: If an option makes no sense, a stack has fewer depths than are to be drawn, a depth
            leaves a pinned block out, or lengths are to be trained of a model without an encoder.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        if setting.assignment not in ASSIGNMENTS:
            raise TrainingError(unknown("assignment", setting.assignment, ASSIGNMENTS))
        if setting.reduction not in ("sum", "mean"):
            raise TrainingError(f"unknown reduction {setting.reduction!r}: use 'sum' or 'mean'")
        share = setting.batch_share
        if not 0 < share <= 1 or not math.isclose(share * round(1 / share), 1):
            raise TrainingError(f"the batch fraction must be 1, 1/2, 1/3 or another 1/k, not {share}")
        if setting.depth_lengths and "encoder" not in setting.stacks:
            raise TrainingError("lengths are dropped in encoders: train a decoder without --drop-bound")
        self.stride = round(1 / share)
        self.grid = configurations(
            {name: stack.blocks for name, stack in setting.stacks.items()}, setting.assignment
        )
        depths = tuple(
            ListedDepths.assigned(name, stack.blocks, setting.assignment)
            for name, stack in setting.stacks.items()
        )
        for listed, stack in zip(depths, setting.stacks.values(), strict=True):
            if lost := {block for choice in listed.choices for block in stack.pinned if block not in choice}:
                raise TrainingError(
                    f"the assignment {setting.assignment!r} leaves out blocks {sorted(lost)} of the "
                    f"{listed.stack} at some depths, but the model needs them"
                )
        self.counts: dict[str, int] = {}
        available = {listed.stack: len(listed.choices) for listed in depths}
        for name, tasks in (("encoder", setting.encoder_tasks), ("decoder", setting.decoder_tasks)):
            most = available.get(name, 0)
            if tasks is not None and tasks < 1:
                raise TrainingError(f"{name} tasks must be at least 1, not {tasks}")
            if tasks is not None and tasks > most:
                raise TrainingError(f"{tasks} {name} tasks, but the model has {most} {name} depths")
            self.counts[name] = most if tasks is None else tasks
        lengths = setting.lengths if setting.depth_lengths else None
        self.space: Space = replace(setting.whole, depths=depths, lengths=lengths)

    def tasks(self, rng: np.random.Generator) -> list[Subnet]:
        """The configurations of one step: depths drawn for each stack, and all pairs of them.

        Depths of a stack are drawn uniformly without replacement; where all are tasks, nothing is drawn.
        """
        drawn = []
        for listed in self.space.depths:
            every, count = listed.keep, self.counts[listed.stack]
            if count < len(every):
                fixed = every[-1:] if self.setting.always_full else ()
                free = every[: len(every) - len(fixed)]
                every = (*sorted(rng.choice(free, count - len(fixed), replace=False).tolist()), *fixed)
            drawn.append(every)
        return [self.grid[key] for key in itertools.product(*drawn)]

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """All configurations or those drawn for this batch; each sees the same rows."""
        rng = draws(0)
        labelled = tasks = self.tasks(rng)
        rows = (int(rng.integers(self.stride)), self.stride)
        short: list[Subnet] = []
        if self.setting.depth_lengths and progress >= self.setting.plain_share:
            full = self.setting.full
            labelled = [full, *(task for task in tasks if task != full)]
            first = len(labelled)
            short = [shortened(self.setting, task, draws(first + i)) for i, task in enumerate(tasks)]
            last = tasks[int(draws(first + len(tasks)).integers(len(tasks)))]
            short.append(shortened(self.setting, last, None))
        loss: Literal["label", "distill"] = "distill" if self.setting.distil else "label"
        weight = 1.0 if self.setting.reduction == "sum" else 1 / (len(labelled) + len(short))
        passes = [Pass(subnet, "label", weight, rows) for subnet in labelled]
        if short:
            passes[0] = replace(passes[0], rows=(0, 1))
        return [*passes, *(Pass(subnet, loss, weight, rows) for subnet in short)]
