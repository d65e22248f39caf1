"""Numbers from outside: the papers' printed tables and figures computed from the reference code."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.errors import SpaceError
from ldsearch.search.rules import every_other, every_other_literal
from ldsearch.space import load_space
from ldsearch.space.lengths import constant_ratio_lengths, default_bound, draw_lengths, shrink
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet

D, FF = 768, 3072
SPAN_HEAD = {"head_per_token": 2 * D}


def bert_base(blocks: int = 12, **head: int) -> EncoderShape:
    head = head or {"head_per_example": D * D + 2 * D}
    return EncoderShape(blocks=blocks, hidden=D, feed_forward=FF, heads=12, attention=D, **head)


def parity_macs(shape: EncoderShape, length: int, subnet: Subnet) -> float:
    return float(Macs(shape, Workload.padded(length), torchprofile=True)([subnet])[0])


def test_bert_base_costs_what_torchprofile_counted_for_the_reference_code():
    assert parity_macs(bert_base(**SPAN_HEAD), 384, Subnet.full(12)) == 35_340_779_904
    assert parity_macs(bert_base(), 128, Subnet.full(12)) == 11_176_674_944


def test_a_stock_model_has_those_dimensions():
    with torch.device("meta"):
        classifier = BertForSequenceClassification(BertConfig(num_labels=2))
        answerer = BertForQuestionAnswering(BertConfig())
    assert Supernet(classifier).shape == bert_base()
    assert Supernet(answerer).shape == bert_base(**SPAN_HEAD)


def test_the_smallest_configurations_cost_the_published_ratios():
    for space, head, macs, ratio in (
        ("length-adaptive-12x384", SPAN_HEAD, 11_779_692_672, 0.3333),
        ("length-adaptive-12x128", {}, 3_888_354_176, 0.3479),
        ("length-adaptive-6x128", {}, None, 0.5411),
    ):
        loaded = load_space(space)
        shape = bert_base(loaded.depths[0].blocks, **head)
        smallest = parity_macs(shape, loaded.lengths.reference, loaded.smallest())
        assert macs in (smallest, None)
        full = parity_macs(shape, loaded.lengths.reference, Subnet.full(loaded.depths[0].blocks))
        assert round(smallest / full, 4) == ratio


def test_default_bounds_depend_on_depth_and_lengths_at_a_fifth_are_the_papers():
    assert (default_bound(12), default_bound(6)) == (Fraction(20, 100), Fraction(36, 100))
    from_128 = (103, 83, 67, 54, 44, 36, 29, 24, 20, 16, 13, 11)
    from_384 = (308, 247, 198, 159, 128, 103, 83, 67, 54, 44, 36, 29)
    assert constant_ratio_lengths(128, 12, Fraction(1, 5)) == from_128
    assert constant_ratio_lengths(384, 12, Fraction(1, 5)) == from_384
    assert constant_ratio_lengths(128, 6, Fraction(1, 5)) == from_128[:6]


def test_the_first_lengthdrop_draw_from_128_is_uniform_on_103_to_128():
    draws = [draw_lengths(128, 1, Fraction(1, 5), np.random.default_rng([7, i]))[0] for i in range(13_000)]
    values, counts = np.unique(draws, return_counts=True)
    assert values.tolist() == list(range(103, 129))
    assert chisquare(counts).pvalue > 0.001


def test_the_mean_lengthdrop_lengths_are_those_of_the_sequential_uniform_draw():
    rng = np.random.default_rng(0)
    mean = np.mean([draw_lengths(128, 12, Fraction(1, 5), rng) for _ in range(12_000)], axis=0)
    published = [115.5, 104.2, 93.9, 84.8, 76.5, 69.1, 62.4, 56.4, 50.9, 46.0, 41.6, 37.7]
    np.testing.assert_allclose(mean, published, atol=0.25)


def test_integer_ceilings_are_exact_where_floats_are_not():
    assert shrink(150, Fraction(18, 100)) == 123  # 0.82 * 150 is exactly 123; the float product rounds up
    assert np.ceil(150 * (1 - 0.18)) == 124
    for percent in range(1, 100):
        for tokens in range(1, 513):
            quotient, remainder = divmod((100 - percent) * tokens, 100)
            assert shrink(tokens, Fraction(percent, 100)) == quotient + (remainder > 0)


def test_the_literal_every_other_rule_drops_what_the_paper_prints_and_refuses_what_it_cannot_say():
    # Rate, and which of 12 blocks (1-based) the printed formula drops.
    for rate, dropped in {
        Fraction(1, 10): {10},
        Fraction(1, 5): {5, 10},
        Fraction(1, 4): {4, 8, 12},
        Fraction(3, 10): {3, 6, 9, 12},
        Fraction(1, 3): {3, 6, 9, 12},
        Fraction(2, 5): {2, 4, 6, 8, 10, 12},  # 50%, not 40%
        Fraction(1, 2): {2, 4, 6, 8, 10, 12},
    }.items():
        assert {*every_other_literal(12, rate)} == {d - 1 for d in range(1, 13)} - {d - 1 for d in dropped}
    for rate in (Fraction(3, 5), Fraction(3, 4), Fraction(0)):  # everything, or nothing
        with pytest.raises(SpaceError, match=r"0\.5"):
            every_other_literal(12, rate)
    assert int(1 / (1 - 8 / 12)) == 2  # what floats make of floor(1 / p)
    assert len(every_other_literal(12, 1 - Fraction(8, 12))) == 8


def test_every_other_keeps_evenly_spaced_blocks_as_the_literal_rule_does_where_that_one_is_exact():
    for blocks, keep, expected in (
        (16, 8, (0, 2, 4, 6, 8, 10, 12, 14)),
        (12, 6, (0, 2, 4, 6, 8, 10)),
        (12, 3, (0, 4, 8)),
        (12, 8, (0, 1, 3, 4, 6, 7, 9, 10)),
        (12, 12, tuple(range(12))),
        (6, 1, (0,)),
    ):
        assert every_other(blocks, keep) == expected
    for share in (2, 3, 4):
        for blocks in range(share, 97, share):
            keep = blocks - blocks // share
            assert every_other(blocks, keep) == every_other_literal(blocks, Fraction(1, share))
    for keep in (0, 13, -1):
        with pytest.raises(SpaceError):
            every_other(12, keep)
