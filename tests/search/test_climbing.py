"""Beam, swaps and greedy descent: planted scores against brute force, counts, ties, ends."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.errors import SpaceError
from ldsearch.search.climbing import Beam, Descent, Swaps
from ldsearch.search.loop import SearchResult, StrategyContext, search
from ldsearch.search.strategies import RULES
from ldsearch.space import DepthGenes, LengthGenes, Space
from ldsearch.subnet import Subnet
from tests.search.scoring import among, blocks_of, depths, measure, number_of_blocks, tokens_of

Planted = Callable[[tuple[int, ...]], float]


def beam(genes: DepthGenes, width: int = 4) -> Beam:
    return Beam(among(genes), width)


def swaps(genes: DepthGenes, seed: int = 0, sampled: int = 16) -> Swaps:
    return Swaps(among(genes, seed=seed), sampled)


def run(strategy: Beam | Swaps, planted: Planted, higher: bool = True) -> SearchResult:
    sign = 1 if higher else -1
    evaluate = measure(lambda subnet: sign * planted(blocks_of(subnet)), number_of_blocks, higher)
    space = strategy.space if isinstance(strategy, Beam) else Space("s", "a test", (strategy.depth,))
    patience = RULES[strategy.name].patience
    return search(strategy, evaluate, space.full(), patience=patience, selectable=space.contains)


def chosen(result: SearchResult, depth: int) -> tuple[int, ...]:
    level = [trial for trial in result.candidates if len(blocks_of(trial.subnet)) == depth]
    return blocks_of(min(level, key=lambda trial: trial.score.loss).subnet)


@pytest.mark.parametrize("make", [lambda genes: beam(genes, width=1), lambda genes: swaps(genes, 1, 1)])
@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("pinned", [(), (0, 4)])
def test_where_blocks_add_up_the_best_of_every_depth_is_found(make, pinned, higher):
    for seed in range(4):
        weights = np.random.default_rng(seed).normal(size=8)

        def planted(kept: tuple[int, ...], weights: np.ndarray = weights) -> float:
            return float(weights[list(kept)].sum())

        keep = range(max(1, len(pinned)), 9)
        result = run(make(depths(8, *keep, pinned=pinned)), planted, higher)
        for depth in keep:
            allowed = [c for c in combinations(range(8), depth) if set(pinned) <= set(c)]
            assert chosen(result, depth) == max(allowed, key=planted)
        assert all(set(pinned) <= set(blocks_of(trial.subnet)) for trial in result.trials)
        assert len({trial.subnet for trial in result.trials}) == len(result.trials)
        assert result.stopped == "exhausted"


def neighbours(kept: tuple[int, ...]) -> float:
    """Blocks 0 and 3 are the next to worthless, but not where one follows the other."""
    weights = (2, 3, 3, 2, 9, 9, 9, 9)
    return sum(weights[block] for block in kept) + 9 * ((0, 3) in pairwise(kept))


def test_a_beam_finds_what_greed_cannot_reach():
    best = max(combinations(range(8), 6), key=neighbours)
    assert best == (0, 3, 4, 5, 6, 7)
    greedy, wide = (run(beam(depths(8, 6), width), neighbours) for width in (1, 4))
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
def test_a_beam_measures_so_many(width, pinned, least, count):
    weights = np.random.default_rng(5).normal(size=7)
    result = run(beam(depths(7, least, pinned=pinned), width), lambda kept: float(weights[list(kept)].sum()))
    assert len(result.trials) == len({trial.subnet for trial in result.trials}) == count
    assert {len(blocks_of(trial.subnet)) for trial in result.trials} == set(range(least, 8))


def test_only_depths_of_the_space_are_candidates_of_a_beam():
    for keep in [(2,), (2, 4), (6,)]:
        result = run(beam(depths(6, *keep)), lambda kept: float(sum(kept)))
        assert {len(blocks_of(trial.subnet)) for trial in result.candidates} == set(keep)


def test_a_beam_that_gains_nothing_goes_on_to_the_least_depth():
    result = run(beam(depths(9, 1)), lambda kept: 1.0)
    assert result.stopped == "exhausted"
    assert (0,) in {blocks_of(trial.subnet) for trial in result.candidates}


def test_a_score_that_is_not_a_number_leads_nowhere():
    broken = (1, 2, 3, 4)
    # Block 0 is the least, so that greed would go through ``broken``; block 1 is the next.
    result = run(beam(depths(5, 3), width=1), lambda kept: math.nan if kept == broken else float(sum(kept)))
    assert {blocks_of(t.subnet) for t in result.candidates} == set(combinations((0, 2, 3, 4), 3))
    nowhere = run(beam(depths(5, 3)), lambda kept: math.nan if len(kept) == 4 else 1.0)
    assert (len(nowhere.trials), nowhere.candidates) == (1 + 5, [])
    assert len(run(swaps(depths(6, 3), sampled=4), lambda kept: math.nan).trials) == 1 + 5
    swapped = run(swaps(depths(6, 2), sampled=0), lambda kept: math.nan if 5 in kept else float(sum(kept)))
    assert chosen(swapped, 2) == (3, 4)


def test_a_ledger_in_any_order_leads_to_the_same_beam_ties_to_earlier_blocks():
    strategy = beam(depths(6, 2), width=2)
    ledger = run(strategy, lambda kept: 0.0).trials
    proposed = strategy.propose(1, ledger)
    parents = ((0, 1, 2, 3, 4), (0, 1, 2, 3, 5))
    assert {blocks_of(subnet) for subnet in proposed} == {c for p in parents for c in combinations(p, 4)}
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(ledger))
        assert beam(depths(6, 2), width=2).propose(1, [ledger[i] for i in order]) == proposed
    assert strategy.propose(4, ledger) == []


def pair(kept: tuple[int, ...]) -> float:
    """Blocks 1 and 3 are worth more than all others together, but each of them alone is a burden."""
    weights = (2, -3, 2, -3, 2, 1, 2, 1)
    return sum(weights[block] for block in kept) + 20 * ({1, 3} <= set(kept))


def test_a_pair_that_single_swaps_cannot_reach_is_found_from_a_sample():
    best = max(combinations(range(8), 4), key=pair)
    assert best == (0, 1, 2, 3)
    narrow, wide = (run(swaps(depths(8, 4), 0, sampled), pair) for sampled in (0, 16))
    assert chosen(narrow, 4) == (0, 2, 4, 6)
    assert len(narrow.trials) == 1 + 1 + 4 * 4  # the full model, the start, and all of its swaps
    assert chosen(wide, 4) == best
    assert len(wide.trials) < 1 + math.comb(8, 4)


def test_the_first_swaps_by_hand():
    strategy = swaps(depths(4, 2), sampled=0)
    values = {(0, 2): 1.0, (0, 1): 0.0, (0, 3): 3.0, (1, 2): 2.0, (2, 3): 3.0, (1, 3): 4.0}
    ledger = run(strategy, lambda kept: values.get(kept, 9.0)).trials
    steps = [{blocks_of(t.subnet) for t in ledger[1:] if t.generation == g} for g in (0, 1, 2)]
    # Of (0, 3) and (2, 3), which are equal, the one with earlier blocks goes on: only (1, 3) is new.
    assert steps == [{(0, 2)}, {(0, 1), (0, 3), (1, 2), (2, 3)}, {(1, 3)}]
    shuffled = [ledger[i] for i in np.random.default_rng(0).permutation(len(ledger))]
    assert strategy.propose(3, shuffled) == []


def test_sampled_starts_are_of_their_depth_beside_the_evenly_spaced_one():
    wide = depths(12, 3, 6, pinned=(1, 4))
    starts = [blocks_of(subnet) for subnet in swaps(wide, 5, 10).propose(0, ())]
    # Two pinned and each of the others; 11 of 210.
    assert [len(blocks) for blocks in starts] == [3] * 10 + [6] * 11
    assert len(set(starts)) == len(starts)
    assert all({1, 4} <= {*blocks} for blocks in starts)
    # A depth draws alike whatever other depths there are; another seed draws others.
    assert [blocks_of(s) for s in swaps(depths(12, 6, pinned=(1, 4)), 5, 10).propose(0, ())] == starts[10:]
    assert [blocks_of(s) for s in swaps(wide, 6, 10).propose(0, ())] != starts
    for pinned, even in (((), (0, 4, 8)), ((8,), (0, 4, 8)), ((5,), (0, 4, 5))):
        (start,) = swaps(depths(12, 3, pinned=pinned), sampled=0).propose(0, ())
        assert blocks_of(start) == even


def test_a_beam_or_a_sample_of_nothing_is_refused():
    with pytest.raises(SpaceError):
        beam(depths(6, 2), width=0)
    with pytest.raises(SpaceError):
        swaps(depths(6, 2), sampled=-1)


SPACE = Space.of_lengths(LengthGenes.build(4, 32, 0.4, levels=8))
COST = Macs(EncoderShape(4, 128, 512), Workload.from_lengths([32, 20, 7], 32))


def tokens_cost(subnets: Sequence[Subnet]) -> np.ndarray:
    return np.array([float(sum(tokens_of(subnet, 32))) for subnet in subnets])


def descend(score, space=SPACE, cost=tokens_cost) -> SearchResult:
    strategy = Descent(StrategyContext(space, cost))
    return search(strategy, measure(score, cost, higher=False), space.full(), patience=None)


def divergence(subnet: Subnet) -> float:
    """Additive and convex: each block loses more with every level, later blocks less."""
    dropped = 1 - np.array(tokens_of(subnet, 32)) / 32
    return float(np.array([9.0, 3.0, 1.0, 0.0]) @ dropped**2)


def test_descent_goes_on_where_no_single_step_saves_anything():
    """Of rows of 4 tokens, neighbouring levels of 32 keep as many: only some pairs of steps are cheaper."""

    def cost(subnets: Sequence[Subnet]) -> np.ndarray:
        return np.array([float(sum(math.ceil(n / 8) for n in tokens_of(subnet, 32))) for subnet in subnets])

    first = SPACE.largest()
    assert all(cost([child]) == cost([first]) for child in SPACE.lowered(first))
    found = descend(divergence, cost=cost)
    assert min(cost([trial.subnet])[0] for trial in found.trials) == cost([SPACE.smallest()])[0]
    assert found.stopped == "exhausted"


@pytest.mark.parametrize("space", [SPACE, SPACE.widened()])
def test_every_configuration_on_the_way_down_is_the_best_of_its_cost(space):
    everything: dict[int, float] = {}
    # Of the full model's last length nothing is read, so the longest of the space is as good and cheaper.
    for subnet in space.enumerate():
        cost = sum(tokens_of(subnet, 32))
        everything[cost] = min(everything.get(cost, math.inf), divergence(subnet))
    front = descend(divergence, space).frontier
    least = sum(tokens_of(space.smallest(), 32))
    assert [sum(tokens_of(t.subnet, 32)) for t in front] == sorted(c for c in everything if c >= least)
    assert all(t.score.value == pytest.approx(everything[sum(tokens_of(t.subnet, 32))]) for t in front)


def test_descent_goes_down_to_the_least_cost_and_never_up():
    joint = Space("joint", "a test", (DepthGenes("encoder", 4, (2, 3, 4)),), SPACE.lengths)
    for space in (SPACE.widened(), joint, joint.widened()):
        result = descend(lambda s: -float(COST([s])[0]), space, COST)
        last = min(result.trials, key=lambda trial: trial.costs["macs"])
        least = COST([space.smallest()])[0]
        below = [child for child in space.lowered(last.subnet) if COST([child])[0] < COST([last.subnet])[0]]
        assert all(COST([child])[0] < least for child in below)


def test_descent_does_not_go_on_from_what_has_no_score():
    def score(subnet: Subnet) -> float:
        return math.nan if tokens_of(subnet, 32)[0] < 32 else divergence(subnet)

    assert all(tokens_of(trial.subnet, 32)[0] >= 28 for trial in descend(score).trials)
