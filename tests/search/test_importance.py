"""Importance: the sub-networks of the protocol, planted contributions exactly, the standard error by hand."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.importance import Ablation, importance


@pytest.mark.parametrize(("blocks", "keep", "pinned"), [(16, 8, ()), (12, 3, (0,)), (10, 6, (2, 5))])
def test_twenty_distinct_sub_networks_of_one_depth_lack_the_block_and_hold_the_pinned_ones(
    blocks, keep, pinned
):
    ablation = Ablation(blocks, keep, pinned=pinned)
    assert ablation.free == tuple(b for b in range(blocks) if b not in pinned)
    choices = [kept for kept in combinations(range(blocks), keep) if {*pinned} <= {*kept}]
    for block in ablation.free:
        found = ablation.lacking(block)
        # The paper's words: eight of sixteen blocks are removed, among them this one.
        assert set(found) < {kept for kept in choices if block not in kept}
        assert len(set(found)) == len(found) == ablation.count == 20


def test_where_there_are_fewer_all_are_taken():
    ablation = Ablation(6, 3, 20)
    assert (ablation.count, ablation.possible) == (10, 10)
    assert set(ablation.lacking(4)) == set(combinations((0, 1, 2, 3, 5), 3))
    assert Ablation(5, 2, pinned=(0, 3)).lacking(4) == [(0, 3)]


def test_draws_are_those_of_the_seed_and_the_block_and_uniform():
    ablation = Ablation(16, 8, seed=3)
    assert ablation.lacking(5) == Ablation(16, 8, seed=3).lacking(5)
    assert ablation.lacking(5)[:10] == Ablation(16, 8, 10, seed=3).lacking(5)
    assert ablation.lacking(5) != Ablation(16, 8, seed=4).lacking(5)
    # Not the same draws with one of the two blocks in the other's place.
    swapped = [tuple(sorted(5 if block == 6 else block for block in kept)) for kept in ablation.lacking(5)]
    assert ablation.lacking(6) != swapped
    drawn = [Ablation(7, 3, 1, seed).lacking(2)[0] for seed in range(4000)]
    counts = Counter(drawn)
    assert len(counts) == 20
    expected = 4000 / 20
    # Chi-square with 19 degrees of freedom: 43.8 is its 0.1% point.
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 43.8


@pytest.mark.parametrize("higher", [True, False])
def test_where_blocks_add_up_the_loss_is_the_contribution_exactly(higher):
    weights = np.array([8, 1, -2, 0.5, 0, 4, 0.25, 16])  # sums of these are exact
    ablation, sign = Ablation(8, 4, 9, seed=1), 1 if higher else -1
    for block in range(8):
        lacking = ablation.lacking(block)
        without = [sign * float(weights[list(kept)].sum()) for kept in lacking]
        restored = [sign * float(weights[[*kept, block]].sum()) for kept in lacking]
        found = importance(block, without, restored, higher_is_better=higher, possible=ablation.possible)
        assert (found.loss, found.standard_error) == (weights[block], 0.0)
        assert (found.subsets, found.possible) == (9, 35)
        assert found.without == np.mean(without)
        assert found.restored == np.mean(restored)


def test_the_standard_error_is_that_of_a_sample_from_a_finite_population():
    """Over every sample of a small population, its mean square is the variance of the sample's mean."""
    losses = [3.0, -1.0, 0.5, 7.0, 2.0, 2.0]
    for count in (2, 3, 5):
        found = [
            importance(0, [0.0] * count, sample, higher_is_better=True, possible=6)
            for sample in combinations(losses, count)
        ]
        assert np.mean([one.standard_error**2 for one in found]) == pytest.approx(
            np.var([one.loss for one in found])
        )
    assert importance(0, [0.0] * 6, losses, higher_is_better=True, possible=6).standard_error == 0.0
    assert math.isnan(importance(0, [0.0], [1.0], higher_is_better=True, possible=6).standard_error)


def test_a_score_that_is_not_a_number_is_not_hidden():
    found = importance(0, [1.0, math.nan], [2.0, 2.0], higher_is_better=True, possible=9)
    assert math.isnan(found.loss)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((6, 6), "possible is 1 to 5"),
        ((6, 0), "cannot keep 0 of 6 blocks"),
        ((6, 1, 20, 0, (0, 3)), "possible is 2 to 5"),
        ((1, 1), "possible is none"),
        ((2, 1, 20, 0, (0, 1)), "all 2 blocks are pinned"),
        ((6, 3, 0), "at least one sub-network for each block, not 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(arguments, words):
    with pytest.raises(SpaceError, match=words):
        Ablation(*arguments)


def test_scores_that_make_no_pairs_are_refused():
    for without, restored in (([], []), ([1.0], [1.0, 2.0]), ([1.0] * 3, [1.0] * 3)):
        with pytest.raises(ValueError, match="possible pairs"):
            importance(0, without, restored, higher_is_better=True, possible=2)
