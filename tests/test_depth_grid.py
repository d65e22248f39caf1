"""Depth grids as search spaces, against the product of divisors."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from ldsearch.errors import SpaceError
from ldsearch.space import load_space
from ldsearch.space.assignments import ASSIGNMENTS, assignment_named
from ldsearch.space.grid import DepthGrid
from ldsearch.subnet import Lengths, Stack, Subnet

PAPER = DepthGrid("g", "s", (("encoder", 12), ("decoder", 6)), "optimal")
TURNED = DepthGrid("g", "s", (("decoder", 6), ("encoder", 4)), "seq")
ALONE = DepthGrid("g", "s", (("decoder", 8),), "middle-left")
GRIDS = [PAPER, TURNED, ALONE]
DIVISORS = {4: (1, 2, 4), 6: (1, 2, 3, 6), 8: (1, 2, 4, 8), 12: (1, 2, 3, 4, 6, 12)}


def depths_of(subnet: Subnet) -> tuple[int, ...]:
    return tuple(len(stack.blocks) for stack in (subnet.encoder, subnet.decoder) if stack is not None)


@pytest.mark.parametrize("grid", GRIDS)
def test_a_grid_holds_each_pair_of_divisors_once(grid):
    counts = dict(grid.depths)
    stacks = [name for name in ("encoder", "decoder") if name in counts]
    expected = [*itertools.product(*(DIVISORS[counts[name]] for name in stacks))]
    found = [*grid.enumerate()]
    assert [depths_of(subnet) for subnet in found] == expected
    assert grid.size() == len(expected)
    for subnet in found:
        assert grid.contains(subnet)
        for name in stacks:
            blocks = getattr(subnet, name).blocks
            assert blocks == assignment_named(grid.assignment, counts[name])[len(blocks)]
    assert grid.blocks == sum(counts.values())
    assert depths_of(grid.smallest()) == (1,) * len(stacks)
    assert depths_of(grid.largest()) == depths_of(grid.full()) == tuple(counts[name] for name in stacks)


def test_strangers_are_not_in_it():
    inside = PAPER.decode((1, 0))
    assert depths_of(inside) == (2, 1)
    strangers = [
        Subnet(encoder=inside.encoder),
        Subnet(encoder=Stack((0, 1)), decoder=inside.decoder),
        Subnet(encoder=Stack(range(5)), decoder=inside.decoder),
        Subnet(encoder=Stack(inside.encoder.blocks, Lengths((4, 4), 8)), decoder=inside.decoder),
        Subnet(inside.encoder, Stack(inside.decoder.blocks, sublayers_off=((3, "attention"),))),
    ]
    for stranger in strangers:
        assert not PAPER.contains(stranger)
        with pytest.raises(SpaceError, match="not in the search space g"):
            PAPER.encode(stranger)


@pytest.mark.parametrize("grid", GRIDS)
def test_samples_are_uniform(grid):
    rng = np.random.default_rng(0)
    seen = Counter(grid.sample(rng) for _ in range(100 * grid.size()))
    assert set(seen) == set(grid.enumerate())
    assert chisquare([*seen.values()]).pvalue > 0.001


def test_genes_are_the_indices_of_the_depths_the_encoder_first():
    for grid, encoder, decoder in ((PAPER, DIVISORS[12], DIVISORS[6]), (TURNED, DIVISORS[4], DIVISORS[6])):
        for subnet in grid.enumerate():
            gene = grid.encode(subnet)
            assert (encoder[gene[0]], decoder[gene[1]]) == depths_of(subnet)
            assert grid.decode(gene) == subnet
            assert grid.repair(gene) == gene
    assert [ALONE.encode(subnet) for subnet in ALONE.enumerate()] == [(0,), (1,), (2,), (3,)]


def test_repair_clips():
    assert PAPER.repair((-1, 9)) == (0, 3)
    assert PAPER.repair((7, -3)) == (5, 0)
    assert ALONE.repair((4,)) == (3,)


def test_a_grid_can_be_hashed():
    assert {PAPER, DepthGrid("g", "s", (("encoder", 12), ("decoder", 6)), "optimal")} == {PAPER}


@pytest.mark.parametrize(
    ("depths", "assignment", "says"),
    [
        ((("encoder", 4), ("encoder", 6)), "optimal", "named twice"),
        ((("tower", 4),), "optimal", "an encoder, a decoder or both"),
        ((), "optimal", "an encoder, a decoder or both"),
        ((("encoder", 0),), "optimal", "at least 1 block"),
        ((("encoder", 4),), "best", "unknown assignment 'best'"),
    ],
)
def test_impossible_grids_are_refused(depths, assignment, says):
    with pytest.raises(SpaceError, match=says):
        DepthGrid("g", "s", depths, assignment)


@pytest.mark.parametrize(("name", "size"), [("12x6", 24), ("6x4", 12), ("4x4", 9)])
def test_the_shipped_grids_load(name, size):
    grid = load_space(f"depth-grid-{name}")
    encoder, decoder = map(int, name.split("x"))
    assert dict(grid.depths) == {"encoder": encoder, "decoder": decoder}
    assert grid.assignment == "optimal"
    assert grid.size() == size
    assert load_space(f"depth-grid-{name}", blocks=8).depths == (("encoder", 8), ("decoder", 8))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("depths: {encoder: 4.5}, assignment: head", "does not describe"),
        ("depths: 4, assignment: head", "does not describe"),
        ("depths: {encoder: 4}, assignment: best", "unknown assignment"),
        ("depths: {encoder: 4}", "depths and assignment"),
    ],
)
def test_a_malformed_file_is_refused_in_one_line(tmp_path: Path, fields, says):
    path = tmp_path / "grid.yaml"
    path.write_text(f"{{name: x, source: s, {fields}}}")
    with pytest.raises(SpaceError, match=says) as refused:
        load_space(path)
    assert "\n" not in str(refused.value)


def test_any_assignment_can_be_searched():
    for name in ASSIGNMENTS:
        assert DepthGrid("g", "s", (("encoder", 6), ("decoder", 4)), name).size() == 12
