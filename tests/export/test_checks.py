"""Planted failures: each is found by the check it is named after, what was written is gone; a tie is none."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ldsearch.errors import ExportError
from ldsearch.export import check, reader
from ldsearch.export import rows as checked_rows
from ldsearch.export.agreement import agreement, ties
from ldsearch.export.card import Written
from ldsearch.export.check import Rows, Verified, random_rows, verify, verify_fresh
from ldsearch.export.export import export
from ldsearch.export.folder import write_huggingface, write_onnx
from ldsearch.export.timing import TimingJob, timings
from ldsearch.latency.clock import Clock
from ldsearch.latency.measure import MeasuredLatency
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.saliency import LEARNED
from ldsearch.supernet.supernet import inference
from tests.export.test_export import LENGTHS, PROVENANCE, TOKENIZER
from tests.tiny import learned, padded_batch, tiny_decoder, tiny_model

RUN = "runs/tiny-evolve"


def checked(
    supernet: Supernet,
    rows: Rows,
    change: Callable[[torch.Tensor], object] = lambda logits: None,
    tolerance: float = 1e-4,
) -> Verified:
    """What is found where a reader gives the supernet's labels, and its logits once changed in place."""
    logits = [inference(supernet, batch, LENGTHS).clone() for batch in rows.batches]
    for own in logits:
        change(own)
    labels = list(supernet.model.config.id2label.values())
    answer = reader.Answer(labels, [own.numpy() for own in logits])
    written = Written(Path(), LENGTHS, ("onnxruntime",), tolerance, None)
    return verify(supernet, [written], rows, [[answer]])[0]


def test_a_fresh_process_reads_both_formats_and_says_what_it_cannot_read(tmp_path, monkeypatch, imports_once):
    monkeypatch.setattr(check, "subprocess", imports_once)
    supernet = Supernet(tiny_model("bert", blocks=3))
    rows = Rows([padded_batch([24, 5, 1]), padded_batch([9, 9])], "rows of two batches")
    exports = [
        write(supernet, TOKENIZER, LENGTHS, tmp_path / name, PROVENANCE)
        for name, write in (("hf", write_huggingface), ("onnx", write_onnx))
    ]
    found = verify_fresh(supernet, exports, rows, None, tmp_path)
    for written, name, own in zip(exports, ("ldsearch.load", "onnxruntime"), found, strict=True):
        sentence = own.describe()
        assert f"a fresh process by {name}: 5 rows of two batches, outputs within" in sentence
        assert "5 of 5 predictions the same" in sentence
        assert sentence in (written.folder / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "onnx"]  # no inputs are left behind
    model = tmp_path / "onnx" / "onnx" / "model.onnx"
    model.write_bytes(model.read_bytes()[:1000])
    with pytest.raises(ExportError, match=r"the loading failed: .* in a fresh process: .*onnx") as error:
        verify_fresh(supernet, [exports[1]], rows, None, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("number", [float("nan"), 1.0, 0.01])
def test_one_wrong_number_fails(number):
    supernet = Supernet(tiny_model("bert", blocks=3))
    said = r"of the outputs failed.* on 1 of 4 rows of random tokens.*20 9 4 of 24; nothing was written"
    with pytest.raises(ExportError, match=said):
        checked(supernet, random_rows(supernet), lambda logits: logits[1, 0].add_(number))


def test_other_predictions_fail_where_the_logits_are_close_enough():
    supernet = Supernet(tiny_model("bert", blocks=3))
    rows = Rows([padded_batch([7])], "row")
    logits = inference(supernet, rows.batches[0], LENGTHS)
    (first, second), (best, next_best) = (found[0][:2] for found in logits.topk(2))
    margin = float(first - second)

    def change(logits: torch.Tensor) -> None:
        logits[0, best] -= 0.6 * margin
        logits[0, next_best] += 0.6 * margin

    with pytest.raises(ExportError, match="check of the predictions failed"):
        checked(supernet, rows, change, 0.8 * margin / max(1.0, float(logits.abs().max())))


def test_rows_that_rounding_decides_may_move_the_score():
    supernet = Supernet(tiny_model("bert", blocks=3, labels=2))
    rows = replace(random_rows(supernet, 40), score=lambda logits: 0.5)

    def fits(moved: int) -> bool:
        """Whether the score may be so many rows away from the one that was recorded."""
        try:
            checked(supernet, replace(rows, recorded=[0.5 + moved / 40]))
        except ExportError as error:
            return "check of the score failed" not in str(error)
        return True

    assert not fits(1)
    margins = torch.cat([inference(supernet, batch, LENGTHS) for batch in rows.batches]).diff(dim=1)
    # A shift of one class's bias ties the row with the smallest margin.
    with torch.no_grad():
        supernet.model.classifier.bias[0] += float(margins[margins.abs().argmin()])
    assert [fits(moved) for moved in (1, -1, 13)] == [True, True, False]


def tying(head: str = "SequenceClassification", score: str = "column") -> tuple[Supernet, Rows]:
    """Positions mean nothing to this model: its last row's tokens, all alike, tie."""
    model = tiny_model("bert", blocks=3, head=head)
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
    batch = padded_batch([24, 12, 20])
    batch["input_ids"][2, :20] = 5
    return Supernet(learned(model).model, score), Rows([batch], "rows")


@pytest.mark.parametrize("score", ["column", "power", LEARNED])
def test_a_tie_is_seen(score):
    supernet, rows = tying(score=score)
    distinct = rows.batches[0]["input_ids"]
    distinct[0], distinct[1, :12] = torch.arange(1, 25), torch.arange(1, 13)
    assert ties(supernet, rows.batches[0], LENGTHS).tolist() == [False, False, True]
    assert not ties(supernet, rows.batches[0], Subnet.full(3)).any()


def test_a_row_that_ties_may_differ_and_no_other():
    supernet, rows = tying()
    rows.batches[0]["input_ids"][0] = torch.arange(1, 25)
    found = checked(supernet, rows, lambda logits: logits[2].neg_())
    assert found.describe().endswith("1 rows left out whose token scores tie")
    with pytest.raises(ExportError, match="of the outputs"):
        checked(supernet, rows, lambda logits: logits[0].neg_())
    tied = Rows([{name: tensor[2:] for name, tensor in rows.batches[0].items()}], "row")
    with pytest.raises(ExportError, match="wherever token scores tie"):
        checked(supernet, tied, torch.Tensor.neg_)


def test_pads_are_not_compared_and_other_shapes_are_refused():
    supernet = Supernet(tiny_model("bert", blocks=3, head="TokenClassification"))
    rows = random_rows(supernet)
    pads = ~rows.batches[0]["attention_mask"].bool()
    checked(supernet, rows, lambda logits: logits.masked_fill_(pads[..., None], 99.0))
    with pytest.raises(ExportError, match="check of the outputs failed: logits are"):
        checked(supernet, rows, lambda logits: logits.unsqueeze_(0))


@pytest.fixture
def here(timing_jobs: list[TimingJob], wild_place: Path) -> Path:
    return wild_place


def recorded(here: Path, name: str, **changes: Any) -> dict[str, Any]:
    """Fields of a file of the run, once changed."""
    path = here / RUN / name
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(fields))
    return fields


