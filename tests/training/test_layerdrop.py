"""LayerDrop from the command line: its rates, and what a trained supernet says of it."""

import json
from pathlib import Path

import pytest

from ldsearch.errors import SupernetError
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, read_record
from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, ldsearch, place, read, trained

__all__ = ["ldsearch", "place", "trained"]  # fixtures


LEARNED = ("--layer-drop-schedule", "learned")
LAYERDROP = (*TRAIN, *EPOCHS, "--strategy", "layerdrop", "--name", "new")


@pytest.mark.parametrize(
    ("flags", "rates", "mean", "says"),
    [
        ((), [0.2, 0.2], 0.2, "0.2"),
        (("--layer-drop", "0,0.5"), [0.0, 0.5], 0.25, "0 0.5 (mean 0.25)"),
        (("--layer-drop", "0.4", "--layer-drop-schedule", "linear"), [0.2, 0.4], 0.3, "0.2 0.4 (mean 0.3)"),
        (("--layer-drop", "0.5", "--min-layers", "1"), [0.5, 0.5], 0.5, "0.5, at least 1 blocks running"),
        (("--drop-groups", "head"), [0.2, 0.2], 0.0, "0.2 of head groups"),
        (("--strategy", "plain"), [], 0.0, "0"),
    ],
)
def test_a_trained_supernet_says_what_was_dropped(ldsearch: Ldsearch, place: Path, flags, rates, mean, says):
    assert ldsearch(*LAYERDROP, *flags).code == 0
    record = read(place / "runs/new/supernet.json")
    assert record["layer_rates"] == rates
    assert record["layer_drop"] == mean
    lines = dict(line.split("  ", 1) for line in ldsearch("info", "runs/new").out.splitlines())
    assert lines["LayerDrop"].strip() == says


def test_the_trained_passes_are_drawn_at_the_rates_that_were_asked_for(ldsearch, place, monkeypatch):
    seen, forward = [], Supernet.forward

    def recording(self, batch, subnet, *more):
        if self.training:
            seen.append(subnet)
        return forward(self, batch, subnet, *more)

    monkeypatch.setattr(Supernet, "forward", recording)
    five = (*TRAIN, "--max_steps", "5", "--strategy", "layerdrop", "--name", "new")
    assert ldsearch(*five, "--layer-drop", "0,1").code == 0
    # Some of its steps are timed before, to say how long five take.
    assert len(seen) > 5
    assert {*seen} == {Subnet.of_encoder([0])}


def of_family(place: Path, family: str) -> None:
    (place / "config.json").write_text(json.dumps({**read(place / "config.json"), "model_type": family}))


def test_a_family_s_pinned_block_is_trained_as_one(ldsearch: Ldsearch, place: Path) -> None:
    of_family(place, "modernbert")
    assert ldsearch(*LAYERDROP, "--layer-drop", "1").code == 0
    assert read(place / "runs/new/supernet.json")["layer_rates"] == [0.0, 1.0]
    assert ldsearch(*LAYERDROP[:-1], "all", "--layer-drop", "1", "--drop-groups", "sublayer").code == 0
    assert read(place / "runs/all/supernet.json")["layer_rates"] == [1.0, 1.0]


def test_the_generic_view_drops_whole_blocks_only(ldsearch: Ldsearch, place: Path) -> None:
    of_family(place, "layoutlm")
    assert ldsearch(*LAYERDROP).code == 0
    refused = ldsearch(*LAYERDROP[:-1], "heads", "--drop-groups", "head")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "works depth-only" in refused.err


def test_a_search_is_told_which_blocks_were_never_skipped(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch(*LAYERDROP, "--layer-drop", "0.5,0").code == 0
    said = ldsearch("evolve", "--supernet", "runs/new", "--strategy", "every-other", "--keep", 1).err
    assert said == "note: training never skipped blocks 1: scores without them will suffer\n"
    assert ldsearch(*LAYERDROP[:-1], "heads", "--drop-groups", "head+ffn").code == 0
    said = ldsearch("evolve", "--supernet", "runs/heads", "--strategy", "every-other", "--keep", 1).err
    assert "depths were not trained (layerdrop, only head+ffn groups dropped)" in said


def test_a_record_from_before_there_were_rates_per_block_still_loads(trained: Path, tmp_path: Path) -> None:
    fields = read(trained / "runs/tiny/supernet.json")
    del fields["layer_rates"]
    SupernetRecord(**fields).save(tmp_path)
    assert read_record(tmp_path).layer_rates == []
    SupernetRecord(**fields, layer_rates=[0.1, 0.2]).save(tmp_path)
    assert read_record(tmp_path).layer_rates == [0.1, 0.2]
    (tmp_path / "supernet.json").write_text("{}")
    with pytest.raises(SupernetError, match="damaged"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--layer-drop", "0.1,0.2,0.3"), "3 LayerDrop rates for 2 blocks"),
        (("--layer-drop", "often"), "'often'"),
        (("--min-layers", "3"), "--min-layers must lie in 0..2"),
        (("--drop-groups", "neuron"), "layer, sublayer, head, ffn"),
        (("--strategy", "lengthdrop", "--drop-groups", "head"), "for --strategy layerdrop, not lengthdrop"),
        # What has no rates to learn.
        ((*LEARNED, "--layer-drop", "0.1,0.2"), "takes one rate, not one per block"),
        ((*LEARNED, "--layer-drop", "1"), "must lie in (0, 1)"),
        ((*LEARNED, "--drop-groups", "sublayer"), "for --strategy layerdrop that drops layers"),
        ((*LEARNED, "--strategy", "lengthdrop"), "for --strategy layerdrop that drops layers"),
    ],
)
def test_contradictions_are_one_line_and_leave_nothing_behind(ldsearch: Ldsearch, place: Path, flags, says):
    outcome = ldsearch(*LAYERDROP, *flags)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err
    assert not (place / "runs/new").exists()
