"""Depth spaces with pinned blocks, against brute force over all subsets of the blocks."""

from collections import Counter
from itertools import chain, combinations, product

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import SpaceError
from ldsearch.search.every_other import EveryOther, every_other
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Subnet

BLOCKS = 5
PINNED = [(), (0,), (4,), (0, 3), (1, 2, 4), (0, 1, 2, 3, 4)]
KEEP = [(1,), (2, 3), (3, 5), (1, 2, 3, 4, 5), (5,)]
SPACES = [
    DepthSpace("d", "s", BLOCKS, keep, pinned)
    for pinned, keep in product(PINNED, KEEP)
    if keep[0] >= len(pinned)
]


def every_subset() -> list[tuple[int, ...]]:
    ids = range(BLOCKS)
    return list(chain.from_iterable(combinations(ids, count) for count in range(BLOCKS + 1)))


def allowed(space: DepthSpace) -> set[Subnet]:
    return {
        Subnet.of_encoder(blocks)
        for blocks in every_subset()
        if len(blocks) in space.keep and set(space.pinned) <= set(blocks)
    }


@pytest.fixture(params=SPACES, ids=lambda space: f"pinned{space.pinned}-keep{space.keep}")
def space(request: pytest.FixtureRequest) -> DepthSpace:
    return request.param


def test_a_space_holds_exactly_the_subsets_with_the_pinned_blocks(space: DepthSpace) -> None:
    found = list(space.enumerate())
    assert set(found) == allowed(space)
    assert len(found) == space.size() == len(allowed(space))
    depths = [len(subnet.encoder.blocks) for subnet in found]
    assert depths == sorted(depths)
    for blocks in every_subset():
        subnet = Subnet.of_encoder(blocks)
        assert space.contains(subnet) == (subnet in allowed(space))


def test_its_ends_are_the_first_choice_of_the_least_and_of_the_greatest_depth(space: DepthSpace) -> None:
    for end, depth in ((space.smallest(), space.keep[0]), (space.largest(), space.keep[-1])):
        assert end == Subnet.of_encoder(
            min(s.encoder.blocks for s in allowed(space) if len(s.encoder.blocks) == depth)
        )


def test_samples_are_uniform_over_it(space: DepthSpace) -> None:
    rng = np.random.default_rng(0)
    counts = Counter(space.sample(rng) for _ in range(100 * space.size()))
    assert set(counts) == allowed(space)
    if space.size() > 1:
        assert chisquare(list(counts.values())).pvalue > 0.001


def test_repair_goes_to_the_nearest_depth_and_touches_no_more_blocks_than_it_must(space: DepthSpace) -> None:
    for gene in product((0, 1), repeat=BLOCKS):
        repaired = space.repair(gene)
        assert space.decode(repaired) in allowed(space)
        wanted = {block for block, on in enumerate(gene) if on} | set(space.pinned)
        chosen = set(space.decode(repaired).encoder.blocks)
        distance = abs(len(chosen) - len(wanted))
        assert distance == min(abs(depth - len(wanted)) for depth in space.keep)
        assert len(wanted ^ chosen) == distance
        # Later blocks go first, earlier ones come back first.
        assert all(
            went > stayed for went in wanted - chosen for stayed in (chosen & wanted) - {*space.pinned}
        )
        assert all(came < still for came in chosen - wanted for still in {*range(BLOCKS)} - chosen)


def test_genes_decode_to_what_they_encode_and_repair_leaves_them_alone(space: DepthSpace) -> None:
    for subnet in space.enumerate():
        gene = space.encode(subnet)
        assert space.decode(gene) == subnet
        assert space.repair(gene) == gene


def test_a_decoders_space_holds_decoders_only() -> None:
    space = DepthSpace("d", "s", 4, (2, 4), stack="decoder")
    assert space.full() == Subnet.full(decoder=4)
    assert space.size() == len(list(space.enumerate())) == 7
    for subnet in [*space.enumerate(), space.smallest(), space.sample(np.random.default_rng(0))]:
        assert subnet.encoder is None
        assert space.decode(space.encode(subnet)) == subnet
    assert not space.contains(Subnet.of_encoder((0, 1)))
    assert not space.contains(Subnet.of_blocks({"encoder": (0, 1), "decoder": (0, 1)}))


def test_what_misses_a_pinned_block_cannot_be_encoded() -> None:
    space = DepthSpace("d", "s", 3, (2,), (0,))
    with pytest.raises(SpaceError, match="not in the search space"):
        space.encode(Subnet.of_encoder((1, 2)))


@pytest.mark.parametrize(
    ("keep", "pinned", "says"),
    [
        ((1,), (0, 2), r"2\.\.5, since 2 blocks are pinned"),
        ((0, 1), (), r"1\.\.5$"),
        ((2,), (5,), "ascending ids below 5"),
        ((2,), (-1,), "ascending ids below 5"),
        ((2,), (1, 0), "ascending ids below 5"),
        ((2,), (1, 1), "ascending ids below 5"),
    ],
)
def test_impossible_spaces_are_refused(keep: tuple[int, ...], pinned: tuple[int, ...], says: str) -> None:
    with pytest.raises(SpaceError, match=says):
        DepthSpace("d", "s", BLOCKS, keep, pinned)


def test_every_other_always_keeps_block_0_and_refuses_to_drop_a_pinned_one() -> None:
    for blocks in range(1, 25):
        for keep in range(1, blocks + 1):
            assert every_other(blocks, keep, pinned=(0,)) == every_other(blocks, keep)
    assert every_other(6, 3, pinned=(2, 4)) == (0, 2, 4)
    with pytest.raises(SpaceError, match=r"keeps blocks \[0, 2, 4\] of 6, but \[5\] must stay"):
        every_other(6, 3, pinned=(0, 5))
    with pytest.raises(SpaceError, match="must stay"):
        EveryOther(6, [6, 3], pinned=(1,))
    assert EveryOther(6, [6], pinned=(1,)).subnets == [Subnet.full(6)]
