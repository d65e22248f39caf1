"""Flexible depth's options: which depth configurations are trained at a step, on how much of the batch."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ldsearch.errors import TrainingError, unknown
from ldsearch.space.assignments import ASSIGNMENTS, configurations, divisors
from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class DepthTasks:
    """The tasks of flexible depth (Wang, Xiao & Zhu 2020, Algorithm 1 and Table 5).

    One decoder task with ``always_full`` is the paper's "MT (only encoder)": the decoder keeps its depth.

    Args:
        assignment: Which blocks make up each depth (``ldsearch.space.assignments.ASSIGNMENTS``).
        encoder_tasks: Encoder depths drawn at each step; None: all divisors.
        decoder_tasks: Decoder depths drawn at each step; None: all divisors.
        batch_fraction: 1/k: the tasks of a step share every k-th row of its batch.
        always_full: Whether the full depth of each stack is among those drawn; the paper does not say.
        reduction: ``"sum"`` adds the tasks' gradients, as Algorithm 1 does; ``"mean"`` divides by their
            number, which matters for gradient clipping and plain SGD.
        lengths: Whether the tasks are trained at dropped lengths too (``FlexibleDepth``).

    Raises:
        TrainingError: If an option makes no sense.
    """

    assignment: str = "optimal"
    encoder_tasks: int | None = None
    decoder_tasks: int | None = None
    batch_fraction: float = 1.0
    always_full: bool = False
    reduction: Literal["sum", "mean"] = "sum"
    lengths: bool = False

    def __post_init__(self) -> None:
        if self.assignment not in ASSIGNMENTS:
            raise TrainingError(unknown("assignment", self.assignment, ASSIGNMENTS))
        if self.reduction not in ("sum", "mean"):
            raise TrainingError(f"unknown reduction {self.reduction!r}: use 'sum' or 'mean'")
        for name, tasks in self._tasks.items():
            if tasks is not None and tasks < 1:
                raise TrainingError(f"{name} tasks must be at least 1, not {tasks}")
        if not 0 < self.batch_fraction <= 1 or not math.isclose(self.batch_fraction * self.stride, 1):
            raise TrainingError(
                f"the batch fraction must be 1, 1/2, 1/3 or another 1/k, not {self.batch_fraction}"
            )

    @property
    def stride(self) -> int:
        """Every how many rows one is used."""
        return round(1 / self.batch_fraction)

    def burden(self, depths: Mapping[str, int]) -> float:
        """Cost of a step as Table 5 counts it: the share of the tasks times the share of the batch.

        Args:
            depths: Number of blocks of each stack (``Supernet.depths``).

        Raises:
            TrainingError: If a stack has fewer depths than are to be drawn, or is not there.
        """
        counts = self._counts(depths)
        shares = [count / len(divisors(depths[name])) for name, count in counts.items()]
        return math.prod(shares) * self.batch_fraction

    def sampled(self, depths: Mapping[str, int], rng: np.random.Generator) -> list[Subnet]:
        """The sub-networks of one step: depths drawn for each stack, and all pairs of them.

        Depths of a stack are drawn uniformly without replacement.

        Args:
            depths: Number of blocks of each stack (``Supernet.depths``).
            rng: Draws; not used where every depth is a task.

        Raises:
            TrainingError: If a stack has fewer depths than are to be drawn, or is not there.
        """
        grid = configurations(depths, self.assignment)
        drawn = [self._draw(depths[name], count, rng) for name, count in self._counts(depths).items()]
        return [grid[key] for key in itertools.product(*drawn)]

    def _draw(self, depth: int, count: int, rng: np.random.Generator) -> list[int]:
        every = divisors(depth)
        if count == len(every):
            return [*every]
        fixed = [depth] if self.always_full else []
        free = every[: len(every) - len(fixed)]
        return sorted(rng.choice(free, size=count - len(fixed), replace=False).tolist()) + fixed

    def _counts(self, depths: Mapping[str, int]) -> dict[str, int]:
        """How many depths of each stack are drawn, the encoder first."""
        counts = {}
        for name, tasks in self._tasks.items():
            available = len(divisors(depths[name])) if name in depths else 0
            if tasks is not None and tasks > available:
                raise TrainingError(f"{tasks} {name} tasks, but the model has {available} {name} depths")
            if available:
                counts[name] = available if tasks is None else tasks
        return counts

    @property
    def _tasks(self) -> dict[str, int | None]:
        return {"encoder": self.encoder_tasks, "decoder": self.decoder_tasks}
