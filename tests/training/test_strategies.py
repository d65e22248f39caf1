"""Training strategies: which sub-networks, how often, from which counters."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from ldsearch.errors import SpaceError, TrainingError
from ldsearch.space.lengths import as_rate
from ldsearch.subnet import Subnet
from ldsearch.training.drop_rates import constant
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.training.strategies.lengthdrop import SANDWICHES


def setting(rate: float = 0.2, **changes: object) -> Setting:
    values = {"stacks": {"encoder": StackSetting(6, constant(rate, 6))}, "drop_bound": Fraction(9, 25)}
    return Setting(**{**values, "reference": 64, **changes})


def draws_of(seed: int):
    return lambda index: np.random.default_rng([seed, index])


def test_lengthdrop_makes_four_passes_of_a_quarter_each():
    passes = make_strategy("lengthdrop", setting()).passes(draws_of(0), 0.5)
    assert [one.weight for one in passes] == [0.25] * 4
    assert [one.loss for one in passes] == ["label", "distill", "distill", "distill"]
    assert passes[0].subnet == Subnet.full(6)


def test_by_default_every_pass_sees_all_rows_and_on_request_the_shortened_ones_share_them():
    shares = make_strategy("lengthdrop", setting(sandwich="shares")).passes(draws_of(0), 0.5)
    paper = make_strategy("lengthdrop", setting()).passes(draws_of(0), 0.5)
    assert [one.rows for one in paper] == [(0, 1)] * 4
    assert shares[0].rows == (0, 1)
    # Every row is seen by the full model and by exactly one other.
    for count in (3, 4, 5, 32):
        seen = [row for one in shares[1:] for row in range(*one.rows[:1], count, one.rows[1])]
        assert sorted(seen) == list(range(count))
    # The draws are the same ones.
    assert [one.subnet for one in shares] == [one.subnet for one in paper]
    # With a separate teacher the full model needs to see little.
    taught = make_strategy("lengthdrop", setting(sandwich="taught")).passes(draws_of(0), 0.5)
    assert [one.rows for one in taught] == [(0, 4), (0, 1), (0, 1), (0, 1)]
    assert [one.subnet for one in taught[:3]] == [one.subnet for one in paper[:3]]
    assert set(SANDWICHES) == {"paper", "shares", "taught"}


def test_with_a_separate_teacher_a_pass_draws_lengths_of_every_shape_within_the_bound():
    strategy = make_strategy("lengthdrop", setting(0.0, sandwich="taught"))
    kinds: Counter[str] = Counter()
    for seed in range(400):
        lengths = strategy.passes(draws_of(seed), 0.5)[3].subnet.encoder.lengths
        if lengths is None:
            continue  # so small a rate that nothing is dropped
        tokens = (64, *lengths.tokens)
        assert all(after >= 0.64 * before for before, after in pairwise(tokens))
        if tokens[1] < 64:
            kinds["once" if len({*tokens[1:]}) == 1 else "even or early"] += 1
        elif tokens[2] == 64 > tokens[3]:
            kinds["late"] += 1
    # A quarter each, but for rates so small that nothing is dropped where another shape would.
    assert kinds["once"] == pytest.approx(100, abs=25)
    assert kinds["late"] == pytest.approx(100, abs=25)
    assert kinds["even or early"] == pytest.approx(200, abs=30)


def test_without_distillation_every_pass_learns_from_the_labels():
    passes = make_strategy("lengthdrop", setting(distil=False)).passes(draws_of(0), 0.5)
    assert [one.loss for one in passes] == ["label"] * 4
    assert [one.weight for one in passes] == [0.25] * 4


def test_the_full_pass_is_full_by_default_and_layer_dropped_under_parity():
    plain = [make_strategy("lengthdrop", setting()).passes(draws_of(i), 0.5)[0].subnet for i in range(50)]
    assert set(plain) == {Subnet.full(6)}
    strategy = make_strategy("lengthdrop", setting(teacher_drops=True))
    depths = [len(strategy.passes(draws_of(i), 0.5)[0].subnet.encoder.blocks) for i in range(400)]
    assert np.mean(depths) == pytest.approx(4.8, abs=0.2)


def test_the_smallest_pass_is_smallest_on_the_blocks_that_run():
    strategy = make_strategy("lengthdrop", setting(0.0))
    smallest = strategy.passes(draws_of(0), 0.5)[1].subnet
    assert smallest == Subnet.of_encoder(range(6), (41, 27, 18, 12, 8, 6), 64)


def test_genes_say_what_the_subnetworks_differ_in():
    drawn = {
        genes: [
            one.subnet
            for seed in range(50)
            for one in make_strategy("lengthdrop", setting(genes=genes)).passes(draws_of(seed), 0.5)
        ]
        for genes in ("depth", "lengths", "depth+lengths", "lengths+depth")
    }
    shortened = {genes: [one for one in found if one.encoder.lengths] for genes, found in drawn.items()}
    shallow = {genes: [one for one in found if len(one.encoder.blocks) < 6] for genes, found in drawn.items()}
    assert [len(shortened[genes]) for genes in drawn] == [0, 150, 150, 150]
    assert not shallow["lengths"]
    assert len(shallow["depth"]) > 90  # 1 - 0.8^6 of 150 is 111
    assert drawn["depth+lengths"] == drawn["lengths+depth"]
    # Where every block runs, none is left out of the full pass either.
    parity = make_strategy("lengthdrop", setting(0.9, genes="lengths", teacher_drops=True))
    assert parity.passes(draws_of(0), 0.5)[0].subnet == Subnet.full(6)
    assert parity.space.varies == ("lengths",)
    for genes, varies in (
        ("depth", ("depth",)),
        ("lengths", ("lengths",)),
        ("depth+lengths", ("lengths", "depth")),
    ):
        space = make_strategy("lengthdrop", setting(genes=genes)).space
        assert space.varies == varies
        assert all(space.contains(one) for one in drawn[genes] if one.encoder.blocks)
    # Blocks of a decoder alone are distilled too; lengths it has none.
    decoder = {"decoder": StackSetting(4, constant(0.5, 4))}
    assert (
        len(make_strategy("lengthdrop", setting(stacks=decoder, genes="depth")).passes(draws_of(0), 0)) == 4
    )
    with pytest.raises(TrainingError, match="--genes depth"):
        make_strategy("lengthdrop", setting(stacks=decoder))
    for genes in ("", "heads", "depth+depth", "depth+lengths+ffn"):
        with pytest.raises(TrainingError, match="depth, lengths or depth"):
            make_strategy("lengthdrop", setting(genes=genes))


def test_lengthdrop_draws_its_sub_networks_at_the_rates_of_layerdrop():
    rates, skipped = (0.0, 0.25, 0.5, 1.0), np.zeros((3, 4))
    strategy = make_strategy("lengthdrop", setting(stacks={"encoder": StackSetting(4, rates)}))
    for seed in range(600):
        full, *shortened = strategy.passes(draws_of(seed), 0.5)
        assert full.subnet == Subnet.full(4)
        for count, one in zip(skipped, shortened, strict=True):
            count[list({*range(4)} - {*one.subnet.encoder.blocks})] += 1
    for share in skipped / 600:
        assert share == pytest.approx(rates, abs=0.08)


def test_lengthdrop_keeps_pinned_and_enough_blocks_in_its_teacher_under_parity_too():
    stacks = {"encoder": StackSetting(4, (1.0,) * 4, pinned=(0,), min_layers=2)}
    strategy = make_strategy("lengthdrop", setting(stacks=stacks, teacher_drops=True))
    for seed in range(20):
        for one in strategy.passes(draws_of(seed), 0.5):
            blocks = one.subnet.encoder.blocks
            assert blocks[0] == 0
            assert len(blocks) == 2


def test_the_plain_share_comes_first():
    strategy = make_strategy("lengthdrop", setting(plain_share=0.4))
    assert len(strategy.passes(draws_of(0), 0.39)) == 1
    assert strategy.passes(draws_of(0), 0.39)[0].weight == 1.0
    assert len(strategy.passes(draws_of(0), 0.4)) == 4


def test_senseless_options_are_refused():
    for changes in ({"plain_share": 1.0}, {"plain_share": -0.1}):
        with pytest.raises(TrainingError):
            setting(**changes)
    senseless = [((0.2, 0.2), 0), ((0.2, 0.2, 1.5), 0), ((0.2, 0.2, float("nan")), 0)]
    for rates, least in (*senseless, ((0.2,) * 3, 4), ((0.2,) * 3, -1)):
        with pytest.raises(TrainingError):
            StackSetting(3, rates, min_layers=least)
    with pytest.raises(TrainingError, match=r"unknown sandwich 'club': use paper, shares, taught"):
        make_strategy("lengthdrop", setting(sandwich="club"))
    with pytest.raises(TrainingError, match="plain, layerdrop, lengthdrop"):
        make_strategy("sandwich", setting())
    for rate in (1.0, -0.1, "much", float("nan")):
        with pytest.raises(SpaceError):
            as_rate(rate)
