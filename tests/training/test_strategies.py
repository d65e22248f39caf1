"""Training strategies: which sub-networks, how often, from which counters."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from ldsearch.errors import SpaceError, TrainingError
from ldsearch.space.lengths import as_rate
from ldsearch.subnet import Subnet
from ldsearch.training.drop_rates import constant
from ldsearch.training.strategies import Draws, Pass, Setting, StackSetting, make_strategy
from ldsearch.training.strategies.lengthdrop import SANDWICHES


def draws_of(seed: int) -> Draws:
    """The generators of a batch's passes."""
    return lambda index: np.random.default_rng([seed, index])


def passes_of(
    setting: Setting, seed: int = 0, progress: float = 0.5, name: str = "lengthdrop"
) -> Sequence[Pass]:
    return make_strategy(name, setting).passes(draws_of(seed), progress)


def setting(rate: float = 0.2, depths: Mapping[str, int] | None = None, **changes: object) -> Setting:
    """Of an encoder of six blocks, if no other ``depths`` are given; one rate for all blocks."""
    depths = depths or {"encoder": 6}
    stacks = {name: StackSetting(blocks, constant(rate, blocks)) for name, blocks in depths.items()}
    return Setting(**{"stacks": stacks, "drop_bound": Fraction(9, 25), "reference": 64, **changes})


@pytest.mark.parametrize(("distil", "loss"), [(True, "distill"), (False, "label")])
def test_lengthdrop_makes_four_passes_of_a_quarter_each(distil, loss):
    passes = passes_of(setting(distil=distil))
    assert [one.weight for one in passes] == [0.25] * 4
    assert [one.loss for one in passes] == ["label", *[loss] * 3]
    assert passes[0].subnet == Subnet.full(6)


def test_by_default_every_pass_sees_all_rows_and_on_request_the_shortened_ones_share_them():
    paper, shares, taught = (passes_of(setting(sandwich=name)) for name in SANDWICHES)
    assert [one.rows for one in paper] == [(0, 1)] * 4
    assert shares[0].rows == (0, 1)
    # Every row is seen by the full model and by exactly one other.
    for count in (3, 4, 5, 32):
        seen = [row for one in shares[1:] for row in range(*one.rows[:1], count, one.rows[1])]
        assert sorted(seen) == list(range(count))
    # With a separate teacher the full model needs to see little.
    assert [one.rows for one in taught] == [(0, 4), (0, 1), (0, 1), (0, 1)]
    # The draws are the same ones, but for one of the taught.
    assert [one.subnet for one in shares] == [one.subnet for one in paper]
    assert [one.subnet for one in taught[:3]] == [one.subnet for one in paper[:3]]


def test_with_a_separate_teacher_a_pass_draws_lengths_of_every_shape_within_the_bound():
    kinds: Counter[str] = Counter()
    for seed in range(400):
        lengths = passes_of(setting(0.0, sandwich="taught"), seed)[3].subnet.encoder.lengths
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


def test_the_full_pass_is_layer_dropped_under_parity():
    parity = setting(teacher_drops=True)
    depths = [len(passes_of(parity, seed)[0].subnet.encoder.blocks) for seed in range(400)]
    assert np.mean(depths) == pytest.approx(4.8, abs=0.2)
    # Where every block runs, none is left out of the full pass either.
    lengths = setting(0.9, genes="lengths", teacher_drops=True)
    assert passes_of(lengths)[0].subnet == Subnet.full(6)


def test_the_smallest_pass_is_smallest_on_the_blocks_that_run():
    smallest = passes_of(setting(0.0))[1].subnet
    assert smallest == Subnet.of_encoder(range(6), (41, 27, 18, 12, 8, 6), 64)


def test_genes_say_what_the_subnetworks_differ_in():
    drawn = {}
    for genes in ("depth", "lengths", "depth+lengths", "lengths+depth"):
        how = setting(genes=genes)
        found = drawn[genes] = [one.subnet for seed in range(50) for one in passes_of(how, seed)]
        assert len([one for one in found if one.encoder.lengths]) == (150 if "lengths" in genes else 0)
        shallow = len([one for one in found if len(one.encoder.blocks) < 6])
        assert shallow > 90 if "depth" in genes else not shallow  # 1 - 0.8^6 of 150 is 111
        space = make_strategy("lengthdrop", how).space
        assert {*space.varies} == {*genes.split("+")}
        assert all(space.contains(one) for one in found if one.encoder.blocks)
    assert drawn["depth+lengths"] == drawn["lengths+depth"]
    # Blocks of a decoder alone are distilled too; lengths it has none.
    assert len(passes_of(setting(depths={"decoder": 4}, genes="depth"))) == 4


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


def test_the_plain_share_comes_first():
    (alone,) = passes_of(setting(plain_share=0.4), progress=0.39)
    assert alone == Pass(Subnet.full(6), "label", 1.0)
    assert len(passes_of(setting(plain_share=0.4), progress=0.4)) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"plain_share": 1.0}, "plain share"),
        ({"plain_share": -0.1}, "plain share"),
        ({"sandwich": "club"}, "unknown sandwich 'club': use paper, shares, taught"),
        ({"depths": {"decoder": 4}}, "--genes depth"),
        *(({"genes": genes}, "depth, lengths or depth") for genes in ("", "heads", "depth+depth")),
    ],
)
def test_senseless_options_are_refused(changes, says):
    with pytest.raises(TrainingError, match=says):
        passes_of(setting(**changes))


def test_unknown_strategies_and_rates_that_are_none_are_refused():
    with pytest.raises(TrainingError, match="plain, layerdrop, lengthdrop"):
        make_strategy("sandwich", setting())
    senseless = [((0.2, 0.2), 0), ((0.2, 0.2, 1.5), 0), ((0.2, 0.2, float("nan")), 0)]
    for rates, least in (*senseless, ((0.2,) * 3, 4), ((0.2,) * 3, -1)):
        with pytest.raises(TrainingError):
            StackSetting(3, rates, min_layers=least)
    for rate in (1.0, -0.1, "much", float("nan")):
        with pytest.raises(SpaceError):
            as_rate(rate)
