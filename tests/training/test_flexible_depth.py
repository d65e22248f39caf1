"""Flexible depth's passes: the sub-networks, their weights, and the rows they share."""

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import TrainingError
from ldsearch.space.assignments import configurations
from ldsearch.training.depth_tasks import DepthTasks
from ldsearch.training.strategies.flexible_depth import FlexibleDepth


@dataclass
class Setting:
    """What the strategy reads of a setting."""

    depth_tasks: DepthTasks = field(default_factory=DepthTasks)
    blocks: dict[str, int] = field(default_factory=lambda: {"encoder": 12, "decoder": 6})
    pinned: tuple[int, ...] = ()

    @property
    def stacks(self) -> dict[str, SimpleNamespace]:
        return {
            name: SimpleNamespace(blocks=blocks, pinned=self.pinned if name == "encoder" else ())
            for name, blocks in self.blocks.items()
        }


def draws_of(seed: int):
    return lambda index: np.random.default_rng([seed, index])


def test_all_24_tasks_see_the_whole_batch_with_weight_1_and_learn_from_the_labels():
    passes = FlexibleDepth(Setting()).passes(draws_of(0), 0.5)
    assert {one.subnet for one in passes} == {
        *configurations({"encoder": 12, "decoder": 6}, "optimal").values()
    }
    assert len(passes) == 24
    assert {(one.loss, one.weight, one.rows) for one in passes} == {("label", 1.0, (0, 1))}
    assert passes[0].subnet.describe() == "encoder blocks 6; decoder blocks 3"
    assert passes[-1].subnet.describe() == "encoder blocks 0-11; decoder blocks 0-5"


def test_the_mean_weighs_what_was_drawn():
    tasks = DepthTasks(encoder_tasks=3, decoder_tasks=2, reduction="mean")
    passes = FlexibleDepth(Setting(tasks)).passes(draws_of(0), 0.5)
    assert len(passes) == 6
    assert sum(one.weight for one in passes) == pytest.approx(1)


def test_the_tasks_share_rows_and_over_the_steps_every_row_is_seen_equally_often():
    strategy = FlexibleDepth(Setting(DepthTasks(encoder_tasks=2, decoder_tasks=1, batch_fraction=0.25)))
    offsets: Counter[int] = Counter()
    for seed in range(400):
        passes = strategy.passes(draws_of(seed), 0.5)
        ((offset, stride),) = {one.rows for one in passes}
        assert stride == 4
        offsets[offset] += 1
    assert set(offsets) == {0, 1, 2, 3}
    assert chisquare([*offsets.values()]).pvalue > 0.001


def test_every_task_comes_equally_often():
    strategy = FlexibleDepth(Setting(DepthTasks(encoder_tasks=1, decoder_tasks=1)))
    seen = Counter(strategy.passes(draws_of(seed), 0.0)[0].subnet for seed in range(1200))
    assert len(seen) == 24
    assert chisquare([*seen.values()]).pvalue > 0.001


def test_passes_are_a_function_of_the_draws():
    tasks = DepthTasks(encoder_tasks=3, decoder_tasks=2, batch_fraction=0.5)
    first, second = FlexibleDepth(Setting(tasks)), FlexibleDepth(Setting(tasks))
    assert first.passes(draws_of(5), 0.5) == second.passes(draws_of(5), 0.9)
    assert len({tuple(first.passes(draws_of(seed), 0.5)) for seed in range(20)}) > 10


def test_one_stack_is_enough():
    passes = FlexibleDepth(Setting(DepthTasks("head"), {"decoder": 4})).passes(draws_of(0), 0.0)
    assert [one.subnet.decoder.blocks for one in passes] == [(0,), (0, 1), (0, 1, 2, 3)]
    assert all(one.subnet.encoder is None for one in passes)


def test_a_block_that_the_model_needs_is_not_left_out():
    assert FlexibleDepth(Setting(DepthTasks("head"), pinned=(0,)))
    assert FlexibleDepth(Setting(DepthTasks("left"), pinned=(0,)))
    with pytest.raises(
        TrainingError, match=r"'optimal' leaves out blocks \[0\] of the encoder at some depths"
    ):
        FlexibleDepth(Setting(pinned=(0,)))


def test_more_tasks_than_depths_are_refused_before_the_first_step():
    with pytest.raises(TrainingError, match="7 encoder tasks"):
        FlexibleDepth(Setting(DepthTasks(encoder_tasks=7)))
