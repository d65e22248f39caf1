"""What every training strategy gets and gives: a setting, random draws, passes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.subnet import LengthMode, Subnet
from ldsearch.training.depth_tasks import DepthTasks
from ldsearch.training.drop_rates import checked

# The generator of one pass of this batch; a function of (seed, optimizer step, micro-step, pass).
Draws = Callable[[int], np.random.Generator]


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of a sub-network over the batch, or over every few rows of it.

    Args:
        subnet: What runs.
        loss: ``"label"`` for the task's loss; ``"distill"`` for the divergence from the logits of the
            trainer's separate teacher, or without one of the first pass, which then sees all rows.
        weight: Factor on the loss, which is a mean over the rows.
        rows: (offset, stride): the rows offset, offset + stride, …. Batches are sorted by length, so that
            strided rows are alike in length where halves are not.
    """

    subnet: Subnet
    loss: Literal["label", "distill"]
    weight: float
    rows: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class StackSetting:
    """One stack of the model, and how its blocks are dropped.

    Args:
        blocks: Number of blocks.
        layer_rates: LayerDrop probability of each block (``ldsearch.training.drop_rates``).
        pinned: Blocks that are never skipped.
        min_layers: The fewest blocks that run.
        heads: Attention heads of each block; 0 where they cannot be dropped.

    Raises:
        TrainingError: If a number makes no sense.
    """

    blocks: int
    layer_rates: tuple[float, ...]
    pinned: tuple[int, ...] = ()
    min_layers: int = 0
    heads: int = 0

    def __post_init__(self) -> None:
        checked(self.layer_rates, self.blocks)
        if not 0 <= self.min_layers <= self.blocks:
            raise TrainingError(f"--min-layers must lie in 0..{self.blocks}, not {self.min_layers}")


@dataclass(frozen=True)
class Setting:
    """The model and the options a strategy works with.

    Args:
        stacks: The model's stacks by name, the encoder first (``Supernet.stacks``).
        reference: Reference input length l₀ in tokens.
        drop_bound: LengthDrop probability p.
        length_mode: How lengths apply to shorter inputs.
        sandwich: How LengthDrop's sub-networks share a batch (``lengthdrop.SANDWICHES``).
        plain_share: Share of the training that LengthDrop leaves to the full model alone, at its start:
            a sandwich distils from the full model, which has to know something first.
        distil: Whether sub-networks learn from logits rather than from the labels.
        parity: Follow the reference code where ldsearch departs from it.
        drop_groups: What LayerDrop drops (``groups.parts_of``).
        depth_tasks: Which depths flexible depth trains at a step.

    Raises:
        TrainingError: If a number makes no sense.
    """

    stacks: Mapping[str, StackSetting]
    reference: int
    drop_bound: Fraction
    length_mode: LengthMode = "ratio"
    sandwich: str = "paper"
    plain_share: float = 0.0
    distil: bool = True
    parity: bool = False
    drop_groups: str = "layer"
    depth_tasks: DepthTasks = field(default_factory=DepthTasks)

    def __post_init__(self) -> None:
        if not 0 <= self.plain_share < 1:
            raise TrainingError(f"the plain share must lie in [0, 1), not {self.plain_share}")

    @property
    def full(self) -> Subnet:
        """All blocks, all tokens."""
        return Subnet.full(**{name: stack.blocks for name, stack in self.stacks.items()})


class TrainingStrategy(Protocol):
    """Names the sub-networks that see a batch."""

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """The passes of one batch, in order; the first is the teacher of every ``"distill"`` pass.

        Args:
            draws: Generator of pass i of this batch.
            progress: Share of the optimizer steps that are done, in [0, 1).
        """
