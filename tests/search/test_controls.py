"""Controls: random proposals spread over the costs, and regular configurations of every shape."""

from itertools import pairwise

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.search.climbing import Descent
from ldsearch.search.controls import (
    constant_ratio,
    constant_ratio_line,
    dearest,
    random_search,
    regular_line,
    start_line,
)
from ldsearch.search.evolve import Evolve
from ldsearch.search.loop import CostFunction, StrategyContext
from ldsearch.space import DepthGenes, LengthGenes, Space, load_space
from ldsearch.space.lengths import Shape
from ldsearch.subnet import Subnet
from tests.search.scoring import tokens_of

DEMO = load_space("demo")
COST = Macs(EncoderShape(6, 128, 512), Workload.from_lengths([64, 40, 13], 64))


def proposals(count: int = 60, seed: int = 0, space: Space = DEMO, cost: CostFunction = COST) -> list[Subnet]:
    return random_search(StrategyContext(space, cost, seed, 1 + count)).subnets


def positions(subnets: list[Subnet]) -> np.ndarray:
    """Costs between the space's two ends, as 0..1, ascending."""
    low, high = COST([DEMO.smallest(), DEMO.largest()])
    return np.sort((COST(subnets) - low) / (high - low))


def test_a_widened_space_has_the_same_line_and_more_to_draw():
    wide = StrategyContext(DEMO.widened(), COST)
    assert constant_ratio_line(wide, 30) == constant_ratio_line(StrategyContext(DEMO, COST), 30)
    found = proposals(60, space=wide.space)
    assert not all(DEMO.contains(subnet) for subnet in found)
    assert COST(found).min() == COST([DEMO.smallest()])[0]


def test_the_floor_is_in_macs_whatever_is_minimised():
    wide = Space.of_lengths(LengthGenes.build(2, 8, 0.5, levels=8, pin_last=False)).widened()
    macs = Macs(EncoderShape(2, 16, 32), Workload.padded(8))
    least = macs([wide.smallest()])[0]

    def parameters(subnets):
        """A cost that lengths do not change."""
        return np.ones(len(subnets))

    floored = StrategyContext(wide, parameters, 0, 200, floor=macs)
    dear_enough = {subnet for subnet in wide.enumerate() if macs([subnet])[0] >= least}
    assert set(random_search(floored).subnets) == dear_enough < {*wide.enumerate()}
    for built in (constant_ratio, Evolve, Descent):
        assert set(built(floored).propose(0, ())) <= dear_enough


def test_the_line_is_named_by_what_the_space_chooses():
    depth = DepthGenes("encoder", 6, (3, 4, 5, 6))
    joint = Space("joint", "a test", (depth,), DEMO.lengths)
    names = [constant_ratio(StrategyContext(own, COST)).name for own in (DEMO, joint)]
    assert names == ["constant-ratio", "regular"]


def test_costs_are_spread_over_the_whole_range_where_uniform_draws_crowd_in_a_part_of_it():
    count = 60
    for seed in range(2):
        ours = positions(proposals(count, seed))
        rng = np.random.default_rng(seed)
        uniform = positions([DEMO.smallest(), DEMO.largest(), *(DEMO.sample(rng) for _ in range(count - 2))])
        crowded, by_chance = (np.histogram(found, count, (0, 1))[0].max() for found in (ours, uniform))
        assert crowded <= min(4, by_chance - 1)
        assert np.diff(ours).max() < min(0.1, 0.6 * np.diff(uniform).max())
        # A tenth of the proposals for each tenth of the range, give or take.
        tenths = np.histogram(ours, 10, (0, 1))[0]
        assert tenths.min() >= 3
        assert tenths.max() <= 9


