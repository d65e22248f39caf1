"""What every training strategy gets and gives: a setting, random draws, passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.subnet import LengthMode, Subnet

# The generator of one pass of this batch; a function of (seed, optimizer step, micro-step, pass).
Draws = Callable[[int], np.random.Generator]


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of a sub-network over the batch.

    Args:
        subnet: What runs.
        loss: ``"label"`` for the task's loss; ``"distill"`` for the divergence from the logits of the
            trainer's separate teacher, or without one of the first pass.
        weight: Factor on the loss.
    """

    subnet: Subnet
    loss: Literal["label", "distill"]
    weight: float


@dataclass(frozen=True)
class Setting:
    """The model and the options a strategy works with.

    Args:
        blocks: Number of blocks of the model.
        reference: Reference input length l₀ in tokens.
        drop_bound: LengthDrop probability p.
        layer_drop: LayerDrop probability.
        length_mode: How lengths apply to shorter inputs.
        plain_share: Share of the training that LengthDrop leaves to the full model alone, at its start:
            a sandwich distils from the full model, which has to know something first.
        parity: Follow the reference code where ldsearch departs from it.
    """

    blocks: int
    reference: int
    drop_bound: Fraction
    layer_drop: float
    length_mode: LengthMode = "ratio"
    plain_share: float = 0.0
    parity: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.layer_drop <= 1:
            raise TrainingError(f"a LayerDrop probability must lie in [0, 1], not {self.layer_drop}")
        if not 0 <= self.plain_share < 1:
            raise TrainingError(f"the plain share must lie in [0, 1), not {self.plain_share}")


class TrainingStrategy(Protocol):
    """Names the sub-networks that see a batch."""

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """The passes of one batch, in order; the first is the teacher of every ``"distill"`` pass.

        Args:
            draws: Generator of pass i of this batch.
            progress: Share of the optimizer steps that are done, in [0, 1).
        """
