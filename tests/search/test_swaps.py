"""Swaps: brute force where blocks add up, a pair that single swaps cannot reach, steps by hand, the end."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.loop import SearchResult, search
from ldsearch.search.swaps import Swaps
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial

Planted = Callable[[tuple[int, ...]], float]


def space(blocks: int, keep: Sequence[int], pinned: tuple[int, ...] = ()) -> DepthSpace:
    return DepthSpace("depths", "a test", blocks, tuple(keep), pinned, "decoder")


def run(swaps: Swaps, planted: Planted, higher: bool = True) -> SearchResult:
    sign = 1 if higher else -1

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        return [
            Trial(
                subnet,
                "planted",
                Score(sign * planted(subnet.decoder.blocks), higher),
                {"macs": float(len(subnet.decoder.blocks))},
                *(1, "s", 0.0, "f", generation),
            )
            for subnet in subnets
        ]

    return search(swaps, evaluate, swaps.space.full(), patience=None)


def blocks_of(subnets: Sequence[Subnet]) -> list[tuple[int, ...]]:
    return [subnet.decoder.blocks for subnet in subnets]


def chosen(result: SearchResult, depth: int) -> tuple[int, ...]:
    level = [t for t in result.candidates if len(t.subnet.decoder.blocks) == depth]
    return min(level, key=lambda t: t.score.loss).subnet.decoder.blocks


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("pinned", [(), (0, 4)])
@pytest.mark.parametrize("seed", range(4))
def test_where_blocks_add_up_the_best_of_every_depth_is_found(seed, pinned, higher):
    weights = np.random.default_rng(seed).normal(size=8)
    depths = range(max(1, len(pinned)), 9)

    def planted(kept: tuple[int, ...]) -> float:
        return float(weights[list(kept)].sum())

    result = run(Swaps(space(8, depths, pinned), seed, sampled=1), planted, higher)
    for depth in depths:
        allowed = [c for c in combinations(range(8), depth) if set(pinned) <= set(c)]
        assert chosen(result, depth) == max(allowed, key=planted)
    assert all(set(pinned) <= set(t.subnet.decoder.blocks) for t in result.trials)
    assert len({t.subnet for t in result.trials}) == len(result.trials)
    assert result.stopped == "exhausted"


def pair(kept: tuple[int, ...]) -> float:
    """Blocks 1 and 3 are worth more than all others together, but each of them alone is a burden."""
    weights = (2, -3, 2, -3, 2, 1, 2, 1)
    return sum(weights[block] for block in kept) + 20 * ({1, 3} <= set(kept))


def test_a_pair_that_single_swaps_cannot_reach_is_found_from_a_sample():
    best = max(combinations(range(8), 4), key=pair)
    assert best == (0, 1, 2, 3)
    narrow, wide = (run(Swaps(space(8, (4,)), 0, sampled), pair) for sampled in (0, 16))
    assert chosen(narrow, 4) == (0, 2, 4, 6)
    assert len(narrow.trials) == 1 + 1 + 4 * 4  # the full model, the start, and all of its swaps
    assert chosen(wide, 4) == best
    assert len(wide.trials) < 1 + math.comb(8, 4)


def test_the_first_steps_by_hand():
    swaps = Swaps(space(4, (2,)), sampled=0)
    values = {(0, 2): 1.0, (0, 1): 0.0, (0, 3): 3.0, (1, 2): 2.0, (2, 3): 3.0, (1, 3): 4.0}
    assert blocks_of(swaps.propose(0, ())) == [(0, 2)]
    ledger = run(swaps, lambda kept: values.get(kept, 9.0)).trials
    asked = [[t.subnet for t in ledger if t.generation == g] for g in (0, 1, 2)]
    assert set(blocks_of(asked[1])) == {(0, 1), (0, 3), (1, 2), (2, 3)}
    # Of (0, 3) and (2, 3), which are equal, the one with earlier blocks goes on: only (1, 3) is new.
    assert blocks_of(asked[2]) == [(1, 3)]
    assert len(ledger) == 1 + 6
    shuffled = [ledger[i] for i in np.random.default_rng(0).permutation(len(ledger))]
    assert swaps.propose(3, shuffled) == []


def test_every_sampled_start_is_of_its_depth_and_a_seed_means_the_same_ones():
    wide = space(12, (3, 6), pinned=(1, 4))
    starts = Swaps(wide, 5, 10).propose(0, ())
    assert len(set(starts)) == len(starts) == 10 + 11  # two pinned and each of the others; 11 of 210
    assert all(wide.contains(subnet) for subnet in starts)
    assert [len(blocks) for blocks in blocks_of(starts)] == [3] * 10 + [6] * 11
    assert Swaps(wide, 5, 10).propose(0, ()) == starts
    assert Swaps(wide, 6, 10).propose(0, ()) != starts
    # A depth draws alike whatever other depths are asked for.
    assert Swaps(replace(wide, keep=(6,)), 5, 10).propose(0, ()) == starts[10:]


def test_the_evenly_spaced_choice_is_a_start_and_makes_room_for_pinned_blocks():
    assert blocks_of(Swaps(space(12, (3, 4)), sampled=0).propose(0, ())) == [(0, 4, 8), (0, 3, 6, 9)]
    assert blocks_of(Swaps(space(12, (3,), pinned=(8,)), sampled=0).propose(0, ())) == [(0, 4, 8)]
    assert blocks_of(Swaps(space(12, (3,), pinned=(5,)), sampled=0).propose(0, ())) == [(0, 4, 5)]


@pytest.mark.parametrize(("keep", "count"), [((1,), 1 + 2), ((2,), 1), ((1, 2), 1 + 2)])
def test_on_two_blocks_it_measures_what_there_is_and_ends(keep, count):
    for sampled in (0, 16):
        result = run(Swaps(space(2, keep), sampled=sampled), lambda kept: float(sum(kept)))
        assert (len(result.trials), result.stopped) == (count, "exhausted")
        assert {len(t.subnet.decoder.blocks) for t in result.candidates} == set(keep)


def test_scores_that_are_not_numbers_lead_nowhere_and_it_ends():
    assert len(run(Swaps(space(6, (3,)), sampled=4), lambda kept: math.nan).trials) == 1 + 5

    def planted(kept: tuple[int, ...]) -> float:
        return math.nan if 5 in kept else float(sum(kept))

    assert chosen(run(Swaps(space(6, (2,)), sampled=0), planted), 2) == (3, 4)


def test_a_negative_sample_is_refused_in_one_line():
    with pytest.raises(SpaceError, match="a sample of -1 sub-networks"):
        Swaps(space(6, (2,)), sampled=-1)
