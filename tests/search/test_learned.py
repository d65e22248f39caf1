"""Learned: the strongest blocks of each depth, against brute force; ties; one proposal."""

from itertools import combinations

import numpy as np
import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.learned import Learned, strongest
from ldsearch.search.loop import search
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial


def space(keep: tuple[int, ...], blocks: int = 6) -> DepthSpace:
    return DepthSpace("depths", "a test", blocks, keep)


def trial(subnet: Subnet) -> Trial:
    blocks = subnet.encoder.blocks
    return Trial(subnet, "accuracy", Score(len(blocks) / 6), {"macs": float(len(blocks))}, 1, "s", 0.0, "f")


@pytest.mark.parametrize("seed", range(10))
def test_no_other_choice_of_as_many_blocks_has_a_stronger_signal(seed):
    # Few distinct values, so that ties are common; of tied choices the earliest blocks come first.
    signal = np.random.default_rng(seed).integers(-2, 3, size=7).astype(float)
    for keep in range(1, 8):
        choices = sorted(combinations(range(7), keep))
        best = max(choices, key=lambda blocks: signal[list(blocks)].sum())
        assert strongest(signal, keep) == best


def test_ties_go_to_the_earlier_block_and_ids_ascend():
    assert strongest(np.zeros(4), 2) == (0, 1)
    assert strongest(np.array([0.0, 1.0, 0.0, 1.0]), 3) == (0, 1, 3)
    assert strongest(np.array([-0.0, 0.0]), 1) == (0,)


def test_it_proposes_the_depths_that_were_asked_and_no_others():
    signal = np.array([0.3, 0.05, 0.2, 0.1, 0.05, 0.3])
    assert Learned(space((3,)), signal).propose(0, ()) == [Subnet.of_encoder((0, 2, 5))]
    every = space(tuple(range(1, 7)))
    found = Learned(every, signal).propose(0, ())
    assert [subnet.encoder.blocks for subnet in found] == [
        (0,),
        (0, 5),
        (0, 2, 5),
        (0, 2, 3, 5),
        (0, 1, 2, 3, 5),
        (0, 1, 2, 3, 4, 5),
    ]
    assert all(every.contains(subnet) for subnet in found)


def test_pinned_blocks_stay_whatever_their_signal():
    pinned = DepthSpace("depths", "a test", 6, (1, 3), pinned=(2,))
    found = Learned(pinned, np.array([5.0, 0.0, -9.0, 4.0, 1.0, 3.0]), "influence")
    assert [subnet.encoder.blocks for subnet in found.propose(0, ())] == [(2,), (0, 2, 3)]
    assert found.name == "influence"


def test_a_search_measures_each_once_and_ends_whatever_was_measured():
    strategy = Learned(space((2, 4)), np.arange(6.0))
    result = search(strategy, lambda subnets, generation: [trial(s) for s in subnets], Subnet.full(6))
    assert [t.subnet.encoder.blocks for t in result.trials] == [tuple(range(6)), (4, 5), (2, 3, 4, 5)]
    assert result.stopped == "exhausted"
    assert strategy.propose(0, tuple(result.trials)) == strategy.propose(0, ())
    assert strategy.propose(1, tuple(result.trials)) == []


def test_bad_signals_and_depths_are_refused_in_one_line():
    for signal in (np.zeros(5), np.zeros((6, 1)), np.array([0, 0, np.nan, 0, 0, 0]), np.full(6, np.inf)):
        with pytest.raises(SpaceError, match="one finite signal"):
            Learned(space((3,)), signal)
    for keep in (0, 7):
        with pytest.raises(SpaceError, match="of 6 blocks"):
            strongest(np.zeros(6), keep)