def test_a_damaged_export_is_removed(monkeypatch, here: Path):
    def write(*given: Any) -> Written:
        written = write_huggingface(*given)
        config = json.loads((written.folder / "config.json").read_text())
        config["id2label"] = dict(enumerate(reversed(config["id2label"].values())))
        (written.folder / "config.json").write_text(json.dumps(config))
        return written

    monkeypatch.setattr("ldsearch.export.export.write_huggingface", write)
    with pytest.raises(ExportError) as error:
        export(RUN, "out")
    said = "check of the predictions failed: .* calls the labels good, bad, the supernet bad, .*written"
    assert re.fullmatch(said, str(error.value))
    assert not list(here.glob("*out*"))


def test_another_score_than_the_runs_fails(here: Path):
    best = recorded(here, "best.json")
    (found,) = export("runs/tiny", "fine", subnet=json.dumps(best["subnet"])).verified
    assert found.describe().endswith(f"accuracy {best['score']:.4f}, the supernet's {best['score']:.4f}")
    recorded(here, "best.json", score=best["score"] - 1 / best["examples"])
    with pytest.raises(ExportError, match=r"check of the score failed: .*, the run recorded"):
        export(RUN, "out")
    assert not (here / "out").exists()


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
    options = recorded(here, "run.json")["options"]
    recorded(here, "run.json", options=options | {"budget": "12ms@batch=4,length=7"})
    export(RUN, "out")
    assert timing_jobs[-1].cells == [[4, 7]]
    best = recorded(here, "best.json")
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
    found = agreement(supernet, supernet.full, 1e-5, [batch], [want], [got])
    assert (found.predictions, found.other) == (predictions, other)


@pytest.mark.parametrize(
    ("model", "phases"),
    [(tiny_model("bert", blocks=3), ["forward"]), (tiny_decoder("llama"), ["prefill", "per token"])],
)
def test_an_export_is_timed_beside_its_full_model(tmp_path, model, phases, monkeypatch):
    """Phases, cells and ratios; the full model's path is named."""
    supernet = Supernet(model)
    subnets = [supernet.full, LENGTHS][: 1 + supernet.supports_lengths]
    folders = [tmp_path / str(index) for index in range(len(subnets))]
    for subnet, folder in zip(subnets, folders, strict=True):
        write_huggingface(supernet, TOKENIZER, subnet, folder, PROVENANCE)
    monkeypatch.setattr("ldsearch.export.timing._opened", lambda folder: supernet)
    monkeypatch.setattr("ldsearch.export.timing.clock_of_models", lambda device: Clock(1, 0))
    job = TimingJob("", [subnet.to_json() for subnet in subnets], [(1, 6), (2, 5)], [""] * len(subnets))
    for subnet, timed in zip(subnets, timings(folders, job)["latencies"], strict=True):
        found = list(map(MeasuredLatency.from_dict, timed))
        cells = sorted((each.phase, each.batch, each.length) for each in found)
        assert cells == sorted((phase, *cell) for phase in phases for cell in job.cells)
        assert {each.subnet for each in found} == {subnet}
        assert all(each.ratio == pytest.approx(each.median_ms / each.full_ms) for each in found)
        assert {each.full_runtime for each in found} <= {"eager", "own"}


def test_a_run_that_moved_with_its_supernet_is_timed_there(here: Path, tmp_path, timing_jobs):
    shutil.move(here / "runs", tmp_path / "moved")
    export(tmp_path / "moved/tiny-evolve", "out")
    assert Path(timing_jobs[-1].supernet) == (tmp_path / "moved/tiny").resolve()
