"""Search spaces: counted by brute force, sampled uniformly, read from YAML."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import SpaceError
from ldsearch.space import DepthSpace, LengthSpace, load_space, space_folder
from ldsearch.subnet import Subnet

SMALL = LengthSpace.build(3, 10, 0.4, levels=5, pin_last=False)
PINNED = LengthSpace.build(3, 10, 0.4, levels=5, pin_last=True)
DEPTH = DepthSpace("d", "s", 5, (2, 3))


def brute_force(space: LengthSpace) -> set[tuple[int, ...]]:
    """Length vectors allowed by the space's definition, from every combination of levels."""
    allowed = set()
    for tokens in itertools.product(space.levels, repeat=space.blocks):
        falls = all(a >= b for a, b in itertools.pairwise(tokens))
        above = all(t >= floor for t, floor in zip(tokens, space.floors, strict=True))
        pinned = not space.pin_last or tokens[-1] == space.floors[-1]
        if falls and above and pinned:
            allowed.add(tokens)
    return allowed


def tokens_of(subnet: Subnet, reference: int = 10, blocks: int = 3) -> tuple[int, ...]:
    lengths = subnet.encoder.lengths
    return lengths.tokens if lengths else (reference,) * blocks


@pytest.mark.parametrize("space", [SMALL, PINNED])
def test_a_length_space_holds_what_its_definition_says(space):
    expected = brute_force(space)
    listed = list(space.enumerate())
    assert {tokens_of(subnet) for subnet in listed} == expected
    assert space.size() == len(listed) == len(expected)
    everything = itertools.product(range(1, 11), repeat=3)
    falling = (t for t in everything if t[0] >= t[1] >= t[2])
    assert {t for t in falling if space.contains(Subnet.of_encoder(range(3), t, 10))} == expected


def test_the_floors_are_the_smallest_trained_configuration_on_the_grid():
    # 10 -> 6 -> 4 -> 3 at 0.4; the levels are 2, 4, 6, 8, 10
    assert SMALL.floors == (6, 4, 4)
    assert SMALL.smallest() == Subnet.of_encoder(range(3), (6, 4, 4), 10)
    assert tokens_of(PINNED.largest()) == (10, 10, 4)
    assert SMALL.largest() == SMALL.full() == Subnet.full(3)


@pytest.mark.parametrize(("space", "floor"), [(SMALL, 2), (PINNED, 4)])
def test_a_widened_space_has_one_floor_and_the_same_ends(space, floor):
    wide = space.widened()
    expected = {
        tokens
        for tokens in itertools.product(space.levels, repeat=3)
        if tokens[0] >= tokens[1] >= tokens[2] >= floor and (not space.pin_last or tokens[2] == floor)
    }
    assert {tokens_of(subnet) for subnet in wide.enumerate()} == expected == brute_force(wide)
    assert (wide.smallest(), wide.largest()) == (space.smallest(), space.largest())
    assert wide.size() > space.size()
    assert wide.widened() == wide


@pytest.mark.parametrize("space", [SMALL, PINNED, DEPTH])
def test_samples_are_uniform(space):
    rng = np.random.default_rng(1)
    counts = Counter(space.sample(rng) for _ in range(200 * space.size()))
    assert set(counts) == set(space.enumerate())
    assert chisquare(list(counts.values())).pvalue > 0.001


@pytest.mark.parametrize("space", [SMALL, PINNED, DEPTH, load_space("demo"), load_space("layerdrop-16to8")])
def test_genes_decode_to_what_they_encode_and_repair_leaves_them_alone(space):
    rng = np.random.default_rng(2)
    for _ in range(50):
        subnet = space.sample(rng)
        gene = space.encode(subnet)
        assert space.decode(gene) == subnet
        assert space.repair(gene) == gene


@pytest.mark.parametrize("space", [SMALL, PINNED, DEPTH, load_space("demo")])
def test_repair_brings_any_gene_into_the_space(space):
    rng = np.random.default_rng(3)
    top = len(space.levels) if isinstance(space, LengthSpace) else 2
    for _ in range(200):
        gene = space.repair(rng.integers(0, top, len(space.encode(space.largest()))).tolist())
        assert space.contains(space.decode(gene))


def test_a_length_space_with_a_decoder_keeps_all_of_it():
    alone = LengthSpace.build(4, 32, 0.36)
    both = LengthSpace.build(4, 32, 0.36, decoder=3)
    assert both.size() == alone.size()
    for subnet in (both.smallest(), both.largest(), both.sample(np.random.default_rng(0))):
        assert subnet.decoder == Subnet.full(decoder=3).decoder
        assert both.contains(subnet)
        assert not alone.contains(subnet)
    assert not both.contains(alone.smallest())


def test_depth_spaces_hold_the_binomials():
    assert load_space("layerdrop-16to8").size() == 12_870
    assert DEPTH.size() == 10 + 10 == len(set(DEPTH.enumerate()))
    assert DEPTH.contains(Subnet.of_encoder([0, 4]))
    for stranger in (Subnet.of_encoder([0]), Subnet.of_encoder([0, 5]), Subnet.of_encoder([0, 1], [4, 3], 8)):
        assert not DEPTH.contains(stranger)


def test_the_demo_space_is_a_grid_of_16_levels():
    demo = load_space("demo")
    assert demo.levels == tuple(range(4, 65, 4))
    assert demo.floors == (44, 28, 20, 12, 8, 8)


@pytest.mark.parametrize("path", sorted(space_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_space_loads_and_names_its_source(path):
    space = load_space(path.stem)
    assert space.name == path.stem
    assert len(space.source) > 20
    assert space.contains(space.smallest())
    assert space.contains(space.largest())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("name: x\n  blocks: [", "no YAML"),
        ("just text", "does not describe"),
        ("{name: x, source: s, blocks: 3}", "depth, lengths or both"),
        ("{name: x, source: s, blocks: 3, depth: {keep: [4]}}", r"1\.\.3"),
        (
            "{name: x, source: s, blocks: 3, lengths: {reference: 8, drop_bound: 1.5, levels: 4}}",
            "drop rate",
        ),
        ("{name: x, source: s, blocks: 3, lengths: {reference: 8, drop_bound: 0.2}}", "does not describe"),
        (
            "{name: x, source: s, blocks: 3, lengths: {reference: 8, drop_bound: 0.2, levels: 4, b: 1}}",
            "does not describe",
        ),
    ],
)
def test_a_malformed_space_is_refused_in_one_line(tmp_path, text, match):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(SpaceError, match=match) as refused:
        load_space(path)
    assert "\n" not in str(refused.value)


def test_an_unknown_space_is_answered_with_the_shipped_ones():
    with pytest.raises(SpaceError, match=r"demo, depth-grid-12x6, .*, layerdrop-16to8"):
        load_space("nonsense")
