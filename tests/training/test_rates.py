"""LayerDrop rates: schedules, targets and lists, as exact decimal fractions."""

import re
from fractions import Fraction

import pytest

from ldsearch.errors import TrainingError
from ldsearch.training.drop_rates import constant, layer_rates, linear, mean_rate, parse_rates, target_rate


def test_the_linear_schedule_ends_at_its_highest_rate():
    assert linear(0.8, 4) == (0.2, 0.4, 0.6, 0.8)
    assert linear(0.5, 1) == (0.5,)
    assert linear(0.0, 3) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("highest", "blocks"), [(0.8, 4), (0.3, 16), (0.5, 16), (0.8, 16), (1.0, 7)])
def test_the_mean_of_a_linear_schedule_is_more_than_half_of_its_highest_rate(highest, blocks):
    assert mean_rate(linear(highest, blocks)) == pytest.approx(
        highest * (blocks + 1) / (2 * blocks), abs=1e-15
    )


@pytest.mark.parametrize("blocks", range(1, 49))
def test_the_mean_of_equal_rates_is_that_rate(blocks):
    assert mean_rate(constant(0.2, blocks)) == 0.2  # a sum of floats misses it from 3 blocks on


@pytest.mark.parametrize(
    ("blocks", "keep", "rate"),
    [
        (12, 6, Fraction(1, 2)),
        (16, 8, Fraction(1, 2)),
        (48, 24, Fraction(1, 2)),
        (12, 3, Fraction(3, 4)),
        (12, 8, Fraction(1, 3)),
        (6, 6, Fraction(0)),
    ],
)
def test_a_target_depth_has_the_paper_s_rate(blocks, keep, rate):
    assert target_rate(keep, blocks) == rate
    rates = layer_rates(blocks, None, "constant", keep)
    assert set(rates) == {float(rate)}
    assert sum(1 - p for p in rates) == pytest.approx(keep)


def test_what_is_asked_for_becomes_one_rate_per_block():
    assert layer_rates(3, None, "constant", None) == (0.2, 0.2, 0.2)
    assert layer_rates(3, (0.5,), "constant", None) == (0.5, 0.5, 0.5)
    assert layer_rates(4, (0.8,), "linear", None) == (0.2, 0.4, 0.6, 0.8)
    assert layer_rates(5, None, "linear", None) == (0.04, 0.08, 0.12, 0.16, 0.2)
    assert layer_rates(3, (0.0, 1.0, 0.5), "constant", None) == (0.0, 1.0, 0.5)


def test_rates_are_read_as_they_are_written():
    assert parse_rates("0.2") == (0.2,)
    assert parse_rates("0, 0.1,1") == (0.0, 0.1, 1.0)
    for text in ("", "0.1,", "half", "0.1;0.2"):
        with pytest.raises(TrainingError, match=re.escape(repr(text))):
            parse_rates(text)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((3, (0.1, 0.2), "constant", None), "2 LayerDrop rates for 3 blocks"),
        ((3, (), "constant", None), "0 LayerDrop rates for 3 blocks"),
        ((3, (0.1, 0.2, 0.3), "linear", None), "linear takes one rate"),
        ((3, (0.1,), "rising", None), "use constant or linear"),
        ((3, (0.1,), "constant", 2), "neither --layer-drop"),
        ((3, None, "linear", 2), "nor another --layer-drop-schedule"),
        ((3, None, "constant", 0), r"1\.\.3 for this model, not 0"),
        ((3, None, "constant", 4), r"1\.\.3 for this model, not 4"),
        ((3, (1.1,), "constant", None), r"\[0, 1\], not 1\.1"),
        ((3, (1.1,), "linear", None), r"\[0, 1\], not 1\.1"),
        ((2, (0.5, -0.1), "constant", None), r"\[0, 1\], not -0\.1"),
        ((2, (float("nan"),), "linear", None), "not nan"),
    ],
)
def test_contradictions_are_refused_in_one_line(asked, says):
    with pytest.raises(TrainingError, match=says) as refused:
        layer_rates(*asked)
    assert "\n" not in str(refused.value)
