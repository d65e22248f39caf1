"""Flexible depth: every depth configuration on the same batch, gradients summed (Wang, Xiao & Zhu 2020)."""

from collections.abc import Sequence

from ldsearch.errors import TrainingError
from ldsearch.space.assignments import assignment_named
from ldsearch.training.strategies.base import Draws, Pass, Setting
from ldsearch.training.strategies.depth_lengths import DepthLengths


class FlexibleDepth:
    """One pass for each depth configuration, with the task's loss (Algorithm 1; there is no logit teacher).

    Where lengths are trained too, each configuration runs a second time, at lengths of its own
    (``DepthLengths``), once the plain share is over.

    Raises:
        TrainingError: If a stack has fewer depths than are to be drawn, or a depth leaves a pinned block
            out, or lengths are to be trained of a model without an encoder.
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
        self.lengths = DepthLengths(setting) if self.tasks.lengths else None

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
