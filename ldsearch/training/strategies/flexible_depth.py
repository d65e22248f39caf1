"""Flexible depth: every depth configuration on the same batch, gradients summed (Wang, Xiao & Zhu 2020)."""

from collections.abc import Sequence

from ldsearch.assignment import assignment_named
from ldsearch.errors import TrainingError
from ldsearch.training.strategies.base import Draws, Pass, Setting


class FlexibleDepth:
    """One pass for each depth configuration, with the task's loss (Algorithm 1; there is no logit teacher).

    Raises:
        TrainingError: If a stack has fewer depths than are to be drawn, or a depth leaves a pinned block
            out.
    """

    def __init__(self, setting: Setting) -> None:
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

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """All configurations or those drawn for this batch; each sees the same rows."""
        rng = draws(0)
        subnets = self.tasks.sampled(self.depths, rng)
        rows = (int(rng.integers(self.tasks.stride)), self.tasks.stride)
        weight = 1.0 if self.tasks.reduction == "sum" else 1 / len(subnets)
        return [Pass(subnet, "label", weight, rows) for subnet in subnets]