@pytest.mark.parametrize(("blocks", "reference", "levels"), [(1, 2, 2), (2, 8, 4), (3, 6, 3)])
@pytest.mark.parametrize("pin", [True, False])
def test_a_small_space_gives_what_it_has_each_once_and_first_its_ends(blocks, reference, levels, pin):
    space = Space.of_lengths(LengthGenes.build(blocks, reference, 0.5, levels=levels, pin_last=pin))
    everything = set(space.enumerate())
    cost = Macs(EncoderShape(blocks, 16, 32), Workload.padded(reference))
    ends = list(dict.fromkeys([space.smallest(), space.largest()]))
    for count in (0, 1, 2, 3, len(everything), len(everything) + 1, 200):
        found = proposals(count, space=space, cost=cost)
        assert len(found) == len(set(found)) == min(count, len(everything))
        assert set(found) <= everything
        assert found[:2] == ends[:count]


def test_a_head_that_reads_every_token_starts_from_late_drops_too_and_one_that_reads_the_first_does_not():
    for shape in (Shape.EVEN, Shape.LATE):
        even = shape is Shape.EVEN
        space = Space.of_lengths(LengthGenes.build(6, 192, 0.36, levels=None, pin_last=even)).widened()
        macs = Macs(EncoderShape(6, 128, 512), Workload.padded(192))
        context = StrategyContext(space, macs, shape=shape)
        line, start = constant_ratio_line(context, 22), start_line(context, 22)
        assert space.smallest() in start
        assert (start == line) == even
        assert (regular_line(context, 22) == line) == even
    # Between the ends every shape is there, over a range of costs, and drops alike behind its whole blocks.
    for whole in (0, 2):
        shares = []
        for subnet in start:
            tokens = tokens_of(subnet, 192)
            if tokens[-1] < 192 and tokens.count(192) == whole:
                dropping = (192, *tokens[whole:])
                kept = tokens[whole] / 192
                assert all(abs(after - max(2, kept * before)) <= 1 for before, after in pairwise(dropping))
                shares.append(float(context.cost([subnet])[0] / context.cost([space.full()])[0]))
        assert len(shares) >= 3
        assert max(shares) - min(shares) > 0.25


LONG = Space.of_lengths(LengthGenes.build(5, 1_000, 0.5, levels=None, pin_last=False)).widened()


def test_where_the_mean_of_what_is_left_answers_drops_grow_smaller_from_block_to_block():
    cost = Macs(EncoderShape(5, 128, 512), Workload.padded(1_000))
    for subnet in regular_line(StrategyContext(LONG, cost, shape=Shape.EARLY), 9)[1:-1]:
        tokens = (1_000, *tokens_of(subnet, 1_000))
        rates = [1 - after / before for before, after in pairwise(tokens)]
        # Of the first rate four fifths, three fifths and so on: a token is rounded up in each block.
        for block, rate in enumerate(rates):
            assert rate == pytest.approx(rates[0] * (5 - block) / 5, abs=1.5 / tokens[block])


def test_dropped_once_the_first_block_drops_and_no_other():
    kept = [tokens_of(subnet, 1_000) for subnet in LONG.regular(Shape.ONCE)]
    assert len(kept) > 20
    assert all({*tokens} == {tokens[0]} for tokens in kept)
    assert [tokens[0] for tokens in kept] == sorted({tokens[0] for tokens in kept})
    assert kept[-1][0] == 1_000


@pytest.mark.parametrize(("pin", "whole"), [(True, 0), (False, 2)])
def test_the_dearest_regular_configuration_within_a_limit(pin: bool, whole: int):
    space = Space.of_lengths(LengthGenes.build(6, 64, 0.36, levels=None, pin_last=pin)).widened()
    context = StrategyContext(space, COST, shape=Shape.LATE if whole else Shape.EVEN)
    full = COST([space.full()])[0]
    for share in (0.5, 0.62, 0.8):
        (found,) = dearest(context, share * full)
        tokens = tokens_of(found, 64)
        assert tokens[:whole] == (64,) * whole
        assert COST([found])[0] <= share * full
        # Two tokens more in each block that drops would cost too much.
        more = [min(64, length + 2) for length in tokens[:-1]] + [tokens[-1] + 2 * (not pin)]
        assert COST([Subnet.of_encoder(range(6), more, 64)])[0] > share * full
    assert dearest(context, 0.99 * COST([space.smallest()])[0]) == []
