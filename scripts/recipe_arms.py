"""The arms of results/recipe: ways to draw and to teach a sandwich's sub-networks."""

from collections.abc import Callable, Sequence
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
from ldsearch.training.trainer import SupernetTrainer, Targets

BOUND = Fraction(62, 100)  # the smallest of six blocks costs 0.15 of the MACs
EVERY_OTHER = (0, 2, 4)
SPECIALIST = 1 / 3  # of the compute that every supernet gets

Drawn = Callable[[Setting, np.random.Generator, float], Subnet]  # of a generator and the progress


def at(setting: Setting, blocks: Sequence[int], tokens: Sequence[int]) -> Subnet:
    """Those blocks at those lengths."""
    return Subnet.of_encoder(blocks, tuple(tokens), setting.reference)


def dropped(setting: Setting, rng: np.random.Generator) -> tuple[int, ...]:
    """LayerDrop's draw of blocks; never none."""
    blocks = draw_stacks(setting, rng)["encoder"].blocks
    return blocks or (int(rng.integers(setting.stacks["encoder"].blocks)),)


def uniform_depth(setting: Setting, rng: np.random.Generator) -> tuple[int, ...]:
    """A number of blocks from a third of them on, each as likely; then any so many blocks."""
    blocks = setting.stacks["encoder"].blocks
    count = int(rng.integers(-(-blocks // 3), blocks, endpoint=True))
    return tuple(sorted(rng.permutation(blocks)[:count].tolist()))


def everything(setting: Setting, rng: np.random.Generator) -> tuple[int, ...]:
    """All blocks."""
    return tuple(range(setting.stacks["encoder"].blocks))


Blocks = Callable[[Setting, np.random.Generator], tuple[int, ...]]


def bound(setting: Setting, progress: float, ramp: float) -> Fraction:
    """The bound of a curriculum, which rises over a share of the training; at ramp 0 it stays."""
    share = min(1.0, (progress + 0.02) / ramp) if ramp else 1.0
    return setting.drop_bound * Fraction(share).limit_denominator(100)


def random(blocks: Blocks, ramp: float = 0.0) -> Drawn:
    """LengthDrop's draw of the blocks that run."""

    def draw(setting: Setting, rng: np.random.Generator, progress: float) -> Subnet:
        kept = blocks(setting, rng)
        limits = setting.reference, len(kept), bound(setting, progress, ramp)
        return at(setting, kept, draw_lengths(*limits, rng))

    return draw


def smallest(blocks: Blocks, ramp: float = 0.0) -> Drawn:
    """The smallest lengths of the blocks that run."""

    def draw(setting: Setting, rng: np.random.Generator, progress: float) -> Subnet:
        kept = blocks(setting, rng)
        limits = setting.reference, len(kept), bound(setting, progress, ramp)
        return at(setting, kept, constant_ratio_lengths(*limits))

    return draw


def constant(blocks: Blocks) -> Drawn:
    """One rate for all blocks, uniform up to the bound: about uniform in cost, and what is searched first."""

    def draw(setting: Setting, rng: np.random.Generator, progress: float) -> Subnet:
        kept = blocks(setting, rng)
        rate = setting.drop_bound * Fraction(int(rng.integers(0, 101)), 100)
        return at(setting, kept, constant_ratio_lengths(setting.reference, len(kept), rate))

    return draw


def listed(rate: Fraction, blocks: Sequence[int] | None = None) -> Drawn:
    """The same sub-network at every step (Starbucks: a fixed list of sizes)."""

    def draw(setting: Setting, rng: np.random.Generator, progress: float) -> Subnet:
        kept = tuple(blocks) if blocks is not None else everything(setting, rng)
        return at(setting, kept, constant_ratio_lengths(setting.reference, len(kept), rate))

    return draw


SANDWICH = (smallest(dropped), random(dropped), random(dropped))


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Args:
        says: What is different from the arms above it.
        students: What runs beside the full model in every batch.
        rate: Peak learning rate.
        layer_drop: LayerDrop's rate.
        bound: Of the lengths.
        full_weight: Weight of the full pass; the students' are 1.
        full_rows: Rows of the batch that the full pass sees.
        frozen: Whether a frozen plain model teaches instead of the full pass.
        label_share: As ``train-supernet`` has it.
        state_weight: As ``train-supernet`` has it.
        adaptive: AlphaNet's clipped alpha divergence instead of the Kullback-Leibler one.
        averaged: Share of the training, at its end, whose weights are averaged.
        dropout: Whether the model keeps its own, as ``train-supernet`` does.
        token_score: As ``train-supernet`` has it, or ``value``.
        alone: One specialist, which trains alone: all blocks at a constant ratio for a share of the MACs.
    """

    says: str
    students: tuple[Drawn, ...] = SANDWICH
    rate: float = 1e-4
    layer_drop: float = 0.2
    bound: Fraction = BOUND
    full_weight: float = 1.0
    full_rows: tuple[int, int] = (0, 1)
    frozen: bool = False
    label_share: float | None = None
    state_weight: float = 0.0
    adaptive: bool = False
    averaged: float = 0.0
    dropout: bool = False
    token_score: str = "column"
    alone: float | None = None


TAUGHT: dict[str, Any] = {"frozen": True, "label_share": 0.5, "full_rows": (0, 4)}
ARMS: dict[str, Arm] = {
    "default": Arm("rate 5e-5, bound 0.36", rate=5e-5, bound=Fraction(36, 100)),
    "deep": Arm("rate 5e-5, bound 0.62", rate=5e-5),
    "rate-1e-4": Arm("rate 1e-4, bound 0.62; all others too, but for what they say"),
    "rate-2e-4": Arm("rate 2e-4", rate=2e-4),
    "rate-4e-4": Arm("rate 4e-4", rate=4e-4),
    "no-layerdrop": Arm("no LayerDrop", layer_drop=0.0),
    "whole-smallest": Arm(
        "no LayerDrop in the smallest pass", (smallest(everything), random(dropped), random(dropped))
    ),
    "uniform-depth": Arm(
        "depth uniform, not LayerDrop",
        (smallest(everything), random(uniform_depth), random(uniform_depth)),
    ),
    "full-twice": Arm("full pass of weight 2", full_weight=2.0),
    "full-half": Arm("full pass of weight 0.5", full_weight=0.5),
    "frozen": Arm("frozen teacher; the full model sees a quarter", frozen=True, full_rows=(0, 4)),
    "labels": Arm("frozen teacher, and labels beside it", **TAUGHT),
    "states": Arm("frozen teacher, labels and [CLS] states", **TAUGHT, state_weight=1.0),
    "alpha": Arm("adaptive divergence", adaptive=True),
    "curriculum": Arm(
        "bound rises over the first half",
        (smallest(dropped, 0.5), random(dropped, 0.5), random(dropped, 0.5)),
    ),
    "constant": Arm("one rate for all blocks", (smallest(dropped), constant(dropped), constant(dropped))),
    "list": Arm(
        "fixed list: rates 0.62, 0.4, 0.2, every other block",
        (listed(BOUND), listed(Fraction(2, 5)), listed(Fraction(1, 5)), listed(Fraction(1, 5), EVERY_OTHER)),
    ),
    "averaged": Arm("mean of the last 0.3 of the training", averaged=0.3),
    "together": Arm("rate 2e-4, frozen teacher, labels beside it", **TAUGHT, rate=2e-4),
    "fast-alpha": Arm("rate 2e-4 and adaptive divergence", rate=2e-4, adaptive=True),
    "dropout": Arm("rate 5e-5, dropout 0.1 as in plain fine-tuning", rate=5e-5, dropout=True),
    "dropout-1e-4": Arm("rate 1e-4, dropout 0.1 as in plain fine-tuning", dropout=True),
    "anchored": Arm(
        "rate 1e-4, dropout, frozen teacher and labels in every pass, the full model's too",
        frozen=True,
        label_share=0.5,
        dropout=True,
    ),
    "anchored-2e-4": Arm(
        "rate 2e-4, dropout, frozen teacher and labels in every pass, the full model's too",
        rate=2e-4,
        frozen=True,
        label_share=0.5,
        dropout=True,
    ),
    "one-student": Arm("one random sub-network a step", (random(dropped),)),
}
ARMS |= {
    f"{name}-averaged": replace(
        ARMS[name], says=f"{ARMS[name].says}; mean of the last 0.3 of the steps", averaged=0.3
    )
    for name in ("dropout-1e-4", "anchored", "anchored-2e-4")
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
    """The passes of a batch: the full model, then the arm's students.

    Args:
        arm: What is drawn.
        setting: Of the model.
        alone: What a specialist trains, nothing else then.
    """

    arm: Arm
    setting: Setting
    alone: Subnet | None = None

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """Weights add up to 1."""
        if self.alone is not None:
            return [Pass(self.alone, "distill", 1.0)]
        arm, total = self.arm, self.arm.full_weight + len(self.arm.students)
        full = Pass(self.setting.full, "label", arm.full_weight / total, arm.full_rows)
        students = [draw(self.setting, draws(1 + i), progress) for i, draw in enumerate(arm.students)]
        return [full, *[Pass(one, "distill", 1 / total) for one in students]]


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


class Alpha(SupernetTrainer):
    """Distils by the larger of two clipped alpha divergences (Wang et al. 2021, AlphaNet, Sec. 3.2)."""

    def _loss(self, named: Pass, outputs: Targets, batch: Any, targets: Targets | None) -> Tensor:
        if named.loss == "label" or targets is None:
            return super()._loss(named, outputs, batch, targets)
        teacher, student = (logits.float().log_softmax(-1) for logits in (targets.logits, outputs.logits))
        return alpha_divergence(teacher, student)


def alpha_divergence(p: Tensor, q: Tensor, clip: float = 5.0) -> Tensor:
    """A loss with the gradient of the larger of D(alpha = 1) and D(alpha = -1) in each row.

    D(alpha) = (sum q (p/q)^alpha - 1) / (alpha (alpha - 1)), whose gradient is -1/alpha times that of log q
    weighted by q (p/q)^alpha; the ratio is clipped. At alpha = 1 it is the Kullback-Leibler divergence.
    """
    ratio = (q - p).exp().clamp(max=clip).detach()
    weight = q.exp().detach() * ratio
    larger = (weight.sum(-1) - 1) / 2 > (p.exp() * (p - q)).sum(-1)
    return torch.where(larger, (weight * q).sum(-1), -(p.exp() * q).sum(-1)).mean()
