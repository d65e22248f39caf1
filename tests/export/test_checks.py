"""Planted failures: each is found by the check it is named after, and what was written is gone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ldsearch.bench import Bench
from ldsearch.errors import ExportError
from ldsearch.export import rows as checked_rows
from ldsearch.export.agreement import agreement
from ldsearch.export.card import Written
from ldsearch.export.export import export
from ldsearch.export.folder import write_huggingface
from ldsearch.export.timing import TimingJob, timings
from ldsearch.latency.clock import Clock
from ldsearch.latency.measure import MeasuredLatency
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.tiny import padded_batch, tiny_decoder, tiny_model

RUN = "runs/tiny-evolve"


@pytest.fixture
def here(timing_jobs: list[TimingJob], wild_place: Path) -> Path:
    return wild_place


Damage = Callable[[Path], None]


def flip_a_weight(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["bert.encoder.layer.2.attention.output.dense.weight"][3, 5] += 0.5
    save_file(tensors, path, metadata={"format": "pt"})


def swap_the_labels(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    first, second = config["id2label"].values()
    config["id2label"] = {"0": second, "1": first}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (flip_a_weight, "check of the outputs failed: ldsearch.load in a fresh process differs"),
        (swap_the_labels, "check of the predictions failed: .* calls the labels good, bad, the supernet bad"),
    ],
)
def test_a_damaged_export_is_removed(monkeypatch, here: Path, damage: Damage, named: str):
    def write(*given: Any) -> Written:
        written = write_huggingface(*given)
        damage(written.folder)
        return written

    monkeypatch.setattr("ldsearch.export.export.write_huggingface", write)
    with pytest.raises(ExportError, match=named) as error:
        export(RUN, "out")
    assert str(error.value).endswith("nothing was written")
    assert "\n" not in str(error.value)
    assert not list(here.glob("*out*"))


def test_another_score_than_the_runs_fails(here: Path):
    best = json.loads((here / RUN / "best.json").read_text())
    (found,) = export(RUN, "fine").verified
    assert found.score.value == pytest.approx(best["score"])
    assert found.describe().endswith(f"accuracy {best['score']:.4f}, the run's {best['score']:.4f}")
    one_row = 1 / best["examples"]
    (here / RUN / "best.json").write_text(json.dumps(best | {"score": best["score"] - one_row}))
    with pytest.raises(ExportError, match=r"check of the score failed: .*, the run recorded"):
        export(RUN, "out")
    assert not (here / "out").exists()


def test_rows_that_rounding_decides_may_move_the_score(here: Path, monkeypatch):
    """One of the supernet's margins is nothing: its row may be counted either way."""
    best = json.loads((here / RUN / "best.json").read_text())
    bench = Bench.open("runs/tiny")
    subnet = Subnet.from_json(json.dumps(best["subnet"]))
    logits = torch.tensor([row.tolist() for row in bench.evaluator.outputs(subnet)])
    # A shift of one class's bias ties the row with the smallest margin exactly.
    margins = logits[:, 0] - logits[:, 1]
    path = here / "runs/tiny/model.safetensors"
    tensors = load_file(path)
    tensors["classifier.bias"][1] += float(margins[margins.abs().argmin()])
    save_file(tensors, path, metadata={"format": "pt"})
    (found,) = export("runs/tiny", "first", subnet=json.dumps(best["subnet"])).verified
    assert found.agreement.close == 1
    assert not found.score.by_run
    for moved, fits in ((1, True), (-1, True), (13, False)):
        score = found.score.value + moved / best["examples"]
        (here / RUN / "best.json").write_text(json.dumps(best | {"score": score}))
        if fits:
            export(RUN, f"out{moved}")
        else:
            with pytest.raises(ExportError, match="check of the score"):
                export(RUN, f"out{moved}")


def test_a_split_too_large_is_checked_in_part_and_that_is_said(here: Path, monkeypatch):
    monkeypatch.setattr(checked_rows, "MOST_MACS", 1.0)
    monkeypatch.setattr(checked_rows, "MIXED", 24)
    done = export(RUN, "out")
    (found,) = done.verified
    assert (found.agreement.rows, found.score) == (24, None)
    (note,) = done.notes
    assert "the score was not measured again" in note
    assert "24 rows of the search split's 40" in (here / "out" / "README.md").read_text()


