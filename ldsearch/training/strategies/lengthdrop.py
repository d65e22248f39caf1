"""LengthDrop: a sandwich of full, smallest and random lengths, distilled in place (Kim & Cho 2020)."""

from collections.abc import Sequence

from ldsearch.length_drop import constant_ratio_lengths, draw_lengths
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.training.strategies.base import Draws, Pass, Setting
from ldsearch.training.strategies.layerdrop import draw_blocks

RANDOM_PASSES = 2  # n_s of Sec. 3.1


class LengthDrop:
    """Full with the task's loss, then smallest and two random ones with the full pass's logits.

    Every shortened pass draws its own LayerDrop set first and then lengths for the blocks that run; a
    skipped block keeps its length. The full pass is really full; under ``parity`` LayerDrop is applied
    to it too, as the reference code does.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.weight = 1 / (RANDOM_PASSES + 2)

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """Four passes of weight 1/4; one full pass while the plain share lasts."""
        full = Subnet.full(self.setting.blocks)
        if progress < self.setting.plain_share:
            return [Pass(full, "label", 1.0)]
        if self.setting.parity:
            full = Subnet.of_encoder(self._draw_blocks(draws, 0))
        return [
            Pass(full, "label", self.weight),
            Pass(self._smallest(draws, 1), "distill", self.weight),
            *(
                Pass(self._random(draws, index), "distill", self.weight)
                for index in range(2, 2 + RANDOM_PASSES)
            ),
        ]

    def _draw_blocks(self, draws: Draws, index: int) -> tuple[int, ...]:
        return draw_blocks(self.setting.blocks, self.setting.layer_drop, draws(index))

    def _smallest(self, draws: Draws, index: int) -> Subnet:
        blocks = self._draw_blocks(draws, index)
        setting = self.setting
        return self._shortened(
            blocks, constant_ratio_lengths(setting.reference, len(blocks), setting.drop_bound)
        )

    def _random(self, draws: Draws, index: int) -> Subnet:
        rng = draws(index)
        setting = self.setting
        blocks = draw_blocks(setting.blocks, setting.layer_drop, rng)
        return self._shortened(blocks, draw_lengths(setting.reference, len(blocks), setting.drop_bound, rng))

    def _shortened(self, blocks: tuple[int, ...], tokens: tuple[int, ...]) -> Subnet:
        lengths = Lengths(tokens, self.setting.reference, self.setting.length_mode)
        return Subnet(encoder=Stack(blocks, lengths))
