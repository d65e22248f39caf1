"""Training strategies: which sub-networks, how often, from which counters."""

from fractions import Fraction

import numpy as np
import pytest

from ldsearch.errors import SpaceError, TrainingError
from ldsearch.length_drop import as_rate
from ldsearch.subnet import Subnet
from ldsearch.training.strategies import STRATEGIES, Setting, make_strategy
from ldsearch.training.strategies.layerdrop import draw_blocks


def setting(**changes: object) -> Setting:
    values = {"blocks": 6, "reference": 64, "drop_bound": Fraction(9, 25), "layer_drop": 0.2}
    return Setting(**{**values, **changes})


def draws_of(seed: int):
    return lambda index: np.random.default_rng([seed, index])


def test_lengthdrop_makes_four_passes_of_a_quarter_each():
    passes = make_strategy("lengthdrop", setting()).passes(draws_of(0), 0.5)
    assert [one.weight for one in passes] == [0.25] * 4
    assert [one.loss for one in passes] == ["label", "distill", "distill", "distill"]
    assert passes[0].subnet == Subnet.full(6)


def test_the_full_pass_is_full_by_default_and_layer_dropped_under_parity():
    plain = [make_strategy("lengthdrop", setting()).passes(draws_of(i), 0.5)[0].subnet for i in range(50)]
    assert set(plain) == {Subnet.full(6)}
    strategy = make_strategy("lengthdrop", setting(parity=True))
    depths = [len(strategy.passes(draws_of(i), 0.5)[0].subnet.encoder.blocks) for i in range(400)]
    assert np.mean(depths) == pytest.approx(4.8, abs=0.2)


def test_the_smallest_pass_is_smallest_on_the_blocks_that_run():
    strategy = make_strategy("lengthdrop", setting(layer_drop=0.0))
    smallest = strategy.passes(draws_of(0), 0.5)[1].subnet
    assert smallest == Subnet.of_encoder(range(6), (41, 27, 18, 12, 8, 6), 64)


def test_skipped_blocks_keep_their_length_and_lengths_stay_in_the_bound():
    strategy = make_strategy("lengthdrop", setting(layer_drop=0.5))
    for index in range(300):
        for one in strategy.passes(draws_of(index), 0.5)[1:]:
            stack = one.subnet.encoder
            previous = 64
            for tokens in stack.lengths.tokens if stack.lengths else ():
                assert previous >= tokens >= 0.64 * previous
                previous = tokens


def test_the_plain_share_comes_first():
    strategy = make_strategy("lengthdrop", setting(plain_share=0.4))
    assert len(strategy.passes(draws_of(0), 0.39)) == 1
    assert strategy.passes(draws_of(0), 0.39)[0].weight == 1.0
    assert len(strategy.passes(draws_of(0), 0.4)) == 4


def test_layerdrop_skips_every_block_at_its_rate_independently():
    rng = np.random.default_rng(0)
    runs = np.zeros((10_000, 12), dtype=bool)
    for draw in runs:
        draw[list(draw_blocks(12, 0.2, rng))] = True
    assert runs.sum(axis=1).mean() == pytest.approx(9.6, abs=0.05)
    assert runs.mean(axis=0) == pytest.approx(0.8, abs=0.015)
    correlation = np.corrcoef(runs.T)
    assert np.abs(correlation[~np.eye(12, dtype=bool)]).max() < 0.05


def test_layerdrop_runs_all_at_zero_and_none_at_one():
    rng = np.random.default_rng(0)
    assert draw_blocks(12, 0.0, rng) == tuple(range(12))
    assert draw_blocks(12, 1.0, rng) == ()


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_passes_are_a_function_of_the_draws(name):
    strategy = make_strategy(name, setting())
    assert strategy.passes(draws_of(5), 0.5) == strategy.passes(draws_of(5), 0.5)
    if name != "plain":
        assert len({tuple(strategy.passes(draws_of(i), 0.5)) for i in range(20)}) > 5


def test_senseless_options_are_refused():
    for changes in ({"layer_drop": 1.5}, {"plain_share": 1.0}):
        with pytest.raises(TrainingError):
            setting(**changes)
    with pytest.raises(TrainingError, match="plain, layerdrop, lengthdrop"):
        make_strategy("sandwich", setting())
    for rate in (1.0, -0.1, "much", float("nan")):
        with pytest.raises(SpaceError):
            as_rate(rate)
