"""The arms of results/recipe: ways to draw and to teach a sandwich's sub-networks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from token_scores import TRIED, VALUE
from torch import Tensor
from transformers import TrainerCallback

from ldsearch.space.lengths import constant_ratio_lengths, draw_lengths
from ldsearch.subnet import Subnet
from ldsearch.supernet.tokens import TOKEN_SCORES
from ldsearch.training.strategies import Draws, Pass, Setting
from ldsearch.training.strategies.layerdrop import draw_stacks

BOUND = Fraction(62, 100)  # the smallest of six blocks costs 0.15 of the MACs
EVERY_OTHER = (0, 2, 4)
SPECIALIST = 1 / 3  # of the compute that every supernet gets


def at(setting: Setting, blocks: Sequence[int], tokens: Sequence[int]) -> Subnet:
    """Those blocks at those lengths."""
    return Subnet.of_encoder(blocks, tuple(tokens), setting.reference)


def dropped(setting: Setting, rng: np.random.Generator) -> tuple[int, ...]:
    """LayerDrop's draw of blocks; never none."""
    blocks = draw_stacks(setting, rng)["encoder"].blocks
    return blocks or (int(rng.integers(setting.stacks["encoder"].blocks)),)


def random(setting: Setting, rng: np.random.Generator) -> Subnet:
    """LengthDrop's draw of lengths, on LayerDrop's draw of blocks."""
    kept = dropped(setting, rng)
    return at(setting, kept, draw_lengths(setting.reference, len(kept), setting.drop_bound, rng))


def smallest(setting: Setting, rng: np.random.Generator) -> Subnet:
    """The smallest lengths of LayerDrop's draw of blocks."""
    kept = dropped(setting, rng)
    return at(setting, kept, constant_ratio_lengths(setting.reference, len(kept), setting.drop_bound))


SANDWICH = (smallest, random, random)


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Args:
        says: What is different from the arms above it.
        rate: Peak learning rate.
        layer_drop: LayerDrop's rate.
        bound: Of the lengths.
        frozen: Whether a frozen plain model teaches instead of the full pass.
        label_share: As ``train-supernet`` has it.
        averaged: Share of the training, at its end, whose weights are averaged.
        dropout: Whether the model keeps its own, as ``train-supernet`` does.
        token_score: As ``train-supernet`` has it, or ``value``.
        alone: One specialist, which trains alone: all blocks at a constant ratio for a share of the MACs.
    """

    says: str
    rate: float = 1e-4
    layer_drop: float = 0.2
    bound: Fraction = BOUND
    frozen: bool = False
    label_share: float | None = None
    averaged: float = 0.0
    dropout: bool = False
    token_score: str = "column"
    alone: float | None = None


ARMS: dict[str, Arm] = {
    "default": Arm("rate 5e-5, bound 0.36", rate=5e-5, bound=Fraction(36, 100)),
    "deep": Arm("rate 5e-5, bound 0.62", rate=5e-5),
    "rate-1e-4": Arm("rate 1e-4, bound 0.62; all others too, but for what they say"),
    "dropout": Arm("rate 5e-5, dropout 0.1 as in plain fine-tuning", rate=5e-5, dropout=True),
    "dropout-1e-4": Arm("rate 1e-4, dropout 0.1 as in plain fine-tuning", dropout=True),
    "anchored-2e-4-averaged": Arm(
        "rate 2e-4, dropout, frozen teacher and labels in every pass, the full model's too; mean of the last "
        "0.3 of the steps",
        rate=2e-4,
        frozen=True,
        label_share=0.5,
        averaged=0.3,
        dropout=True,
    ),
}
TOKEN_SCORES.register(VALUE, TRIED[VALUE])
ARMS["valued"] = replace(
    ARMS["anchored-2e-4-averaged"],
    says=f"{ARMS['anchored-2e-4-averaged'].says}; token score `value`",
    token_score=VALUE,
)
ARMS["learned"] = replace(
    ARMS["anchored-2e-4-averaged"],
    says=f"{ARMS['anchored-2e-4-averaged'].says}; token score `learned`",
    token_score="learned",
)
ARMS["distilled"] = Arm(
    "rate 1e-4, dropout, no LayerDrop, every pass learns from the frozen teacher alone; mean of the last "
    "0.3 of the steps; token score `learned`",
    layer_drop=0.0,
    frozen=True,
    label_share=0.0,
    averaged=0.3,
    dropout=True,
    token_score="learned",
)
ALONE = (0.2, 0.35, 0.5, 0.7)
ARMS |= {
    f"alone-{share}": Arm(
        f"{share} of the MACs alone, a third of the compute",
        frozen=True,
        label_share=0.5,
        dropout=True,
        alone=share,
    )
    for share in ALONE
}


@dataclass(frozen=True)
class Recipe:
    """The passes of a batch: the full model, then the sandwich's sub-networks.

    Args:
        setting: Of the model.
        alone: What a specialist trains, nothing else then.
    """

    setting: Setting
    alone: Subnet | None = None

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """Weights add up to 1."""
        if self.alone is not None:
            return [Pass(self.alone, "distill", 1.0)]
        weight = 1 / (1 + len(SANDWICH))
        students = [draw(self.setting, draws(1 + i)) for i, draw in enumerate(SANDWICH)]
        full = Pass(self.setting.full, "label", weight)
        return [full, *[Pass(one, "distill", weight) for one in students]]


class Averaging(TrainerCallback):
    """The mean of the weights after each step of the last part of a training."""

    def __init__(self, model: torch.nn.Module, last: float) -> None:
        self.model, self.last, self.count = model, last, 0
        self.mean: dict[str, Tensor] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count this step's weights in."""
        if state.global_step < (1 - self.last) * state.max_steps:
            return
        self.count += 1
        for name, value in self.model.state_dict().items():
            if value.is_floating_point():
                old = self.mean.setdefault(name, value.detach().clone())
                old += (value - old) / self.count
