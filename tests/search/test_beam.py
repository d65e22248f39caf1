"""Beam: planted scores against brute force, a case that greed loses, pinned blocks, counts, candidates."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.beam import Beam
from ldsearch.search.loop import SearchResult, search
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial

Planted = Callable[[tuple[int, ...]], float]


def space(blocks: int, keep: Sequence[int], pinned: tuple[int, ...] = ()) -> JointSpace:
    depth = DepthSpace("depths", "a test", blocks, tuple(keep), pinned, "decoder")
    return JointSpace("depths", "a test", (depth,))


def trial(subnet: Subnet, value: float, higher: bool = True) -> Trial:
    macs = {"macs": float(len(subnet.decoder.blocks))}
    return Trial(subnet, "planted", Score(value, higher), macs, 1, "s", 0.0, "f")


def run(beam: Beam, planted: Planted, higher: bool = True) -> SearchResult:
    sign = 1 if higher else -1

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        return [trial(s, sign * planted(s.decoder.blocks), higher) for s in subnets]

    return search(beam, evaluate, beam.space.full(), patience=None, wanted=beam.space.contains)


def chosen(result: SearchResult, depth: int) -> tuple[int, ...]:
    level = [t for t in result.candidates if len(t.subnet.decoder.blocks) == depth]
    return min(level, key=lambda t: t.score.loss).subnet.decoder.blocks


def additive(seed: int, blocks: int) -> Planted:
    weights = np.random.default_rng(seed).normal(size=blocks)
    return lambda kept: float(weights[list(kept)].sum())


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("pinned", [(), (0, 4)])
@pytest.mark.parametrize("seed", range(4))
def test_where_blocks_add_up_greed_finds_the_best_of_every_depth(seed, pinned, higher):
    planted, depths = additive(seed, 8), range(max(1, len(pinned)), 9)
    result = run(Beam(space(8, depths, pinned), width=1), planted, higher)
    for depth in depths:
        allowed = [c for c in combinations(range(8), depth) if set(pinned) <= set(c)]
        assert chosen(result, depth) == max(allowed, key=planted)
    assert all(set(pinned) <= set(t.subnet.decoder.blocks) for t in result.trials)
    assert result.stopped == "exhausted"


def neighbours(kept: tuple[int, ...]) -> float:
    """Blocks 0 and 3 are the next to worthless, but not where one follows the other."""
    weights = (2, 3, 3, 2, 9, 9, 9, 9)
    return sum(weights[block] for block in kept) + 9 * ((0, 3) in pairwise(kept))


def test_a_beam_finds_what_greed_cannot_reach():
    best = max(combinations(range(8), 6), key=neighbours)
    assert best == (0, 3, 4, 5, 6, 7)
    greedy, wide = (run(Beam(space(8, (6,)), width), neighbours) for width in (1, 4))
    assert chosen(wide, 6) == best
    assert neighbours(chosen(greedy, 6)) < neighbours(best)
    assert len(wide.trials) < 1 + 8 + math.comb(8, 6)


@pytest.mark.parametrize(
    ("width", "pinned", "least", "count"),
    [
        (1, (), 1, 1 + 7 * 8 // 2 - 1),  # 7 + 6 + ... + 2
        (1, (), 3, 1 + 7 + 6 + 5 + 4),
        (1, (2, 5), 3, 1 + 5 + 4 + 3 + 2),
        (2, (), 1, 7 * 7 - 7 + 1),  # the best two of a depth d share d - 1 blocks, and so one child
        (99, (), 1, 2**7 - 1),
    ],
)
def test_so_many_are_measured(width, pinned, least, count):
    result = run(Beam(space(7, (least,), pinned), width), additive(5, 7))
    assert len(result.trials) == len({t.subnet for t in result.trials}) == count
    assert {len(t.subnet.decoder.blocks) for t in result.trials} == set(range(least, 8))


@pytest.mark.parametrize("keep", [(2,), (2, 4), (6,), tuple(range(1, 7))])
def test_only_wanted_depths_are_candidates(keep):
    result = run(Beam(space(6, keep)), additive(1, 6))
    assert {len(t.subnet.decoder.blocks) for t in result.candidates} == set(keep)
    stones = [t for t in result.trials[1:] if len(t.subnet.decoder.blocks) not in keep]
    assert bool(stones) == (len(keep) < 6 - min(keep))


def test_a_score_that_is_not_a_number_leads_nowhere():
    broken = (1, 2, 3, 4)
    # Block 0 is the least, so that greed would go through ``broken``; block 1 is the next.
    result = run(Beam(space(5, (3,)), width=1), lambda kept: math.nan if kept == broken else float(sum(kept)))
    tried = {t.subnet.decoder.blocks for t in result.candidates}
    assert tried == set(combinations((0, 2, 3, 4), 3))
    nowhere = run(Beam(space(5, (3,))), lambda kept: math.nan if len(kept) == 4 else 1.0)
    assert (len(nowhere.trials), nowhere.candidates) == (1 + 5, [])


def test_the_same_ledger_in_any_order_leads_to_the_same_proposals_ties_to_earlier_blocks():
    beam = Beam(space(6, (2,)), width=2)
    ledger = run(beam, lambda kept: 0.0).trials
    asked = beam.propose(1, ledger)
    parents = ((0, 1, 2, 3, 4), (0, 1, 2, 3, 5))
    children = [Subnet.of_blocks({"decoder": c}) for p in parents for c in combinations(p, 4)]
    assert len(asked) == 9
    assert set(asked) == set(children)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(ledger))
        assert Beam(beam.space, 2).propose(1, [ledger[i] for i in order]) == asked
    assert beam.propose(4, ledger) == []


def test_a_beam_of_nothing_is_refused_in_one_line():
    with pytest.raises(SpaceError, match="at least one sub-network of each depth, not 0"):
        Beam(space(6, (2,)), width=0)
