"""From the command line: ONNX, the whole frontier with its index, the Hub."""

import csv
import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ldsearch.export import folder as folders
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, reviews

RUN = "runs/tiny-evolve"
MEAN_LENGTH = 10  # of the search rows: 3 to 12 words and two special tokens, cut to 16


def test_the_frontier_is_exported_with_an_index_that_picks_by_budget(ldsearch: Ldsearch, wild_place: Path):
    outcome = ldsearch("export", RUN, "all", "--all", "--format", "onnx", "--runtime", "onnx")
    assert outcome.code == 0, outcome.err
    with (wild_place / RUN / "frontier.csv").open() as file:
        rows = list(csv.DictReader(file))
    index = json.loads((wild_place / "all" / "index.json").read_text())
    assert len(index) == len(rows) > 2
    folders = sorted(path.name for path in (wild_place / "all").iterdir())
    assert folders == sorted([*(entry["folder"] for entry in index), "index.json"])
    for entry, row in zip(index, rows, strict=True):
        assert Subnet.from_json(json.dumps(entry["subnet"])) == Subnet.from_json(row["subnet"])
        assert entry["score"] == float(row["score"])
        assert entry["held_out"]["score"] == float(row["held_out_score"])
        assert entry["held_out"]["difference"]["low"] == float(row["difference_low"])
        assert entry["costs"]["macs"] == float(row["macs"])
        card = (wild_place / "all" / entry["folder"] / "README.md").read_text()
        assert f"{entry['held_out']['score']:.4f} on" in card
        assert "on its frontier" in card
        own = entry["measured_score"]
        assert own["by_run"]
        assert own["recorded"] == own["value"] == entry["score"]
        assert entry["verified"] in card
        assert [(cell["batch"], cell["full_runtime"]) for cell in entry["latency"]] == [
            (1, "onnx"),
            (8, "onnx"),
        ]
        for cell in entry["latency"]:
            assert cell["ratio"] == pytest.approx(cell["median_ms"] / cell["full_ms"])
            assert cell["length"] == MEAN_LENGTH
            assert f"| {cell['median_ms']:.3g} |" in card
    assert outcome.out.count("40 rows of the search split") == len(rows)
    assert outcome.out.count("ms at batch 8 of") == len(rows)


@pytest.mark.usefixtures("timing_jobs")
def test_without_the_data_random_rows_are_checked_and_that_is_said(ldsearch: Ldsearch, wild_place: Path):
    place = wild_place.parent / "elsewhere"
    shutil.copytree(wild_place / "runs", place / "runs")
    record = json.loads((place / "runs/tiny/supernet.json").read_text())
    record["source"]["data"] = str(place / "gone.csv")
    (place / "runs/tiny/supernet.json").write_text(json.dumps(record))
    outcome = ldsearch("export", place / RUN, "out", "--format", "onnx", "--runtime", "onnx")
    assert outcome.code == 0, outcome.err
    assert "4 rows of random tokens, outputs within" in outcome.out
    assert "the run's" not in outcome.out
    assert "ms at batch 1" in outcome.out
    (note,) = [line for line in outcome.err.splitlines() if "outputs alone were checked" in line]
    assert "gone.csv" in note
    assert "--data" in note
    found = ldsearch("export", place / RUN, "again", "--data", wild_place / "reviews.csv")
    assert found.code == 0, found.err
    assert "40 rows of the search split" in found.out
    assert "outputs alone" not in found.err
    (wild_place / "other.csv").write_text(reviews(300, seed=5))
    other = ldsearch("export", place / RUN, "no", "--data", wild_place / "other.csv")
    assert other.code == 2
    assert "are not those the supernet was trained with" in other.err
    assert not (wild_place / "no").exists()


REFUSED = [
    ("runs/tiny out --all --subnet full", "leave --subnet out"),
    ("runs/tiny out --all", "--subnet"),
    (f"{RUN} runs --all", "not empty"),
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
    outcome = ldsearch("export", *shlex.split(arguments))
    assert outcome.code == 2
    assert said in outcome.err
    assert "Traceback" not in outcome.err
    assert not (wild_place / "out").exists()


def test_a_folder_is_pushed_as_it_is(monkeypatch, tmp_path):
    calls = []

    class Api:
        def create_repo(self, name, exist_ok):
            calls.append(("create", name, exist_ok))
            return SimpleNamespace(repo_id=f"me/{name}", __str__=lambda self: "address")

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            calls.append(("upload", repo_id, folder_path))

    monkeypatch.setattr(folders, "HfApi", Api)
    folders.push(tmp_path, "mine")
    assert calls == [("create", "mine", True), ("upload", "me/mine", tmp_path)]


@pytest.mark.usefixtures("timing_jobs")
def test_without_a_network_a_push_fails_in_one_line_and_the_folder_stays(
    monkeypatch, ldsearch: Ldsearch, wild_place: Path
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    outcome = ldsearch(
        "export", RUN, "out", "--format", "onnx", "--runtime", "onnx", "--push-to-hub", "me/mine"
    )
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "out is written, but could not be pushed to me/mine" in outcome.err
    assert (wild_place / "out" / "onnx" / "model.onnx").is_file()