def test_a_budget_in_milliseconds_is_timed_where_it_is_meant(here: Path, timing_jobs: list[TimingJob]):
    export(RUN, "means")
    assert timing_jobs[-1].cells == [[1, 10], [8, 10]]
    best = json.loads((here / RUN / "best.json").read_text())
    run = json.loads((here / RUN / "run.json").read_text())
    run["options"]["budget"] = "12ms@batch=4,length=7"
    (here / RUN / "run.json").write_text(json.dumps(run))
    export(RUN, "out")
    assert timing_jobs[-1].cells == [[4, 7]]
    assert [json.loads(text) for text in timing_jobs[-1].subnets] == [best["subnet"]]
    card = (here / "out" / "README.md").read_text()
    assert "| forward | 1 | 10 | 1 | 0.9-1.1 | 2 (stock sdpa) | 0.500 |" in card


@pytest.mark.parametrize(
    ("kind", "predictions", "other"),
    [("single_label_classification", 2, 1), ("multi_label_classification", 6, 2), ("regression", 0, 0)],
)
def test_a_prediction_is_a_class_each_yes_or_no_or_none(kind: str, predictions: int, other: int):
    model, batch = tiny_model("bert", blocks=3, labels=1 if kind == "regression" else 3), padded_batch([4, 4])
    model.config.problem_type = kind
    supernet = Supernet(model)
    want = torch.tensor([[2.0, -1.0, 0.5], [3.0, 1.0, -2.0]])[:, : 1 if kind == "regression" else 3]
    got = want.clone()
    got[0] = -got[0] if kind != "multi_label_classification" else torch.tensor([-2.0, -1.0, -0.5])
    written = Written(Path(), supernet.full, (), 1e-5, lambda **checked: checked["verified"])
    found = agreement(supernet, written.subnet, written.tolerance, [batch], [want], [got])
    assert (found.predictions, found.other) == (predictions, other)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_an_export_is_timed_beside_its_full_model(tmp_path, name: str, monkeypatch):
    """Phases, cells and ratios; the full model's path is named."""
    supernet = Supernet(tiny_model("bert", blocks=3) if name == "bert" else tiny_decoder(name))
    subnets = [supernet.full]
    if name == "bert":
        subnets.append(Subnet.of_encoder([0, 1, 2], [9, 4, 2], 24))
    folders = [tmp_path / str(index) for index in range(len(subnets))]
    for subnet, folder in zip(subnets, folders, strict=True):
        write_huggingface(supernet, TOKENIZER, subnet, folder, PROVENANCE)
    monkeypatch.setattr("ldsearch.export.timing._opened", lambda folder: supernet)
    monkeypatch.setattr("ldsearch.export.timing.clock_of_models", lambda device: Clock(1, 0))
    job = TimingJob("", [subnet.to_json() for subnet in subnets], [(1, 6), (2, 5)], [""] * len(subnets))
    found = [list(map(MeasuredLatency.from_dict, each)) for each in timings(folders, job)["latencies"]]
    phases = ["forward"] if name == "bert" else ["prefill", "per token"]
    cells = [(phase, batch, length) for batch, length in ((1, 6), (2, 5)) for phase in phases]
    for subnet, lines in zip(subnets, found, strict=True):
        assert sorted((each.phase, each.batch, each.length) for each in lines) == sorted(cells)
        assert {each.subnet for each in lines} == {subnet}
        assert all(each.ratio == pytest.approx(each.median_ms / each.full_ms) for each in lines)
        assert {each.full_runtime for each in lines} <= {"eager", "own"}


def test_a_run_that_moved_with_its_supernet_is_timed_there(here: Path, tmp_path, timing_jobs):
    shutil.move(here / "runs", tmp_path / "moved")
    export(tmp_path / "moved/tiny-evolve", "out")
    assert Path(timing_jobs[-1].supernet) == (tmp_path / "moved/tiny").resolve()
