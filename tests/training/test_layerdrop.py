"""LayerDrop from the command line: its rates, and what a trained supernet says of it."""

import json
from pathlib import Path

import pytest

from ldsearch.supernet.folder import SupernetRecord, read_record
from tests.cli.conftest import CONFIG, EPOCHS, TRAIN, Ldsearch, ldsearch, place, read, trained

__all__ = ["ldsearch", "place", "trained"]  # fixtures


LEARNED = ("--layer-drop-schedule", "learned")
LAYERDROP = (*TRAIN, *EPOCHS, "--strategy", "layerdrop", "--name", "new")
LINEAR = ("--layer-drop", "0.4", "--layer-drop-schedule", "linear", "--min-layers", "1")


@pytest.mark.parametrize(
    ("flags", "rates", "mean", "says"),
    [
        ((), [0.2, 0.2], 0.2, "0.2"),
        (LINEAR, [0.2, 0.4], 0.3, "0.2 0.4 (mean 0.3), at least 1 blocks running"),
        (("--drop-groups", "head"), [0.2, 0.2], 0.0, "0.2 of head groups"),
        (("--strategy", "plain"), [], 0.0, "0"),
    ],
)
def test_a_trained_supernet_says_what_was_dropped(ldsearch: Ldsearch, place: Path, flags, rates, mean, says):
    ldsearch.done(*LAYERDROP, *flags)
    record = read(place / "runs/new/supernet.json")
    assert (record["layer_rates"], record["layer_drop"]) == (rates, mean)
    lines = dict(line.split("  ", 1) for line in ldsearch("info", "runs/new").out.splitlines())
    assert lines["LayerDrop"].strip() == says


@pytest.mark.parametrize(
    ("family", "flags", "rates"),
    [
        ("modernbert", (), [0.0, 1.0]),  # whose first block is pinned
        ("modernbert", ("--drop-groups", "sublayer"), [1.0, 1.0]),
        ("layoutlm", (), [1.0, 1.0]),
    ],
)
def test_a_family_s_pinned_block_is_trained_as_one(ldsearch, place, family, flags, rates):
    (place / "config.json").write_text(json.dumps({**CONFIG, "model_type": family}))
    ldsearch.done(*LAYERDROP, "--layer-drop", "1", *flags)
    assert read(place / "runs/new/supernet.json")["layer_rates"] == rates


def test_a_search_is_told_which_blocks_were_never_skipped(ldsearch: Ldsearch, place: Path) -> None:
    ldsearch.done(*LAYERDROP, "--layer-drop", "0.5,0")
    said = ldsearch("evolve", "--supernet", "runs/new", "--strategy", "every-other", "--keep", 1).err
    assert said == "note: training never skipped blocks 1: scores without them will suffer\n"


def test_the_record_holds_the_last_rates_and_the_rule_keeps_the_lowest(ldsearch: Ldsearch, place: Path):
    ldsearch.done(*LAYERDROP, *LEARNED, "--layer-drop", "0.5")
    record = read(place / "runs/new/supernet.json")
    assert sum(record["layer_rates"]) == pytest.approx(1, abs=1e-6)
    assert len(set(record["layer_rates"])) == 2
    assert ", learned" in ldsearch("info", "runs/new").out
    # Whatever rates are recorded, nothing is fitted again.
    for kept, rates in enumerate(([0.3, 0.7], [0.7, 0.3])):
        (place / "runs/new/supernet.json").write_text(json.dumps({**record, "layer_rates": rates}))
        keeps = ("--strategy", "learned", "--keep", 1, "--name", kept)
        ldsearch.done("evolve", "--supernet", "runs/new", *keeps)
        best = read(place / f"runs/{kept}/best.json")
        assert best["subnet"]["encoder"]["blocks"] == [kept]


def test_a_record_from_before_there_were_rates_per_block_still_loads(trained: Path, tmp_path: Path) -> None:
    fields = read(trained / "runs/tiny/supernet.json")
    del fields["layer_rates"]
    SupernetRecord(**fields).save(tmp_path)
    assert read_record(tmp_path).layer_rates == []


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--layer-drop", "0.1,0.2,0.3"), "3 LayerDrop rates for 2 blocks"),
        (("--layer-drop", "often"), "'often'"),
        (("--strategy", "lengthdrop", "--drop-groups", "head"), "for --strategy layerdrop, not lengthdrop"),
        (("--model", "generic.json", "--drop-groups", "head"), "works depth-only"),
        # What has no rates to learn.
        ((*LEARNED, "--layer-drop", "1"), "must lie in (0, 1)"),
        ((*LEARNED, "--drop-groups", "sublayer"), "for --strategy layerdrop that drops layers"),
        ((*LEARNED, "--strategy", "lengthdrop"), "for --strategy layerdrop that drops layers"),
    ],
)
def test_contradictions_are_one_line_and_leave_nothing_behind(ldsearch: Ldsearch, place: Path, flags, says):
    (place / "generic.json").write_text(json.dumps({**CONFIG, "model_type": "layoutlm"}))
    assert says in ldsearch.refused(*LAYERDROP, *flags)
    assert not (place / "runs/new").exists()
