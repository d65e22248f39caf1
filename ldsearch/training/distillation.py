"""Distillation: a teacher's outputs, losses that compare a student with them, a student without dropout."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from ldsearch.errors import TrainingError
from ldsearch.options import TrainSupernet
from ldsearch.supernet import Supernet


@dataclass(frozen=True)
class Distillation:
    """The loss of passes that learn from a teacher.

    Args:
        label_share: Weight of the task's own loss; the divergence from the teacher has the rest. Every pass
            mixes the two then, the full model's too where the teacher is separate. None: as in Kim & Cho
            2020, the full model learns from labels alone and its sub-networks from the teacher alone.
        state_weight: Factor on the distance of the first token's states (``state_distance``), which is added;
            only for heads that read that token.
        reverse_kl: Minimise KL(student || teacher), as the reference code does.
    """

    label_share: float | None = None
    state_weight: float = 0.0
    reverse_kl: bool = False


@dataclass(frozen=True)
class Targets:
    """Outputs that a teacher gives for a batch and a student is compared by.

    Args:
        logits: As its head gives them, rows first.
        states: Shape (B, blocks, d): position 0 after each executed block; None unless states are distilled.
    """

    logits: Tensor
    states: Tensor | None = None

    def take(self, rows: slice | Tensor) -> "Targets":
        """Select rows."""
        return Targets(self.logits[rows], None if self.states is None else self.states[rows])


def distillation_of(options: TrainSupernet, supernet: Supernet, *, reverse_kl: bool) -> Distillation:
    """The loss of what learns from a teacher, as options name it.

    Raises:
        TrainingError: If a number makes no sense, or the training has no teacher or no first token to match.
    """
    share, weight = options.label_share, options.state_weight
    if share is None and not weight:
        return Distillation(reverse_kl=reverse_kl)
    if options.teacher == "none":
        raise TrainingError("--label-share and --state-weight need a teacher")
    if share is not None and not 0 <= share <= 1:
        raise TrainingError(f"--label-share must lie in 0..1, not {share}")
    if not 0 <= weight < math.inf:
        raise TrainingError(f"--state-weight must be a number from 0 on, not {weight}")
    if weight and not supernet.reads_first:
        raise TrainingError("--state-weight is for heads that read the first token only")
    return Distillation(share, weight, reverse_kl)


def state_distance(teacher: Tensor, student: Tensor) -> Tensor:
    """Squared distance of first-token states over the teacher's squared norm; a mean over rows and blocks.

    The student's k-th of K blocks is compared with the teacher's block ⌊(k + 1) N / K⌋ - 1 of N, 0-based:
    evenly spaced, the last with the last (as Jiao et al. 2020, TinyBERT, Sec. 3.1).

    Args:
        teacher: Shape (B, N, d).
        student: Shape (B, K, d), K > 0.
    """
    blocks, deepest = student.shape[1], teacher.shape[1]
    evenly = [(index + 1) * deepest // blocks - 1 for index in range(blocks)]
    matched = teacher[:, evenly].detach().float()
    squared = (student.float() - matched).square().sum(dim=-1)
    return (squared / matched.square().sum(dim=-1)).mean()


def without_dropout(model: nn.Module) -> None:
    """Set every dropout rate of a model to 0; its configuration keeps them.

    Transformers holds a rate in a dropout module, or as a number of a layer that calls the function.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
