"""What of a supernet is searched: the space that it was trained on, and the way out of it."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.errors import SpaceError
from ldsearch.search.spaces import search_space, trained_space, training_gaps
from ldsearch.space import DepthGenes, ListedDepths, Space
from ldsearch.space.lengths import constant_ratio_lengths
from ldsearch.subnet import Subnet
from ldsearch.training.strategies import Setting, StackSetting, make_strategy

RATES = (0.0, 0.2, 0.2, 0.2, 0.2, 0.2)


def bench(
    strategy: str,
    rates: tuple[float, ...] = (),
    drop_bound: str | None = None,
    drop_groups: str = "layer",
    depth_tasks: dict[str, Any] | None = None,
    decoder: int = 0,
    pinned: tuple[int, ...] = (),
    why_depth_only: str = "",
    space: Space | None = None,
) -> Any:
    """Only what a space is made from: a supernet of 6 blocks, and its record, most of which have no space."""
    record = SimpleNamespace(
        space=space and space.to_dict(),
        strategy=strategy,
        blocks=6,
        reference=64,
        length_mode="ratio",
        drop_bound=drop_bound,
        layer_drop=0.0,
        training={"drop_groups": drop_groups, "depth_tasks": depth_tasks},
        rates_of=lambda stack: list(rates),
    )
    supernet = SimpleNamespace(
        depths={"encoder": 6, "decoder": decoder} if decoder else {"encoder": 6},
        supports_lengths=not why_depth_only,
        why_depth_only=why_depth_only,
        why_no_groups=why_depth_only or ("a decoder works depth-only" if decoder else ""),
        reads_first=True,
        shape=SimpleNamespace(heads=4),
        model=SimpleNamespace(config=SimpleNamespace()),
        pinned_of=lambda stack: pinned if stack == "encoder" else (),
    )
    macs = Macs(EncoderShape(6, 384, 1536), Workload.padded(64))
    return SimpleNamespace(record=record, supernet=supernet, macs=macs, full=Subnet.full(encoder=6))


LENGTHDROP = bench("lengthdrop", drop_bound="9/25")
LAYERDROP = bench("layerdrop", RATES)
FLEXIBLE = bench("flexible-depth", depth_tasks={"assignment": "optimal", "lengths": True}, drop_bound="9/25")


def test_a_record_without_a_space_gets_the_one_that_its_training_would_carry():
    setting = Setting({"encoder": StackSetting(6, RATES, heads=4)}, 64, Fraction(9, 25))
    for name in ("lengthdrop", "layerdrop"):
        carried = make_strategy(name, setting).space
        assert trained_space(bench(name, RATES, drop_bound="9/25")) == carried
        assert trained_space(bench("of somebody else", space=carried)) == carried
    assert trained_space(bench("of somebody else")).varies == ()


def test_what_was_trained_is_what_is_searched():
    def varies(*args: Any, **fields: Any) -> tuple[str, ...]:
        return search_space(bench(*args, **fields)).varies

    assert varies("lengthdrop", RATES, drop_bound="9/25") == ("lengths", "depth")
    assert varies("lengthdrop", drop_bound="9/25") == ("lengths",)
    assert varies("layerdrop", RATES) == ("depth",)
    assert varies("layerdrop", RATES, drop_groups="ffn+layer") == ("depth", "ffn")
    assert search_space(FLEXIBLE).varies == ("lengths", "depth")
    # Where only the full model was trained something has to be searched all the same.
    assert varies("plain") == ("lengths",)
    assert varies("plain", why_depth_only="a decoder") == ("depth",)


def test_lengths_stay_in_what_training_drew_and_widen_only_when_told():
    space = search_space(LENGTHDROP)
    far = Subnet.of_encoder(range(6), (64, 64, 20, 20, 20, 8), 64)  # 69% at one block
    assert space.varies == ("lengths",)
    assert not space.contains(far)
    wide = search_space(LENGTHDROP, widen=True)
    assert wide.contains(far)
    assert training_gaps(LENGTHDROP, space) == []
    below, alone = training_gaps(LENGTHDROP, wide)
    assert "below the trained lengths (bound 9/25)" in below
    assert "9/25" in alone
    # To the last length in every block, as that is pinned. Counted in products with d x d: three for each
    # token that enters a block, nine for each that leaves.
    least, full = LENGTHDROP.macs([wide.smallest(), LENGTHDROP.full])
    assert wide.smallest().encoder.lengths.tokens == (8,) * 6
    assert least / full == pytest.approx((3 * 64 + 9 * 8 + 5 * 12 * 8) / (6 * 12 * 64), abs=0.005)
    # Of longer inputs to a tenth, by a constant ratio.
    long = bench("lengthdrop", drop_bound="9/25")
    long.record.reference, long.macs = 512, Macs(EncoderShape(6, 384, 1536), Workload.padded(512))
    long.supernet.reads_first = False
    least, trained, full = long.macs(
        [search_space(long, widen=True).smallest(), search_space(long).smallest(), long.full]
    )
    assert 0.1 <= least / full < 0.12 < trained / full
    # The reference code's search is the widened one, on every length.
    parity = search_space(LENGTHDROP, parity=True).lengths
    assert parity.least == constant_ratio_lengths(64, 6, Fraction(9, 25))
    assert parity.floors == (2,) * 6


def test_blocks_that_were_never_skipped_stay_unless_told():
    for widen, pinned in ((False, (0,)), (True, ())):
        (depth,) = search_space(LAYERDROP, genes="depth", widen=widen).depths
        assert depth == DepthGenes("encoder", 6, (2, 3, 4, 5, 6), pinned)
    (note,) = training_gaps(LAYERDROP, listed(1, 2))
    assert "never skipped blocks 0" in note


def listed(*blocks: int) -> Space:
    return Space("one", "a test", (ListedDepths("encoder", 6, (blocks,)),))


def test_listed_depths_stay_listed_unless_told():
    space = search_space(FLEXIBLE, genes="depth+lengths")
    assert space.depths == (ListedDepths.assigned("encoder", 6, "optimal"),)
    assert training_gaps(FLEXIBLE, space) == []
    wide = search_space(FLEXIBLE, genes="depth+lengths", widen=True)
    assert wide.depths == (DepthGenes("encoder", 6, (1, 2, 3, 4, 5, 6)),)
    notes = training_gaps(FLEXIBLE, wide)
    assert "only 4 choices of blocks" in " ".join(notes)


def test_what_was_not_trained_is_searched_where_it_is_named_and_noted():
    plain = bench("plain", pinned=(1,))
    for genes, words in (
        ("lengths", "lengths were not trained (plain)"),
        ("depth", "depths were not trained (plain, no LayerDrop)"),
        ("ffn", "feed-forward halves were not trained"),
        ("head", "attention heads were not trained"),
        ("sublayer", "sub-layers were not trained"),
    ):
        space = search_space(plain, genes=genes)
        assert space.varies == (genes,)
        (note,) = training_gaps(plain, space)
        assert words in note
    assert search_space(plain, genes="depth").depths[0].pinned == (1,)
    groups = bench("layerdrop", (0.3,) * 6, drop_groups="head+ffn")
    space = search_space(groups, genes="head+ffn")
    assert training_gaps(groups, space) == []
    (note,) = training_gaps(groups, listed(0, 1))
    assert "only head+ffn groups dropped" in note


def test_a_named_space_is_searched_as_it_is_and_its_gaps_are_noted(tmp_path):
    path = tmp_path / "mine.yaml"
    lengths = "{reference: 64, drop_bound: %s, levels: 16, per_block: %s}"
    # Trained down to 41, 27, 18, 12, 8 and 8 of 64 tokens; on a grid of fours 38% leave 40, 28, 16, 12, 8.
    cases = ((0.36, "true", 0, ""), (0.36, "false", 1, ""), (0.38, "true", 2, "at blocks 0, 2: scores"))
    for bound, per_block, noted, words in cases:
        path.write_text(f"{{name: n, source: s, blocks: 6, lengths: {lengths % (bound, per_block)}}}")
        space = search_space(LENGTHDROP, str(path))
        gaps = training_gaps(LENGTHDROP, space)
        assert len(gaps) == noted
        assert words in " ".join(gaps)
        assert search_space(LENGTHDROP, str(path), widen=True) == space.widened()
    both = bench("lengthdrop", drop_bound="9/25", decoder=3)
    assert search_space(both, str(path)).depths[1] == DepthGenes("decoder", 3, (3,))


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({}, {"genes": "width"}, "unknown genes 'width'"),
        ({}, {"genes": "depth+depth"}, r"unknown genes 'depth\+depth'"),
        ({}, {"genes": "depth", "name": "demo"}, "name it or --genes, not both"),
        ({}, {"genes": "depth", "parity": True}, "--parity is the length-adaptive paper's search"),
        ({}, {"genes": "lengths+sublayer"}, "attention scores the tokens"),
        ({}, {"name": "joint-6x128"}, "tokens"),
        ({}, {"name": "length-adaptive-12x128"}, "12} blocks, the supernet has"),
        ({"why_depth_only": "no tokens"}, {"genes": "lengths"}, "no tokens"),
        ({"why_depth_only": "no tokens"}, {"genes": "ffn"}, "no tokens"),
        ({"decoder": 6}, {"genes": "head"}, "a decoder works depth-only"),
    ],
)
def test_what_cannot_be_searched_is_refused(changes: dict[str, Any], arguments: dict[str, Any], says: str):
    with pytest.raises(SpaceError, match=says):
        search_space(bench("lengthdrop", drop_bound="9/25", **changes), **arguments)
