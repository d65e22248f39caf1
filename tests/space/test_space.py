"""Search spaces against brute force: every combination of what each kind of gene allows, written out."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import SpaceError
from ldsearch.space import BlockGenes, DepthGenes, LengthGenes, ListedDepths, Space
from ldsearch.space.assignments import ASSIGNMENTS, assignment_named
from ldsearch.space.lengths import draw_lengths, shrink
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack, Subnet

HALF = Groups(ffn_share=0.5)
NO_HEAD = Groups(heads_off=(1,))


def depth(blocks: int, *keep: int, pinned: tuple[int, ...] = (), stack: str = "encoder") -> DepthGenes:
    return DepthGenes(stack, blocks, keep, pinned)


def lengths(blocks: int, pin_last: bool = True, **fields) -> LengthGenes:
    return LengthGenes.build(blocks, 10, 0.4, levels=5, pin_last=pin_last, **fields)


def joint(depths: tuple[BlockGenes, ...], own: LengthGenes | None = None, *options: Groups) -> Space:
    return Space("s", "a test", depths, own, (WHOLE, *options))


EVERY = LengthGenes.build(3, 6, 0.4, levels=None, pin_last=False, per_block=True)
SPACES = {
    "lengths": Space.of_lengths(lengths(3, False)),
    "pinned length": Space.of_lengths(lengths(3)),
    "widened lengths": Space.of_lengths(lengths(3, False)).widened(),
    "bounded lengths": Space.of_lengths(EVERY),
    "lengths, decoder": Space.of_lengths(lengths(3), 2),
    "depth": joint((depth(5, 2, 3),)),
    "any depth": joint((depth(4, 1, 2, 3, 4, stack="decoder"),)),
    "pinned blocks": joint((depth(4, 2, 4, pinned=(1,)),), lengths(4).widened()),
    "depth, lengths": joint((depth(3, 1, 2, 3),), lengths(3)),
    "depth, bounded lengths": joint((depth(3, 2, 3),), EVERY),
    "everything": joint((depth(3, 1, 2),), lengths(3).widened(), HALF, NO_HEAD),
    "two stacks": joint((depth(2, 1, 2), depth(2, 1, stack="decoder")), lengths(2), HALF),
    "listed": joint((ListedDepths.assigned("encoder", 6, "optimal"), depth(4, 4, stack="decoder"))),
    "listed, lengths": joint((ListedDepths("encoder", 4, ((3,), (1,), (0, 2), (0, 1, 2, 3))),), lengths(4)),
    "one sub-network": joint((depth(4, 4),)),
}


def written_out(space: Space) -> set[Subnet]:
    """Every sub-network, from the meaning of the genes."""
    names = [own.stack for own in space.depths]
    sides = [_stacks(space, own) for own in space.depths]
    return {Subnet(**dict(zip(names, stacks, strict=True))) for stacks in itertools.product(*sides)}


def _choices(own: BlockGenes) -> list[tuple[int, ...]]:
    if isinstance(own, ListedDepths):
        return list(own.choices)
    every = (c for keep in own.keep for c in itertools.combinations(range(own.blocks), keep))
    return [blocks for blocks in every if set(own.pinned) <= set(blocks)]


def _stacks(space: Space, own: BlockGenes) -> set[Stack]:
    found = set()
    for blocks in _choices(own):
        for off in itertools.product(space.options, repeat=len(blocks)):
            pairs = list(zip(blocks, off, strict=True))
            heads = tuple((b, head) for b, option in pairs for head in option.heads_off)
            shares = tuple((b, o.ffn_share) for b, o in pairs if o.ffn_share < 1)
            for vector in _vectors(space, own, len(blocks)):
                found.add(Stack(blocks, vector, heads_off=heads, ffn_share=shares))
    return found


def _vectors(space: Space, own: BlockGenes, count: int) -> list[Lengths | None]:
    genes = space.lengths
    if genes is None or own.stack != "encoder":
        return [None]
    found = []
    for vector in itertools.product(genes.levels, repeat=count):
        pinned = genes.pin_last and vector[-1] == genes.floors[-1]
        free = vector[: count - genes.pin_last]
        entering = (genes.reference, *vector)
        falls = all(after <= before for before, after in itertools.pairwise(entering))
        above = all(tokens >= floor for tokens, floor in zip(free, genes.floors, strict=False))
        kept = [shrink(tokens, Fraction(genes.drop_bound or 0)) for tokens in entering]
        bounded = genes.drop_bound is None or all(n >= k for n, k in zip(free, kept, strict=False))
        if falls and above and bounded and (pinned or not genes.pin_last):
            found.append(Lengths(vector, genes.reference))
    return found


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Space:
    return SPACES[request.param]


def test_a_space_holds_what_its_genes_allow_and_nothing_else(space: Space) -> None:
    expected = written_out(space)
    listed = list(space.enumerate())
    assert set(listed) == expected
    assert len(listed) == space.size() == len(expected)
    assert all(space.contains(subnet) for subnet in expected)
    assert {space.smallest(), space.largest()} <= expected
    # What wider genes allow beside it is refused.
    for stranger in written_out(space.widened()) - expected:
        assert not space.contains(stranger)


def test_genes_are_one_to_one_and_repair_leaves_them_alone(space: Space) -> None:
    genes = {space.encode(subnet): subnet for subnet in space.enumerate()}
    assert len(genes) == space.size()
    assert all(space.decode(gene) == own and space.repair(gene) == gene for gene, own in genes.items())


def test_samples_are_uniform(space: Space) -> None:
    rng = np.random.default_rng(0)
    counts = Counter(space.sample(rng) for _ in range(40 * space.size()))
    assert set(counts) == set(space.enumerate())
    if space.size() > 1:
        assert chisquare(list(counts.values())).pvalue > 0.001


def test_every_gene_can_be_repaired_and_the_operators_stay_inside(space: Space) -> None:
    rng = np.random.default_rng(1)
    genes = [space.encode(space.sample(rng)) for _ in range(30)]
    for first, second in itertools.pairwise(genes):
        wild = [int(n) for n in rng.integers(-2, 9, size=len(first))]
        for gene in (space.repair(wild), space.mutate(first, 0.5, rng), space.cross(first, second, rng)):
            assert space.contains(space.decode(gene))
            assert space.encode(space.decode(gene)) == gene


def test_mutation_reaches_every_sub_network(space: Space) -> None:
    rng = np.random.default_rng(2)
    gene = space.encode(space.largest())
    seen = {gene}
    for _ in range(1_000 * space.size()):
        if len(seen) == space.size():
            break
        gene = space.mutate(gene, 0.5, rng)
        seen.add(gene)
    assert len(seen) == space.size()


def test_a_step_down_changes_one_thing_and_leads_to_the_bottom(space: Space) -> None:
    subnet, path = space.largest(), 0
    while below := space.lowered(subnet):
        assert all(space.contains(child) and child != subnet for child in below)
        for child in below:
            pairs = zip(child.stacks().values(), subnet.stacks().values(), strict=True)
            assert all(set(after.blocks) <= set(before.blocks) for after, before in pairs)
        subnet, path = below[-1], path + 1
        assert path < 100, "steps down never end"


def test_regular_configurations_have_every_depth_and_spaced_blocks(space: Space) -> None:
    found = space.regular()
    assert len(set(found)) == len(found)
    assert all(space.contains(subnet) for subnet in found)
    depths = {tuple(len(stack.blocks) for stack in subnet.stacks().values()) for subnet in found}
    assert depths == set(itertools.product(*(own.keep for own in space.depths)))


def test_features_tell_sub_networks_apart(space: Space) -> None:
    rows = np.array([space.features(subnet) for subnet in space.enumerate()])
    assert ((rows >= 0) & (rows <= 1)).all()
    assert len(np.unique(rows, axis=0)) == space.size()
    if space.size() > 1:
        assert (np.ptp(rows, axis=0) > 0).all() or "depth" in space.varies


def test_a_space_is_what_its_json_says(space: Space) -> None:
    fields = json.loads(json.dumps(space.to_dict()))
    assert Space.from_dict(fields) == space
    renamed = replace(space, name="other", source="other")
    assert renamed.identity() == space.identity()
    assert space.widened().identity() == space.widened().widened().identity()


def test_the_widened_space_holds_the_space_and_keeps_the_range_of_costs(space: Space) -> None:
    wide = space.widened()
    assert written_out(space) <= written_out(wide)
    assert wide.largest() == space.largest()
    if not any(isinstance(own, ListedDepths) for own in space.depths):
        assert wide.smallest() == space.smallest()


def test_kinds_are_named_in_the_words_of_genes() -> None:
    assert SPACES["lengths, decoder"].varies == ("lengths",)
    assert SPACES["everything"].varies == ("lengths", "depth", "ffn", "head")
    assert SPACES["listed"].varies == ("depth",)
    assert joint((depth(2, 2),), None, Groups(sublayers_off=("attention",))).varies == ("sublayer",)
    assert SPACES["one sub-network"].varies == ()


def test_lengths_without_a_grid_are_those_that_training_draws() -> None:
    rng = np.random.default_rng(0)
    drawn = {draw_lengths(6, 3, Fraction(2, 5), rng) for _ in range(3_000)}
    assert {EVERY.lengths(levels).tokens for levels in EVERY.enumerate(3)} == drawn


@pytest.mark.parametrize(("reference", "levels"), [(64, 16), (50, 7), (128, 16)])
def test_what_training_draws_lies_in_the_grid_once_raised_to_it(reference: int, levels: int) -> None:
    bound, rng = Fraction(9, 25), np.random.default_rng(0)
    genes = LengthGenes.build(6, reference, bound, levels=levels, pin_last=False, per_block=True)
    space = Space.of_lengths(genes)
    assert space.contains(space.smallest())
    for _ in range(500):
        tokens = draw_lengths(reference, 6, bound, rng)
        raised = [next(level for level in genes.levels if level >= n) for n in tokens]
        assert space.contains(Subnet.of_encoder(range(6), raised, reference)), tokens
    # What no block ever dropped is not in it, though no length is below the floors.
    far = [reference, reference, *[genes.floors[2]] * 3, genes.floors[-1]]
    assert not space.contains(Subnet.of_encoder(range(6), far, reference))
    assert space.widened().contains(Subnet.of_encoder(range(6), far, reference))


def test_the_ends_have_the_trained_lengths_of_their_blocks() -> None:
    # 10 -> 6 -> 4 -> 3 at 0.4; the levels are 2, 4, 6, 8, 10.
    assert lengths(3).floors == (6, 4, 4)
    assert SPACES["lengths"].smallest() == Subnet.of_encoder(range(3), (6, 4, 4), 10)
    assert SPACES["pinned length"].largest() == Subnet.of_encoder(range(3), (10, 10, 4), 10)
    wide = LengthGenes.build(3, 10, 0.5, levels=10, pin_last=False).widened()
    space = joint((depth(3, 2, 3),), wide, NO_HEAD, HALF)
    assert wide.least == (5, 3, 2)
    assert space.smallest() == Subnet(Stack((0, 1), Lengths((5, 3), 10), ffn_share=((0, 0.5), (1, 0.5))))
    assert space.largest() == space.full() == Subnet.full(encoder=3)
    assert joint((depth(5, 3, pinned=(2, 4)),)).smallest() == Subnet.of_encoder((0, 2, 4))


def test_repair_goes_to_the_nearest_depth_and_touches_no_more_blocks_than_it_must() -> None:
    for pinned, keep in itertools.product([(), (4,), (0, 3)], [(2, 3), (3, 5), (5,)]):
        genes = DepthGenes("encoder", 5, keep, pinned)
        for runs in itertools.product((0, 1), repeat=5):
            wanted = {block for block, on in enumerate(runs) if on} | {*pinned}
            chosen = {block for block, on in enumerate(genes.repair(runs)) if on}
            assert {*pinned} <= chosen
            distance = min(abs(count - len(wanted)) for count in keep)
            assert len(wanted ^ chosen) == abs(len(chosen) - len(wanted)) == distance
            # Later blocks go first, earlier ones come back first.
            stayed = (chosen & wanted) - {*pinned}
            assert all(went > other for went in wanted - chosen for other in stayed)
            left = {*range(5)} - chosen
            assert all(came < other for came in chosen - wanted for other in left)


def test_a_mutated_length_lies_between_the_next_and_the_one_before() -> None:
    genes = LengthGenes.build(3, 20, 0.5, levels=20, pin_last=False)
    space, rng = Space.of_lengths(genes), np.random.default_rng(0)
    gene = space.encode(Subnet.of_encoder(range(3), (16, 14, 9), 20))
    mutants = [space.decode(space.mutate(gene, 0.5, rng)).encoder.lengths for _ in range(4_000)]
    first = np.array([own.tokens[0] if own else 20 for own in mutants])
    assert set(first) == set(range(14, 21))  # from the second length up to the reference
    assert np.mean(first == 16) == pytest.approx(0.5 + 0.5 / 7, abs=0.03)  # kept, or drawn


def test_crossover_averages_lengths_with_halves_rounded_up() -> None:
    space = Space.of_lengths(LengthGenes.build(3, 20, 0.5, levels=20, pin_last=False))
    parents = [space.encode(Subnet.of_encoder(range(3), own, 20)) for own in ((20, 14, 9), (13, 13, 8))]
    child = space.decode(space.cross(*parents, np.random.default_rng(0)))
    assert child.encoder.lengths.tokens == (17, 14, 9)


def test_listed_depths_are_the_assignments() -> None:
    for name in ASSIGNMENTS:
        assert ListedDepths.assigned("encoder", 6, name).choices == (*assignment_named(name, 6).values(),)


@pytest.mark.parametrize(
    "subnet",
    [
        Subnet.full(decoder=3),
        Subnet.full(encoder=3, decoder=1),
        Subnet.of_encoder((0, 1), (8, 7), 10),  # 7 is no level
        Subnet.of_encoder((0, 1), (8, 4), 20),  # another reference
        Subnet.of_encoder((0, 1), (8, 4), 10, "absolute"),
        Subnet(Stack((0, 1), None, sublayers_off=((0, "feed_forward"),))),
        Subnet.of_encoder((0, 1, 2, 3)),
        Subnet.of_encoder((0, 5), (8, 4), 10),
    ],
)
def test_strangers_are_not_in_it(subnet: Subnet) -> None:
    assert not SPACES["everything"].contains(subnet)
    with pytest.raises(SpaceError):
        SPACES["everything"].encode(subnet)


@pytest.mark.parametrize(
    "make",
    [
        lambda: replace(SPACES["everything"], options=(HALF, WHOLE)),
        lambda: replace(SPACES["everything"], options=(WHOLE, HALF, HALF)),
        lambda: replace(SPACES["everything"], options=(WHOLE, Groups(sublayers_off=("attention",)))),
        lambda: replace(SPACES["everything"], lengths=lengths(4)),
        lambda: joint((depth(2, 1, stack="tower"),)),
        lambda: joint((depth(2, 1, stack="decoder"), depth(2, 1))),
        lambda: joint((depth(2, 1), depth(2, 1))),
        lambda: depth(5, 1, pinned=(0, 2)),
        lambda: depth(5, 0, 1),
        lambda: depth(5, 2, pinned=(5,)),
        lambda: depth(5, 2, pinned=(1, 0)),
        lambda: depth(5, 2, pinned=(1, 1)),
        lambda: ListedDepths("encoder", 2, ()),
        lambda: ListedDepths("encoder", 2, ((0, 2),)),
        lambda: LengthGenes.build(3, 10, 1.5),
        lambda: LengthGenes.build(3, 10, 0.2, levels=1),
        lambda: LengthGenes.build(0, 10, 0.2),
        lambda: Space.from_dict({"name": "n", "source": "s"}),
    ],
)
def test_what_makes_no_space_is_refused_in_one_line(make) -> None:
    with pytest.raises(SpaceError) as refused:
        make()
    assert "\n" not in str(refused.value)
