"""LengthDrop: a sandwich of full, smallest and random lengths, distilled in place (Kim & Cho 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

import numpy as np

from ldsearch.errors import TrainingError
from ldsearch.space import Space
from ldsearch.space.lengths import constant_ratio_lengths, draw_lengths
from ldsearch.subnet import Lengths, Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting
from ldsearch.training.strategies.layerdrop import draw_stacks, dropped_depths

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
class LengthDraws:
    """Sub-networks at dropped lengths, which fall at the encoder's blocks that run only."""

    setting: Setting

    def random(self, subnet: Subnet, rng: np.random.Generator) -> Subnet:
        """At one LengthDrop draw."""
        return self._shortened(subnet, draw_lengths(*self._range(subnet), rng))

    def smallest(self, subnet: Subnet) -> Subnet:
        """At the smallest lengths: the range's lower end."""
        return self._shortened(subnet, constant_ratio_lengths(*self._range(subnet)))

    def _range(self, subnet: Subnet) -> tuple[int, int, Fraction]:
        assert subnet.encoder is not None
        return self.setting.reference, len(subnet.encoder.blocks), self.setting.drop_bound

    def _shortened(self, subnet: Subnet, tokens: tuple[int, ...]) -> Subnet:
        assert subnet.encoder is not None
        lengths = Lengths(tokens, self.setting.reference, self.setting.length_mode)
        return replace(subnet, encoder=replace(subnet.encoder, lengths=lengths))


class LengthDrop:
    """Full with the task's loss, then smallest and two random ones with the full pass's logits.

    Every shortened pass draws its own LayerDrop set first and then lengths for the blocks that run; a
    skipped block keeps its length. The full pass is really full; with ``teacher_drops`` LayerDrop is applied
    to it too, as the reference code does. The paper runs every sub-network on all rows of the batch;
    with ``shares`` the smallest sees half of them, a random one a quarter; with ``taught``, for a separate
    teacher, the full model sees a quarter.
    """

    def __init__(self, setting: Setting) -> None:
        if setting.sandwich not in SANDWICHES:
            raise TrainingError(f"unknown sandwich {setting.sandwich!r}: use {', '.join(SANDWICHES)}")
        if "encoder" not in setting.stacks:
            raise TrainingError("lengths are dropped in encoders: train a decoder with layerdrop or plain")
        self.setting = setting
        self.lengths = LengthDraws(setting)
        self.weight = 1 / (RANDOM_PASSES + 2)

    @property
    def space(self) -> Space:
        """The blocks that LayerDrop draws, at the lengths that LengthDrop draws."""
        depths = tuple(dropped_depths(self.setting))
        return replace(self.setting.whole, depths=depths, lengths=self.setting.lengths)

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """Four passes of weight 1/4; one full pass while the plain share lasts."""
        full = self.setting.full
        if progress < self.setting.plain_share:
            return [Pass(full, "label", 1.0)]
        if self.setting.teacher_drops:
            full = self._drawn(draws(0))
        shortened = [self.lengths.smallest(self._drawn(draws(1)))]
        for index in range(2, 2 + RANDOM_PASSES):
            rng = draws(index)
            shortened.append(self.lengths.random(self._drawn(rng), rng))
        loss: Literal["label", "distill"] = "distill" if self.setting.distil else "label"
        rows = SANDWICHES[self.setting.sandwich]
        return [
            Pass(full, "label", self.weight, rows[0]),
            *(
                Pass(subnet, loss, self.weight, part)
                for subnet, part in zip(shortened, rows[1:], strict=True)
            ),
        ]

    def _drawn(self, rng: np.random.Generator) -> Subnet:
        """A LayerDrop draw."""
        return Subnet(**draw_stacks(self.setting, ("layer",), rng))
