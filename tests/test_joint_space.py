"""Joint spaces against brute force: every combination of what each part allows, written out."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ldsearch.errors import SpaceError
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.lengths import LengthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack, Subnet

HALF = Groups(ffn_share=0.5)
NO_HEAD = Groups(heads_off=(1,))


def depth(blocks: int, *keep: int, pinned: tuple[int, ...] = (), stack: str = "encoder") -> DepthSpace:
    return DepthSpace("d", "a test", blocks, keep, pinned, stack)


def lengths(blocks: int, pin_last: bool = True) -> LengthSpace:
    return LengthSpace.build(blocks, 10, 0.5, levels=5, pin_last=pin_last).widened()


SPACES = {
    "depth": JointSpace("s", "a test", (depth(4, 2, 3),)),
    "pinned": JointSpace("s", "a test", (depth(4, 2, 4, pinned=(1,)),), lengths(4)),
    "lengths": JointSpace("s", "a test", (depth(3, 1, 2, 3),), lengths(3)),
    "unpinned": JointSpace("s", "a test", (depth(3, 2, 3),), lengths(3, pin_last=False)),
    "everything": JointSpace("s", "a test", (depth(3, 1, 2),), lengths(3), (WHOLE, HALF, NO_HEAD)),
    "two stacks": JointSpace(
        "s", "a test", (depth(2, 1, 2), depth(3, 2, stack="decoder")), lengths(2), (WHOLE, HALF)
    ),
    "two blocks": JointSpace("s", "a test", (depth(2, 1, 2),), lengths(2)),
}


def written_out(space: JointSpace) -> set[Subnet]:
    """Every sub-network, from the meaning of the parts."""
    sides = [_stacks(space, own) for own in space.depths]
    names = [own.stack for own in space.depths]
    return {Subnet(**dict(zip(names, stacks, strict=True))) for stacks in itertools.product(*sides)}


def _stacks(space: JointSpace, own: DepthSpace) -> set[Stack]:
    found = set()
    for keep in own.keep:
        for blocks in itertools.combinations(range(own.blocks), keep):
            if not set(own.pinned) <= set(blocks):
                continue
            for off in itertools.product(space.options, repeat=keep):
                for vector in _vectors(space, own, keep):
                    pairs = list(zip(blocks, off, strict=True))
                    found.add(
                        Stack(
                            blocks,
                            vector,
                            heads_off=tuple((b, head) for b, option in pairs for head in option.heads_off),
                            ffn_share=tuple((b, o.ffn_share) for b, o in pairs if o.ffn_share < 1),
                        )
                    )
    return found


def _vectors(space: JointSpace, own: DepthSpace, keep: int) -> list[Lengths | None]:
    if space.lengths is None or own.stack != "encoder":
        return [None]
    usable = [n for n in space.lengths.levels if n >= space.lengths.floors[-1]]
    vectors = [v for v in itertools.product(usable, repeat=keep) if list(v) == sorted(v, reverse=True)]
    if space.lengths.pin_last:
        vectors = [v for v in vectors if v[-1] == usable[0]]
    return [Lengths(v, 10) for v in vectors]


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> JointSpace:
    return SPACES[request.param]


def test_a_space_holds_what_its_parts_allow_and_nothing_else(space: JointSpace) -> None:
    expected = written_out(space)
    listed = list(space.enumerate())
    assert set(listed) == expected
    assert len(listed) == space.size() == len(expected)
    assert all(space.contains(one) for one in expected)


def test_genes_are_one_to_one_and_repair_leaves_them_alone(space: JointSpace) -> None:
    genes = {space.encode(one): one for one in space.enumerate()}
    assert len(genes) == space.size()
    assert all(space.decode(gene) == one and space.repair(gene) == gene for gene, one in genes.items())


def test_samples_are_uniform(space: JointSpace) -> None:
    rng = np.random.default_rng(0)
    draws = 40 * space.size()
    counts = Counter(space.sample(rng) for _ in range(draws))
    assert set(counts) == set(space.enumerate())
    chi_square = sum((count - 40) ** 2 / 40 for count in counts.values())
    degrees = space.size() - 1
    assert abs(chi_square - degrees) < 5 * np.sqrt(2 * degrees)


def test_every_gene_can_be_repaired_and_the_operators_stay_inside(space: JointSpace) -> None:
    rng = np.random.default_rng(1)
    some = [space.encode(space.sample(rng)) for _ in range(30)]
    for first, second in itertools.pairwise(some):
        wild = [int(n) for n in rng.integers(-2, 9, size=len(first))]
        for gene in (
            space.repair(wild),
            space.mutate(first, 0.5, rng),
            space.cross(first, second, rng),
        ):
            assert space.contains(space.decode(gene))
            assert space.encode(space.decode(gene)) == gene


def test_mutation_reaches_every_sub_network(space: JointSpace) -> None:
    rng = np.random.default_rng(2)
    gene, seen = space.encode(space.largest()), set()
    for _ in range(1_000 * space.size()):
        gene = space.mutate(gene, 0.5, rng)
        seen.add(gene)
        if len(seen) == space.size():
            break
    assert len(seen) == space.size()


def test_a_step_down_changes_one_thing_and_leads_to_the_bottom(space: JointSpace) -> None:
    one, path = space.largest(), 0
    while below := space.lowered(one):
        assert all(space.contains(child) and child != one for child in below)
        for child in below:
            pairs = zip(child.stacks().values(), one.stacks().values(), strict=True)
            assert all(set(after.blocks) <= set(before.blocks) for after, before in pairs)
        one, path = below[-1], path + 1
        assert path < 100, "steps down never end"
    assert all(
        len(own.blocks) == part.keep[0] for own, part in zip(one.stacks().values(), space.depths, strict=True)
    )


def test_regular_configurations_have_every_depth_and_spaced_blocks(space: JointSpace) -> None:
    found = space.regular()
    assert len(set(found)) == len(found)
    assert all(space.contains(one) for one in found)
    depths = {tuple(len(stack.blocks) for stack in one.stacks().values()) for one in found}
    assert depths == set(itertools.product(*(own.keep for own in space.depths)))


def test_features_tell_sub_networks_apart(space: JointSpace) -> None:
    rows = np.array([space.features(one) for one in space.enumerate()])
    assert ((rows >= 0) & (rows <= 1)).all()
    assert len(np.unique(rows, axis=0)) == space.size()


def test_the_smallest_has_the_trained_lengths_of_its_blocks() -> None:
    wide = LengthSpace.build(3, 10, 0.5, levels=10, pin_last=False).widened()
    space = JointSpace("s", "a test", (depth(3, 2, 3),), wide, (WHOLE, NO_HEAD, HALF))
    assert wide.least == (5, 3, 2)
    assert space.smallest() == Subnet(Stack((0, 1), Lengths((5, 3), 10), ffn_share=((0, 0.5), (1, 0.5))))
    assert space.largest() == space.full() == Subnet.full(encoder=3)


@pytest.mark.parametrize(
    "subnet",
    [
        Subnet.full(decoder=3),
        Subnet.full(encoder=3, decoder=1),
        Subnet.of_encoder((0, 1), (8, 7), 10),  # 7 is no level
        Subnet.of_encoder((0, 1), (8, 4), 20),  # another reference
        Subnet(Stack((0, 1), None, sublayers_off=((0, "feed_forward"),))),
        Subnet.of_encoder((0, 1, 2, 3)),
    ],
)
def test_strangers_are_not_in_it(subnet: Subnet) -> None:
    space = SPACES["everything"]
    assert not space.contains(subnet)
    with pytest.raises(SpaceError, match="not in the search space"):
        space.encode(subnet)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"options": (HALF, WHOLE)}, "the first is that nothing is off"),
        ({"options": (WHOLE, HALF, HALF)}, "distinct"),
        ({"options": (WHOLE, Groups(sublayers_off=("attention",)))}, "attention scores the tokens"),
        ({"lengths": lengths(4)}, "lengths of 4 encoder blocks"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        replace(SPACES["everything"], **change)
