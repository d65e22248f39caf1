"""Flexible depth: every depth configuration on the same batch, gradients summed (Wang, Xiao & Zhu 2020).

With lengths each configuration runs at dropped lengths too: the sandwich of Kim & Cho 2020 over depth tasks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from ldsearch.errors import TrainingError
from ldsearch.space import ListedDepths, Space
from ldsearch.space.assignments import assignment_named
from ldsearch.subnet import Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting
from ldsearch.training.strategies.lengthdrop import LengthDraws


class FlexibleDepth:
    """One pass for each depth configuration, with the task's loss (Algorithm 1; there is no logit teacher).

    Where lengths are trained too, each configuration runs a second time, at lengths of its own
    (``DepthLengths``), once the plain share is over.

    Raises:
        TrainingError: If a stack has fewer depths than are to be drawn, or a depth leaves a pinned block
            out, or lengths are to be trained of a model without an encoder.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.tasks = setting.depth_tasks
        self.depths = {name: stack.blocks for name, stack in setting.stacks.items()}
        self.tasks.burden(self.depths)
        for name, stack in setting.stacks.items():
            sets = assignment_named(self.tasks.assignment, stack.blocks).values()
            if lost := {block for blocks in sets for block in stack.pinned if block not in blocks}:
                raise TrainingError(
                    f"the assignment {self.tasks.assignment!r} leaves out blocks {sorted(lost)} of the "
                    f"{name} at some depths, but the model needs them"
                )
        self.lengths = DepthLengths(setting) if self.tasks.lengths else None

    @property
    def space(self) -> Space:
        """The assigned depths of each stack, at dropped lengths where those are trained."""
        assignment = self.tasks.assignment
        depths = tuple(ListedDepths.assigned(*stack, assignment) for stack in self.depths.items())
        lengths = None if self.lengths is None else self.setting.lengths
        return replace(self.setting.whole, depths=depths, lengths=lengths)

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """All configurations or those drawn for this batch; each sees the same rows."""
        rng = draws(0)
        subnets = self.tasks.sampled(self.depths, rng)
        rows = (int(rng.integers(self.tasks.stride)), self.tasks.stride)
        if self.lengths is not None and progress >= self.lengths.begin:
            return self.lengths.passes(subnets, rows, draws, self._weight)
        return [Pass(subnet, "label", self._weight(len(subnets)), rows) for subnet in subnets]

    def _weight(self, passes: int) -> float:
        return 1.0 if self.tasks.reduction == "sum" else 1 / passes


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
        self.lengths = LengthDraws(setting)
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
        shortened = [self.lengths.random(task, draws(first + index)) for index, task in enumerate(tasks)]
        rng = draws(first + len(tasks))
        shortened.append(self.lengths.smallest(tasks[int(rng.integers(len(tasks)))]))
        loss: Literal["label", "distill"] = "distill" if self.setting.distil else "label"
        each = weight(first + len(shortened))
        return [
            Pass(full, "label", each),
            *(Pass(task, "label", each, rows) for task in labelled[1:]),
            *(Pass(subnet, loss, each, rows) for subnet in shortened),
        ]
