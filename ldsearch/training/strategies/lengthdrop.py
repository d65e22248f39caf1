"""LengthDrop: a sandwich of full, smallest and random lengths, distilled in place (Kim & Cho 2020)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.space import Space
from ldsearch.space.lengths import constant_ratio_lengths, draw_lengths, draw_regular
from ldsearch.subnet import Lengths, Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting, reads
from ldsearch.training.strategies.layerdrop import draw_stacks, layerdrop_space

_BLOCKS = ("layer_drop", "layer_drop_schedule", "target_layers", "min_layers")  # LayerDrop's options
# Options of whatever trains dropped lengths, and of a sandwich.
LENGTHS = ("drop_bound", "token_score", "memory", "length_mode")
TEACHING = ("plain_share", "teacher", "reverse_kl")
RANDOM_PASSES = 2  # n_s of Sec. 3.1
_ALL = (0, 1)
# Rows of the batch that the full, the smallest and the random sub-networks see.
SANDWICHES: Mapping[str, tuple[tuple[int, int], ...]] = MappingProxyType(
    {
        "paper": (_ALL,) * (2 + RANDOM_PASSES),
        # Half for the smallest, which suffers most from seeing less.
        "shares": (_ALL, (0, 2), (1, 4), (3, 4)),
        # The full pass is half of the work, and with a separate teacher nobody learns from it.
        "taught": ((0, 4), *(_ALL,) * (1 + RANDOM_PASSES)),
    }
)


@dataclass(frozen=True)
class Draw:
    """The draw of a pass's sub-network, made anew in each batch.

    Args:
        drops: Whether LayerDrop draws what runs; else everything does.
        lengths: At full length, at the smallest lengths of the blocks that run, at one LengthDrop draw, or
            at regular lengths of any shape.
        taught: Whether it learns from a teacher's logits where anything is distilled; else from labels.
    """

    drops: bool = False
    lengths: Literal["full", "smallest", "random", "regular"] = "full"
    taught: bool = False


class Sampled:
    """A fixed number of passes a batch, each of a sub-network that is drawn on its own, of equal weight.

    LayerDrop draws a pass's blocks first and then lengths are drawn for those that run; a skipped block
    keeps its length. The space is that of all passes together.

    Args:
        setting: Model and options.
        plan: The passes of a batch.
        rows: Which rows each sees; (): all.
        plain_share: Share of the training, at its start, that the full model alone is trained for.
    """

    def __init__(
        self,
        setting: Setting,
        plan: Sequence[Draw],
        rows: Sequence[tuple[int, int]] = (),
        plain_share: float = 0.0,
    ) -> None:
        self.setting = setting
        self.plan = plan
        self.rows = rows or (_ALL,) * len(plan)
        self.plain_share = plain_share
        space = layerdrop_space(setting) if any(draw.drops for draw in plan) else setting.whole
        shortens = any(draw.lengths != "full" for draw in plan)
        self.space: Space = replace(space, lengths=setting.lengths if shortens else None)

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """The plan's sub-networks; the full model alone while the plain share lasts."""
        if progress < self.plain_share:
            return [Pass(self.setting.full, "label", 1.0)]
        passes = []
        for index, (draw, rows) in enumerate(zip(self.plan, self.rows, strict=True)):
            rng, subnet = draws(index), self.setting.full
            if draw.drops:
                subnet = Subnet(**draw_stacks(self.setting.now, rng))
            if draw.lengths != "full":
                how = draw_regular if draw.lengths == "regular" else draw_lengths
                subnet = shortened(self.setting, subnet, rng if draw.lengths != "smallest" else None, how)
            loss: Literal["label", "distill"] = "distill" if draw.taught and self.setting.distil else "label"
            passes.append(Pass(subnet, loss, 1 / len(self.plan), rows))
        return passes


def shortened(
    setting: Setting,
    subnet: Subnet,
    rng: np.random.Generator | None,
    draw: Callable[..., tuple[int, ...]] = draw_lengths,
) -> Subnet:
    """With one draw of lengths for the encoder blocks that run; without a generator at the smallest ones."""
    assert subnet.encoder is not None
    limits = setting.reference, len(subnet.encoder.blocks), setting.drop_bound
    tokens = constant_ratio_lengths(*limits) if rng is None else draw(*limits, rng)
    lengths = Lengths(tokens, setting.reference, setting.length_mode)
    return replace(subnet, encoder=replace(subnet.encoder, lengths=lengths))


@reads()
def plain(setting: Setting) -> Sampled:
    """The full model with the task's loss: the control of every comparison."""
    return Sampled(setting, [Draw()])


@reads(*_BLOCKS, "drop_groups", "skipped")
def layerdrop(setting: Setting) -> Sampled:
    """One random sub-network with the task's loss (Fan, Grave & Joulin 2019).

    Raises:
        TrainingError: If the setting's groups are unknown, or heads are to be dropped of a model without.
    """
    return Sampled(setting, [Draw(drops=True)])


@reads(
    *TEACHING,
    "genes",
    "sandwich",
    "label_share",
    "state_weight",
    genes={"depth": (*_BLOCKS, "teacher_drops"), "lengths": (*LENGTHS, "parity")},
)
def lengthdrop(setting: Setting) -> Sampled:
    """Full with the task's loss, then smallest and two random ones with the full pass's logits.

    The full pass is really full; with ``teacher_drops`` LayerDrop is applied to it too, as the reference
    code does. The paper runs every sub-network on all rows of the batch; with ``shares`` the smallest sees
    half of them, a random one a quarter; with ``taught``, for a separate teacher, the full model sees a
    quarter, and one of the random ones has regular lengths. Of ``genes`` alone, ``lengths`` runs every
    block and ``depth`` keeps every token.

    Raises:
        TrainingError: If sandwich or genes are unknown, or lengths are drawn of a model without an encoder.
    """
    if setting.sandwich not in SANDWICHES:
        raise TrainingError(f"unknown sandwich {setting.sandwich!r}: use {', '.join(SANDWICHES)}")
    genes = setting.genes.split("+")
    if sorted(genes) not in (["depth"], ["lengths"], ["depth", "lengths"]):
        raise TrainingError(f"--genes is depth, lengths or depth+lengths, not {setting.genes!r}")
    depth, lengths = "depth" in genes, "lengths" in genes
    if lengths and "encoder" not in setting.stacks:
        raise TrainingError("lengths are dropped in encoders: train a decoder with --genes depth")
    plan = [
        Draw(depth and setting.teacher_drops),
        Draw(depth, "smallest" if lengths else "full", taught=True),
        *[Draw(depth, "random" if lengths else "full", taught=True)] * RANDOM_PASSES,
    ]
    if lengths and setting.sandwich == "taught":
        # A drop in one block alone is next to never among LengthDrop's draws, and searches propose it.
        plan[-1] = replace(plan[-1], lengths="regular")
    return Sampled(setting, plan, SANDWICHES[setting.sandwich], setting.plain_share)
