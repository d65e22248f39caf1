"""From the command line: ONNX, the whole frontier with its index, the Hub."""

import json
import shlex
from pathlib import Path
from unittest import mock

import pytest

from ldsearch.export import folder as folders
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, reviews, rows

RUN = "runs/tiny-evolve"
MEAN_LENGTH = 10  # of the search rows: 3 to 12 words and two special tokens, cut to 16


@pytest.mark.parametrize(("runtime", "dtype"), [("onnx", "float32"), ("onnx-int8", "int8")])
def test_the_frontier_is_exported_with_an_index_that_picks_by_budget(
    ldsearch: Ldsearch, wild_place: Path, runtime: str, dtype: str
):
    how = ("--format", "onnx", "--runtime", runtime, "--least-agreement", "0.5")
    outcome = ldsearch.done("export", RUN, "all", "--all", *how)
    found = rows(wild_place / RUN / "frontier.csv")
    index = json.loads((wild_place / "all" / "index.json").read_text())
    assert len(index) == len(found) > 2
    folders = sorted(path.name for path in (wild_place / "all").iterdir())
    assert folders == sorted([*(entry["folder"] for entry in index), "index.json"])
    for entry, row in zip(index, found, strict=True):
        assert Subnet.from_json(json.dumps(entry["subnet"])) == Subnet.from_json(row["subnet"])
        assert (entry["score"], entry["costs"]["macs"]) == (float(row["score"]), float(row["macs"]))
        assert (entry["runtime"], entry["dtype"]) == (runtime, dtype)
        card = (wild_place / "all" / entry["folder"] / "README.md").read_text()
        assert f"{float(row['held_out_score']):.4f} on" in card
        assert "on its frontier" in card
        assert entry["verified"] in card
        own, held = entry["measured_score"], entry["held_out"]
        assert own["by_run"]
        assert own["recorded"] == entry["score"]
        if runtime == "onnx":
            assert own["value"] == entry["score"]
            assert held["score"] == float(row["held_out_score"])
            assert held["difference"]["low"] == float(row["difference_low"])
        else:  # of the file itself
            assert abs(held["score"] - float(row["held_out_score"])) < 0.1
            assert held["difference"]["mean"] == pytest.approx(held["score"] - held["full_score"])
        for batch, cell in zip((1, 8), entry["latency"], strict=True):
            assert (cell["batch"], cell["length"]) == (batch, MEAN_LENGTH)
            assert cell["runtime"] == cell["full_runtime"] == runtime
            assert cell["ratio"] == pytest.approx(cell["median_ms"] / cell["full_ms"])
            assert f"| {cell['median_ms']:.3g} |" in card
    assert outcome.out.count("40 rows of the search split") == len(index)
    assert outcome.out.count("ms at batch 8 of") == len(index)


@pytest.mark.usefixtures("timing_jobs")
def test_without_the_data_random_rows_are_checked_and_that_is_said(ldsearch: Ldsearch, wild_place: Path):
    record = json.loads((wild_place / "runs/tiny/supernet.json").read_text())
    record["source"]["data"] = str(wild_place / "gone.csv")
    (wild_place / "runs/tiny/supernet.json").write_text(json.dumps(record))
    outcome = ldsearch.done("export", RUN, "out", "--format", "onnx", "--runtime", "onnx")
    assert "4 rows of random tokens, outputs within" in outcome.out
    assert "the run's" not in outcome.out
    assert "ms at batch 1" in outcome.out
    (note,) = [line for line in outcome.err.splitlines() if "outputs alone were checked" in line]
    assert "gone.csv" in note
    assert "--data" in note
    outcome = ldsearch.done("export", RUN, "again", "--data", "reviews.csv")
    assert "40 rows of the search split" in outcome.out
    assert "outputs alone" not in outcome.err
    (wild_place / "other.csv").write_text(reviews(300, seed=5))
    said = ldsearch.refused("export", RUN, "no", "--data", "other.csv")
    assert "are not those the supernet was trained with" in said
    assert not (wild_place / "no").exists()


REFUSED = [
    ("runs/tiny out --all --subnet full", "leave --subnet out"),
    ("runs/tiny out --all", "--subnet"),
    (f"{RUN} out --push-to-hub 'a b'", "--push-to-hub a b"),
    (f"{RUN} out --elastic", "use --format onnx, without --all"),
    (f"{RUN} out --elastic --all --format onnx", "use --format onnx, without --all"),
    ("runs/tiny out --subnet full --elastic --format onnx", "is no search run"),
    (f"{RUN} out --runtime onnx-int8", "--runtime onnx-int8 runs an ONNX file: use --format onnx"),
    (f"{RUN} out --runtime eager --format onnx", "unknown runtime of files 'eager'"),
    (f"{RUN} out --format onnx --least-agreement 2", "--least-agreement is a share"),
    (f"{RUN} out --format onnx-int8", "unknown format 'onnx-int8': use hf or onnx"),
    (f"{RUN} out --text-column text", "tell how those of a model"),
    # A model that others fine-tuned.
    ('mine out --subnet \'{"encoder": {"blocks": [0]}}\'', "was not trained by ldsearch"),
    ("mine out --all", "is no search run"),
    ("mine out --data gone.csv", "gone.csv"),
]


@pytest.mark.usefixtures("timing_jobs", "mine")
@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[arguments for arguments, _ in REFUSED])
def test_bad_input_is_one_line_and_writes_nothing(ldsearch: Ldsearch, wild_place: Path, arguments, said):
    assert said in ldsearch.refused("export", *shlex.split(arguments))
    assert not (wild_place / "out").exists()


def test_a_folder_is_pushed_as_it_is(monkeypatch, tmp_path):
    api = mock.Mock()
    api.create_repo.return_value.repo_id = "me/mine"
    monkeypatch.setattr(folders, "HfApi", lambda: api)
    folders.push(tmp_path, "mine")
    pushed = mock.call.upload_folder(repo_id="me/mine", folder_path=tmp_path, commit_message=mock.ANY)
    assert api.method_calls == [mock.call.create_repo("mine", exist_ok=True), pushed]


@pytest.mark.usefixtures("timing_jobs")
def test_without_a_network_a_push_fails_in_one_line_and_the_folder_stays(
    monkeypatch, ldsearch: Ldsearch, wild_place: Path
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    outcome = ldsearch("export", RUN, "out", "--push-to-hub", "me/mine")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "out is written, but could not be pushed to me/mine" in outcome.err
    assert (wild_place / "out" / "config.json").is_file()
