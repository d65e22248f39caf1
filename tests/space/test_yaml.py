"""Search spaces from YAML: the shipped ones, what a file may say, what is refused."""

import pytest

from ldsearch.errors import SpaceError
from ldsearch.space import DepthGenes, ListedDepths, load_space, space_folder


@pytest.mark.parametrize("path", sorted(space_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_space_loads_and_names_its_source(path):
    space = load_space(path.stem)
    assert space.name == path.stem
    assert len(space.source) > 20
    assert space.contains(space.smallest())
    assert space.contains(space.largest())


def test_the_demo_space_is_a_grid_of_16_levels_and_the_papers_depth_space_holds_the_binomial():
    demo = load_space("demo").lengths
    assert demo.levels == tuple(range(4, 65, 4))
    assert demo.floors == (44, 28, 20, 12, 8, 8)
    assert load_space("layerdrop-16to8").size() == 12_870


@pytest.mark.parametrize(("name", "size"), [("12x6", 24), ("6x4", 12), ("4x4", 9)])
def test_the_shipped_grids_hold_every_pair_of_divisors(name, size):
    grid = load_space(f"depth-grid-{name}")
    encoder, decoder = map(int, name.split("x"))
    expected = (("encoder", encoder), ("decoder", decoder))
    assert grid.depths == tuple(ListedDepths.assigned(*stack, "optimal") for stack in expected)
    assert grid.size() == size
    assert load_space(f"depth-grid-{name}", blocks=8).full() == load_space("depth-grid-4x4", blocks=8).full()


def test_a_space_is_scaled_to_other_blocks_and_another_reference():
    joint = load_space("joint-groups-12x128", blocks=4, reference=24)
    assert joint.depths == (DepthGenes("encoder", 4, (2, 3, 4)),)
    assert joint.lengths.levels[-1] == joint.lengths.reference == 24


@pytest.mark.parametrize(
    "text",
    [
        "name: x\n  blocks: [",
        "just text",
        "{name: x, source: s, blocks: 3}",
        "{name: x, source: s, blocks: 3, depth: {keep: [4]}}",
        "{name: x, source: s, blocks: 3, lengths: {reference: 8, drop_bound: 1.5, levels: 4}}",
        "{name: x, source: s, blocks: 3, lengths: {reference: 8, drop_bound: 0.2}}",
        "{name: x, source: s, blocks: 3, lengths: {reference: 8, drop_bound: 0.2, levels: 4, b: 1}}",
        "{name: x, source: s, depths: {encoder: 4.5}, assignment: head}",
        "{name: x, source: s, depths: 4, assignment: head}",
        "{name: x, source: s, depths: {encoder: 4}, assignment: best}",
        "{name: x, source: s, depths: {tower: 4}, assignment: head}",
        "{name: x, source: s, depths: {encoder: 4}}",
    ],
)
def test_a_malformed_space_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(SpaceError) as refused:
        load_space(path)
    assert "\n" not in str(refused.value)


def test_an_unknown_space_is_answered_with_the_shipped_ones():
    with pytest.raises(SpaceError, match=r"demo, depth-grid-12x6, .*, layerdrop-16to8"):
        load_space("nonsense")
