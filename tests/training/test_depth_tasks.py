"""Flexible depth's options: Table 5's burdens, what is drawn and how often."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import TrainingError
from ldsearch.space.assignments import assignment_named, configurations
from ldsearch.subnet import Subnet
from ldsearch.training.depth_tasks import DepthTasks

PAPER = {"encoder": 12, "decoder": 6}


def depths_of(subnets: list[Subnet]) -> tuple[list[int], list[int]]:
    """The different depths of each stack, ascending; fails where the sub-networks are not all their pairs."""
    pairs = [(len(subnet.encoder.blocks), len(subnet.decoder.blocks)) for subnet in subnets]
    encoders, decoders = (sorted({*side}) for side in zip(*pairs, strict=True))
    assert sorted(pairs) == [(m, n) for m in encoders for n in decoders]
    return encoders, decoders


@pytest.mark.parametrize(
    ("percent", "fraction", "encoder", "decoder"),
    [
        (100, 1, 6, 4),
        (50, 1, 6, 2),
        (50, 1, 3, 4),
        (50, 0.5, 6, 4),
        (25, 1, 6, 1),
        (25, 1, 3, 2),
        (25, 0.5, 6, 2),
        (25, 0.5, 3, 4),
        (25, 0.25, 6, 4),
    ],
)
def test_burdens_are_those_of_table_5(percent, fraction, encoder, decoder):
    tasks = DepthTasks(encoder_tasks=encoder, decoder_tasks=decoder, batch_fraction=fraction)
    assert tasks.burden(PAPER) == pytest.approx(percent / 100)
    drawn = tasks.sampled(PAPER, np.random.default_rng(0))
    assert len(drawn) == encoder * decoder
    assert len(drawn) / 24 / tasks.stride == pytest.approx(percent / 100)


def test_by_default_every_configuration_is_a_task_and_each_is_the_one_of_inference():
    drawn = DepthTasks().sampled(PAPER, np.random.default_rng(0))
    assert len(drawn) == 24
    assert drawn == [*configurations(PAPER, "optimal").values()]
    for subnet in drawn:
        for name, stack in (("encoder", subnet.encoder), ("decoder", subnet.decoder)):
            assert stack.blocks == assignment_named("optimal", PAPER[name])[len(stack.blocks)]


def test_draws_are_distinct_and_uniform_and_those_of_the_stacks_independent():
    tasks, rng = DepthTasks(encoder_tasks=3, decoder_tasks=2, assignment="seq"), np.random.default_rng(1)
    seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for _ in range(1500):
        encoders, decoders = depths_of(tasks.sampled(PAPER, rng))
        seen[tuple(encoders), tuple(decoders)] += 1
    possible = {(m, n) for m in combinations((1, 2, 3, 4, 6, 12), 3) for n in combinations((1, 2, 3, 6), 2)}
    assert set(seen) == possible
    assert chisquare([*seen.values()]).pvalue > 0.001


def test_the_full_depth_is_among_the_draws_on_request_and_the_others_stay_uniform():
    tasks, rng = DepthTasks(encoder_tasks=3, always_full=True), np.random.default_rng(2)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(500):
        drawn = tasks.sampled(PAPER, rng)
        assert drawn[-1] == configurations(PAPER, "optimal")[12, 6]
        encoders, decoders = depths_of(drawn)
        assert decoders == [1, 2, 3, 6]
        seen[tuple(encoders)] += 1
    assert set(seen) == {(*others, 12) for others in combinations((1, 2, 3, 4, 6), 2)}
    assert chisquare([*seen.values()]).pvalue > 0.001


def test_a_decoder_that_keeps_its_depth_leaves_the_encoders_six_tasks_of_table_4():
    tasks = DepthTasks(decoder_tasks=1, always_full=True)
    for seed in range(20):
        drawn = tasks.sampled(PAPER, np.random.default_rng(seed))
        assert depths_of(drawn) == ([1, 2, 3, 4, 6, 12], [6])
    assert tasks.burden(PAPER) == pytest.approx(6 / 24)


def test_one_stack_draws_its_own_depths_only():
    tasks = DepthTasks(decoder_tasks=2)
    drawn = [tasks.sampled({"decoder": 8}, np.random.default_rng(seed)) for seed in range(30)]
    assert all(subnet.encoder is None for step in drawn for subnet in step)
    found = {tuple(len(subnet.decoder.blocks) for subnet in step) for step in drawn}
    assert found == set(combinations((1, 2, 4, 8), 2))
    assert tasks.burden({"decoder": 8}) == 0.5


def test_draws_are_a_function_of_the_generator():
    tasks = DepthTasks(encoder_tasks=2, decoder_tasks=2)
    first, again = (tasks.sampled(PAPER, np.random.default_rng(7)) for _ in range(2))
    assert first == again
    assert len({tuple(tasks.sampled(PAPER, np.random.default_rng(s))) for s in range(20)}) > 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"assignment": "best"}, "unknown assignment 'best': use one of head, seq"),
        ({"reduction": "max"}, "unknown reduction 'max'"),
        ({"encoder_tasks": 0}, "encoder tasks must be at least 1, not 0"),
        ({"decoder_tasks": -1}, "decoder tasks must be at least 1, not -1"),
        *(({"batch_fraction": f}, "another 1/k") for f in (0.0, -0.5, 1.5, 0.4, 2 / 3, float("nan"))),
    ],
)
def test_senseless_options_are_refused(options, says):
    with pytest.raises(TrainingError, match=says):
        DepthTasks(**options)


def test_third_and_fifth_are_fractions():
    assert [DepthTasks(batch_fraction=1 / k).stride for k in range(1, 60)] == [*range(1, 60)]


@pytest.mark.parametrize(
    ("options", "depths", "says"),
    [
        ({"encoder_tasks": 7}, PAPER, "7 encoder tasks, but the model has 6 encoder depths"),
        ({"decoder_tasks": 5}, PAPER, "5 decoder tasks, but the model has 4 decoder depths"),
        ({"decoder_tasks": 1}, {"encoder": 12}, "the model has 0 decoder depths"),
    ],
)
def test_more_tasks_than_depths_are_refused(options, depths, says):
    tasks = DepthTasks(**options)
    for call in (lambda: tasks.burden(depths), lambda: tasks.sampled(depths, np.random.default_rng(0))):
        with pytest.raises(TrainingError, match=says):
            call()
