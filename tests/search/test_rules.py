"""Rules: every other, chunks, learned, all choices: tables by hand, brute force, pinned blocks, refusals."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.loop import SearchStrategy
from ldsearch.search.rules import every_other, every_other_literal, literal_depths, strongest
from ldsearch.search.strategies import RULES
from ldsearch.space import DepthGenes
from ldsearch.subnet import Subnet
from tests.search.scoring import among, blocks_of, depths


def rule(name: str, genes: DepthGenes, signal: Sequence[float] = ()) -> SearchStrategy:
    return RULES[name].build(among(genes, signal=lambda _: np.array(signal)))


def kept(name: str, genes: DepthGenes, signal: Sequence[float] = ()) -> list[tuple[int, ...]]:
    return [blocks_of(subnet) for subnet in rule(name, genes, signal).propose(0, ())]


LISTED = sorted({*RULES} - {"beam", "swaps", "constant-ratio"})


@pytest.mark.parametrize("name", LISTED)
def test_a_rule_proposes_distinct_sub_networks_of_its_depths_once(name: str):
    genes = depths(9, *range(1, 10))
    strategy, space = rule(name, genes, range(9)), among(genes).space
    assert strategy.name == name
    proposed = strategy.propose(0, ())
    assert len(set(proposed)) == len(proposed) >= len(literal_depths(9))
    assert all(space.contains(subnet) for subnet in proposed)
    assert strategy.propose(1, ()) == []


def test_of_two_stacks_a_rule_takes_every_pair_or_refuses():
    stacks = (DepthGenes("encoder", 4, (2, 4)), DepthGenes("decoder", 6, (3,)))
    context = among(*stacks)
    found = [subnet.describe() for subnet in RULES["every-other"].build(context).propose(0, ())]
    expected = [{"encoder": encoder, "decoder": (0, 2, 4)} for encoder in ((0, 2), range(4))]
    assert found == [Subnet.of_blocks(blocks).describe() for blocks in expected]
    for name in ("swaps", "learned"):
        with pytest.raises(SpaceError, match=f"{name} chooses blocks of one stack"):
            RULES[name].build(context)


def test_every_other_always_keeps_block_0_and_refuses_to_drop_a_pinned_one():
    for blocks in range(1, 25):
        for keep in range(1, blocks + 1):
            assert every_other(blocks, keep, pinned=(0,)) == every_other(blocks, keep)
    assert every_other(6, 3, pinned=(2, 4)) == (0, 2, 4)
    assert kept("every-other", depths(6, 6, pinned=(1,))) == [(0, 1, 2, 3, 4, 5)]
    for refused in (every_other, lambda *depth: rule("every-other", depths(*depth[:2], pinned=depth[2]))):
        with pytest.raises(SpaceError, match="must stay"):
            refused(6, 3, (1,))


@pytest.mark.parametrize(
    ("place", "expected", "beside_pinned"),
    [
        ("first", [(5,), (4, 5), (3, 4, 5), (1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5)], (0, 3, 5, 6)),
        ("middle", [(5,), (0, 5), (0, 4, 5), (0, 1, 3, 4, 5), (0, 1, 2, 3, 4, 5)], (0, 1, 3, 6)),
        ("last", [(0,), (0, 1), (0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)], (0, 1, 2, 3)),
    ],
)
def test_a_chunk_is_left_out_of_the_blocks_that_are_not_pinned(place, expected, beside_pinned):
    assert kept(f"chunk-{place}", depths(6, 1, 2, 3, 5, 6)) == expected
    assert kept(f"chunk-{place}", depths(7, 4, pinned=(0, 3))) == [beside_pinned]
    assert kept(f"chunk-{place}", depths(5, 2, pinned=(1, 3))) == [(1, 3)]


def test_literal_depths_are_those_that_are_not_refused():
    for blocks in (2, 6, 16, 24, 40):
        accepted = []
        for depth in range(1, blocks + 1):
            try:
                (found,) = kept("every-other-literal", depths(blocks, depth))
            except SpaceError:
                continue
            assert len(found) == depth
            assert found == every_other_literal(blocks, 1 - Fraction(depth, blocks))
            accepted.append(depth)
        assert tuple(accepted) == literal_depths(blocks)
    with pytest.raises(SpaceError, match=r"\[3\] must stay"):
        rule("every-other-literal", depths(12, 6, pinned=(0, 3)))


def test_no_other_choice_of_as_many_blocks_has_a_stronger_signal():
    for seed in range(10):
        # Few distinct values, so that ties are common; of tied choices the earliest blocks come first.
        signal = np.random.default_rng(seed).integers(-2, 3, size=7).astype(float)
        for keep in range(1, 8):
            choices = sorted(combinations(range(7), keep))
            best = max(choices, key=lambda blocks: signal[list(blocks)].sum())
            assert strongest(signal, keep) == best
    assert strongest(np.array([-0.0, 0.0]), 1) == (0,)


def test_learned_keeps_the_strongest_of_each_depth_and_pinned_ones_whatever_their_signal():
    signal = [0.3, 0.05, 0.2, 0.1, 0.05, 0.3]
    expected = [(0,), (0, 5), (0, 2, 5), (0, 2, 3, 5), (0, 1, 2, 3, 5), (0, 1, 2, 3, 4, 5)]
    assert kept("learned", depths(6, *range(1, 7)), signal) == expected
    found = kept("influence", depths(6, 1, 3, pinned=(2,)), [5.0, 0.0, -9.0, 4.0, 1.0, 3.0])
    assert found == [(2,), (0, 2, 3)]


def test_bad_signals_and_depths_are_refused():
    for signal in (np.zeros(5), np.zeros((6, 1)), np.array([0, 0, np.nan, 0, 0, 0]), np.full(6, np.inf)):
        with pytest.raises(SpaceError):
            rule("learned", depths(6, 3), signal)
    for keep in (0, 7):
        with pytest.raises(SpaceError):
            strongest(np.zeros(6), keep)


def test_validation_proposes_every_choice_once():
    for pinned in ((), (0, 2)):
        proposed = kept("validation", depths(8, 2, 4, pinned=pinned))
        every = (blocks for keep in (2, 4) for blocks in combinations(range(8), keep))
        brute = [blocks for blocks in every if {*pinned} <= {*blocks}]
        assert sorted(proposed) == sorted(brute)
    with pytest.raises(SpaceError, match="24,310"):
        rule("validation", depths(17, 8))
