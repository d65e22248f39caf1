"""Assignments of blocks to depths, against the flexible-depth paper's Table 3 and their definitions."""

import itertools
import statistics
from collections import Counter

import pytest

from ldsearch.errors import SpaceError
from ldsearch.space.assignments import ASSIGNMENTS, assignment_named, configurations, divisors, warn_if_prime
from ldsearch.subnet import Stack, Subnet

DEPTHS = range(4, 49)
# (TB, ALD) for 6, 12 and 24 blocks; those for 12 round to the paper's Table 3, (1.78, 1.0), (0.49, 1.0),
# (1.5, 2.0), (0.78, 2.0), (0.49, 2.05).
REFERENCE = {
    "head": [(1.2649, 1.0), (1.7753, 1.0), (2.1059, 1.0)],
    "seq": [(0.0, 1.0), (0.4924, 1.0), (0.5108, 1.0)],
    "left": [(1.0954, 1.5), (1.4975, 2.0), (1.7693, 2.5385)],
    "middle-left": [(0.8944, 1.5), (0.7785, 2.0), (0.6594, 2.5385)],
    "optimal": [(0.0, 1.625), (0.4924, 2.0455), (0.5108, 2.5577)],
}


def task_balance(walks) -> float:
    """TB: standard deviation of the blocks' uses; Eq. 5 divides by D, the published numbers by D - 1."""
    uses = Counter(block for walk in walks.values() for block in walk)
    return statistics.stdev(uses[block] for block in range(max(walks)))


def average_layer_distance(walks) -> float:
    """ALD (Eq. 6): mean distance of neighbours; from the last block to the first is one step (Seq)."""
    return statistics.mean(
        (b - a) % max(walks) for walk in walks.values() for a, b in itertools.pairwise(walk)
    )


def one_based(name: str, depth: int) -> dict[int, set[int]]:
    return {count: {block + 1 for block in blocks} for count, blocks in assignment_named(name, depth).items()}


@pytest.mark.parametrize("name", REFERENCE)
def test_balance_and_distance_are_the_papers(name):
    for depth, (balance, distance) in zip((6, 12, 24), REFERENCE[name], strict=True):
        walks = ASSIGNMENTS[name](depth)
        assert task_balance(walks) == pytest.approx(balance, abs=5e-5)
        assert task_balance(assignment_named(name, depth)) == task_balance(walks)
        assert average_layer_distance(walks) == pytest.approx(distance, abs=5e-5)


def test_the_sets_are_those_of_the_definitions():
    every = set(range(1, 13))
    assert one_based("optimal", 12) == {
        12: every, 6: {1, 3, 5, 7, 9, 11}, 4: {2, 6, 8, 12}, 2: {4, 10}, 3: {2, 6, 10}, 1: {7},
    }  # fmt: skip
    assert one_based("optimal", 6) == {6: set(range(1, 7)), 3: {1, 3, 5}, 2: {2, 6}, 1: {4}}
    assert one_based("seq", 12) == {
        1: {1}, 2: {2, 3}, 3: {4, 5, 6}, 4: {7, 8, 9, 10}, 6: {11, 12, 1, 2, 3, 4}, 12: every,
    }  # fmt: skip
    assert one_based("head", 6) == {1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 6: set(range(1, 7))}
    assert one_based("left", 12)[4] == {1, 4, 7, 10}
    assert one_based("middle-left", 12)[4] == {2, 5, 8, 11}
    assert one_based("middle-left", 12)[3] == {2, 6, 10}
    assert one_based("middle-left", 12)[1] == {6}


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_every_depth_has_blocks_in_order_and_seq_uses_each_about_as_often(name):
    """That there are as many as asked for, ``assignment_named`` makes sure of."""
    for depth in DEPTHS:
        sets = assignment_named(name, depth)
        assert [*sets] == [count for count in range(1, depth + 1) if depth % count == 0]
        assert all(list(blocks) == sorted(blocks) for blocks in sets.values())
        uses = Counter(block for blocks in sets.values() for block in blocks)
        assert name != "seq" or max(uses.values()) - min(uses.values()) <= 1


# In stacks of 180, 308, 350 and 360 blocks Optimal meets chunks of which every block is used.
def test_three_assignments_take_one_block_of_each_chunk():
    names = ("left", "middle-left", "optimal")
    for name, depth in itertools.product(names, [*DEPTHS, 180, 308, 350, 360]):
        for count, blocks in assignment_named(name, depth).items():
            assert [block * count // depth for block in blocks] == list(range(count))
            if name == "left":
                assert list(blocks) == [index * depth // count for index in range(count)]


def test_optimal_is_at_least_as_balanced_as_middle_left_and_that_as_left():
    for depth in DEPTHS:
        best, middle = ASSIGNMENTS["optimal"](depth), ASSIGNMENTS["middle-left"](depth)
        assert task_balance(best) <= task_balance(middle) + 1e-12
        assert task_balance(middle) <= task_balance(ASSIGNMENTS["left"](depth)) + 1e-12


def test_only_a_prime_depth_is_warned_about():
    warned = [depth for depth in range(1, 30) if warn_if_prime(depth)]
    assert warned == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    assert warn_if_prime(7) == "7 blocks is a prime depth: it has only 1 and 7 as depth tasks"


def test_configurations_pair_the_depths_encoder_first_and_one_stack_has_keys_of_one_depth():
    grid = configurations({"decoder": 6, "encoder": 12}, "optimal")
    assert len(grid) == 24
    assert [*grid][:5] == [(1, 1), (1, 2), (1, 3), (1, 6), (2, 1)]
    assert grid[4, 2] == Subnet(encoder=Stack((1, 5, 7, 11)), decoder=Stack((1, 5)))
    assert len({*grid.values()}) == 24
    stacks = {(depth,): Subnet(decoder=Stack(tuple(range(depth)))) for depth in (1, 2, 4)}
    assert configurations({"decoder": 4}, "head") == stacks


def test_nonsense_is_refused_in_one_line():
    for call, words in (
        (lambda: assignment_named("best", 6), "unknown assignment 'best': use one of head, seq"),
        (lambda: divisors(0), "blocks, not 0"),
        (lambda: configurations({}, "optimal"), "an encoder, a decoder or both"),
        (lambda: configurations({"encoder": 4, "middle": 4}, "optimal"), "an encoder, a decoder or both"),
    ):
        with pytest.raises(SpaceError, match=words):
            call()


MISFITS = {
    "a divisor is missing": {1: (0,)},
    "a block twice": {1: (0,), 2: (1, 1)},
    "no such block": {1: (2,), 2: (0, 1)},
    "one block too many": {1: (0,), 2: (0, 1, 1)},
}


@pytest.mark.parametrize("walks", MISFITS.values(), ids=MISFITS)
def test_an_assignment_from_outside_is_checked(walks):
    ASSIGNMENTS.register("outside", lambda depth: walks)
    try:
        with pytest.raises(SpaceError, match="'outside' must give each divisor of 2 so many of its blocks"):
            assignment_named("outside", 2)
    finally:
        ASSIGNMENTS.remove("outside")
