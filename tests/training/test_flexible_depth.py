"""Flexible depth: Table 5's burdens, what is drawn and how often, weights and rows of the passes."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import TrainingError
from ldsearch.space.assignments import assignment_named, configurations
from ldsearch.subnet import Stack, Subnet
from ldsearch.training.strategies import Setting, StackSetting
from ldsearch.training.strategies.flexible_depth import FlexibleDepth
from tests.training.test_strategies import draws_of

PAPER = {"encoder": 12, "decoder": 6}
ALL = [*configurations(PAPER, "optimal").values()]


def flexible(
    depths: dict[str, int] | None = None, pinned: tuple[int, ...] = (), **options: object
) -> FlexibleDepth:
    stacks = {
        name: StackSetting(blocks, (0.0,) * blocks, pinned if name == "encoder" else ())
        for name, blocks in (depths or PAPER).items()
    }
    return FlexibleDepth(Setting(stacks, 32, Fraction(1, 5), **options))


def depths_of(subnets: list[Subnet]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The different depths of each stack, ascending; fails where the sub-networks are not all their pairs."""
    pairs = [(len(subnet.encoder.blocks), len(subnet.decoder.blocks)) for subnet in subnets]
    encoders, decoders = (tuple(sorted({*side})) for side in zip(*pairs, strict=True))
    assert sorted(pairs) == [(m, n) for m in encoders for n in decoders]
    return encoders, decoders


@pytest.mark.parametrize(
    ("percent", "share", "encoder", "decoder"),
    [(100, 1, 6, 4), (50, 1, 3, 4), (50, 0.5, 6, 4), (25, 1, 6, 1), (25, 1, 3, 2), (25, 0.25, 6, 4)],
)
def test_burdens_are_those_of_table_5(percent, share, encoder, decoder):
    strategy = flexible(encoder_tasks=encoder, decoder_tasks=decoder, batch_share=share)
    drawn = strategy.tasks(np.random.default_rng(0))
    assert len(drawn) == encoder * decoder
    assert len(drawn) / 24 / strategy.stride == pytest.approx(percent / 100)


def test_third_and_fifth_are_fractions():
    assert [flexible(batch_share=1 / k).stride for k in range(1, 60)] == [*range(1, 60)]


@pytest.mark.parametrize(("reduction", "weight"), [("sum", 1.0), ("mean", 1 / 24)])
def test_all_24_tasks_see_the_whole_batch_and_learn_from_the_labels(reduction, weight):
    passes = flexible(reduction=reduction).passes(draws_of(0), 0.5)
    assert [one.subnet for one in passes] == ALL
    assert len(passes) == 24
    assert {(one.loss, one.weight, one.rows) for one in passes} == {("label", weight, (0, 1))}


def test_draws_are_distinct_and_uniform_and_those_of_the_stacks_independent():
    strategy = flexible(encoder_tasks=3, decoder_tasks=2, assignment="seq")
    rng = np.random.default_rng(1)
    seen = Counter(depths_of(strategy.tasks(rng)) for _ in range(1500))
    possible = {(m, n) for m in combinations((1, 2, 3, 4, 6, 12), 3) for n in combinations((1, 2, 3, 6), 2)}
    assert set(seen) == possible
    assert chisquare([*seen.values()]).pvalue > 0.001


def test_the_full_depth_is_among_the_draws_on_request_and_the_others_stay_uniform():
    strategy, rng = flexible(encoder_tasks=3, always_full=True), np.random.default_rng(2)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(500):
        drawn = strategy.tasks(rng)
        assert drawn[-1] == ALL[-1]
        encoders, decoders = depths_of(drawn)
        assert decoders == (1, 2, 3, 6)
        seen[encoders] += 1
    assert set(seen) == {(*others, 12) for others in combinations((1, 2, 3, 4, 6), 2)}
    assert chisquare([*seen.values()]).pvalue > 0.001
    # A decoder that keeps its depth leaves the encoder's six tasks of Table 4.
    encoder_only = flexible(decoder_tasks=1, always_full=True)
    assert all(depths_of(encoder_only.tasks(rng)) == ((1, 2, 3, 4, 6, 12), (6,)) for _ in range(20))


def test_one_stack_draws_its_own_depths_only():
    strategy, rng = flexible({"decoder": 8}, decoder_tasks=2), np.random.default_rng(0)
    drawn = {tuple(strategy.tasks(rng)) for _ in range(50)}
    blocks = {m: Subnet(decoder=Stack(assignment_named("optimal", 8)[m])) for m in (1, 2, 4, 8)}
    assert drawn == set(combinations(blocks.values(), 2))


def test_the_tasks_share_rows_and_over_the_steps_every_row_and_task_is_seen_equally_often():
    strategy = flexible(encoder_tasks=1, decoder_tasks=1, batch_share=0.25)
    offsets: Counter[int] = Counter()
    tasks: Counter[Subnet] = Counter()
    for seed in range(1200):
        (one,) = strategy.passes(draws_of(seed), 0.5)
        assert one.rows[1] == 4
        offsets[one.rows[0]] += 1
        tasks[one.subnet] += 1
    for seen, kinds in ((offsets, 4), (tasks, 24)):
        assert len(seen) == kinds
        assert chisquare([*seen.values()]).pvalue > 0.001


def test_a_block_that_the_model_needs_is_not_left_out():
    assert flexible(assignment="head", pinned=(0,))
    assert flexible(assignment="left", pinned=(0,))
    with pytest.raises(TrainingError, match=r"'optimal' leaves out blocks \[0\] of the encoder"):
        flexible(pinned=(0,))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"assignment": "best"}, "unknown assignment 'best': use one of head, seq"),
        ({"reduction": "max"}, "unknown reduction 'max'"),
        ({"encoder_tasks": 0}, "encoder tasks must be at least 1, not 0"),
        ({"encoder_tasks": 7}, "7 encoder tasks, but the model has 6 encoder depths"),
        ({"decoder_tasks": 5}, "5 decoder tasks, but the model has 4 decoder depths"),
        ({"depths": {"encoder": 12}, "decoder_tasks": 1}, "the model has 0 decoder depths"),
        *(({"batch_share": share}, "another 1/k") for share in (-0.5, 1.5, 0.4, 2 / 3, float("nan"))),
    ],
)
def test_senseless_options_are_refused(options, says):
    with pytest.raises(TrainingError, match=says):
        flexible(**options)
