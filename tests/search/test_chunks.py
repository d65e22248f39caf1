"""Chunks and the literal Every Other: hand-written tables, pinned blocks, two blocks, what is refused."""

import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.chunks import Chunks
from ldsearch.search.every_other import EveryOtherLiteral, literal_depths
from ldsearch.space.blocks import DepthSpace


def space(blocks: int, keep: tuple[int, ...], pinned: tuple[int, ...] = ()) -> DepthSpace:
    return DepthSpace("depths", "a test", blocks, keep, pinned, "decoder")


def kept(strategy: Chunks | EveryOtherLiteral) -> list[tuple[int, ...]]:
    return [subnet.decoder.blocks for subnet in strategy.propose(0, ())]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("first", [(5,), (4, 5), (3, 4, 5), (1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5)]),
        ("middle", [(5,), (0, 5), (0, 4, 5), (0, 1, 3, 4, 5), (0, 1, 2, 3, 4, 5)]),
        ("last", [(0,), (0, 1), (0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)]),
    ],
)
def test_six_blocks_without_a_chunk(place, expected):
    strategy = Chunks(space(6, (1, 2, 3, 5, 6)), place)
    assert strategy.name == f"chunk-{place}"
    assert kept(strategy) == expected
    assert strategy.propose(1, ()) == []


@pytest.mark.parametrize(
    ("place", "expected"),
    [("first", (0, 3, 5, 6)), ("middle", (0, 1, 3, 6)), ("last", (0, 1, 2, 3))],
)
def test_pinned_blocks_stay_and_the_chunk_is_one_of_the_others(place, expected):
    assert kept(Chunks(space(7, (4,), pinned=(0, 3)), place)) == [expected]


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_all_free_blocks_may_go_and_two_blocks_are_enough(place):
    assert kept(Chunks(space(5, (2,), pinned=(1, 3)), place)) == [(1, 3)]
    assert kept(Chunks(space(2, (1, 2)), place)) == [(0,) if place == "last" else (1,), (0, 1)]


def test_proposals_are_of_the_space_and_differ():
    depths = space(9, tuple(range(1, 10)))
    for place in ("first", "middle", "last"):
        asked = Chunks(depths, place).propose(0, ())
        assert len(set(asked)) == 9
        assert all(depths.contains(subnet) for subnet in asked)


def test_an_unknown_place_is_one_line():
    with pytest.raises(SpaceError, match=r"no place 'end' .* use one of first, middle, last"):
        Chunks(space(6, (2,)), "end")


def test_the_literal_rule_keeps_what_the_paper_prints():
    # 1-based in the paper: all but 10; all but 5, 10; all but 4, 8, 12; without every third; the odd ones.
    table = {
        11: set(range(12)) - {11},
        10: set(range(12)) - {5, 11},
        9: set(range(12)) - {3, 7, 11},
        8: {0, 1, 3, 4, 6, 7, 9, 10},
        6: {0, 2, 4, 6, 8, 10},
    }
    assert literal_depths(12) == (6, 8, 9, 10, 11)
    strategy = EveryOtherLiteral(space(12, literal_depths(12)))
    assert [set(blocks) for blocks in kept(strategy)] == [table[depth] for depth in literal_depths(12)]
    assert strategy.name == "every-other-literal"
    assert strategy.propose(1, ()) == []
    assert kept(EveryOtherLiteral(space(2, (1,)))) == [(0,)]


@pytest.mark.parametrize("blocks", [2, 6, 16, 24, 40])
def test_literal_depths_are_those_that_are_not_refused(blocks):
    accepted = []
    for depth in range(1, blocks + 1):
        try:
            ((found),) = kept(EveryOtherLiteral(space(blocks, (depth,))))
        except SpaceError:
            continue
        assert len(found) == depth
        accepted.append(depth)
    assert tuple(accepted) == literal_depths(blocks)


@pytest.mark.parametrize(
    ("depths", "words"),
    [
        (space(12, (6, 5)), r"needs a rate in \(0, 0.5\], not 7/12"),
        (space(12, (12,)), r"needs a rate in \(0, 0.5\], not 0"),
        (space(12, (7,)), r"keeps 6 blocks instead of 7 of 12: .* keep one of \[6, 8, 9, 10, 11\]"),
        (space(12, (6,), pinned=(0, 3)), r"but \[3\] must stay"),
    ],
)
def test_depths_that_the_literal_rule_cannot_give_are_refused_in_one_line(depths, words):
    with pytest.raises(SpaceError, match=words) as refusal:
        EveryOtherLiteral(depths)
    assert "\n" not in str(refusal.value)
