"""compress: from a fine-tuned model and texts to one file, with labels and without."""

import io
import runpy
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

import ldsearch as ld
from ldsearch.compression import compress
from ldsearch.compression import search as short_search
from ldsearch.compression.search import Found
from ldsearch.compression.sentences import on_choice
from ldsearch.errors import ExportError
from ldsearch.options import Compress
from ldsearch.runs.compressed import Compressed
from ldsearch.runs.run import Run
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import save_model
from ldsearch.trials.goal import Goal
from ldsearch.work.interruption import Interrupted
from tests.cli.conftest import Ldsearch, lines, read, reviews
from tests.tiny import tiny_encoder_decoder

pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[2]
RUN = ("compress", "tuned", "--data", "more.csv", "--name", "small", "--max-length", 16)


@pytest.fixture
def small(ldsearch: Ldsearch, tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run printed that is made once; the place has a copy of it, runs/small."""
    kept = tmp_path_factory.getbasetemp() / "compressed-once"
    if not kept.exists():
        outcome = ldsearch.done(*RUN, "--budget", 0.7)
        Path("runs/said.txt").write_text(outcome.out)
        shutil.copytree("runs", kept)
    shutil.copytree(kept, "runs", dirs_exist_ok=True)
    return Path("runs/said.txt").read_text()


def inputs_of(texts: list[str]) -> dict[str, torch.Tensor]:
    tokenizer = AutoTokenizer.from_pretrained("tuned")
    return dict(tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=16))


def stock(texts: list[str]) -> np.ndarray:
    """The logits of the model as transformers runs it."""
    model = AutoModelForSequenceClassification.from_pretrained("tuned").eval()
    with torch.no_grad():
        return model(**inputs_of(texts)).logits.numpy()


def answers(logits: np.ndarray) -> list[str]:
    names = AutoConfig.from_pretrained("tuned").id2label
    return [names[best] for best in logits.argmax(-1).tolist()]


def test_one_command_makes_a_checked_file_and_another_budget_is_answered_from_what_is_known(
    ldsearch: Ldsearch, tuned: Path, small: str
) -> None:
    folder = tuned / "runs/small"
    found = read(folder / "compress.json")
    full, chosen, *others = found["points"]
    assert full["macs"] == 1
    assert 0 < chosen["macs"] <= 0.7
    assert all(abs(point["macs"] / chosen["macs"] - 1) > 0.15 for point in others)

    # No text is in two files, and every row comes from the data as it was.
    given = pd.read_csv("more.csv")
    used = [lines(folder / f"data/{name}.jsonl") for name in ("train", "validation", "test")]
    assert not set.intersection(*(set(own["text"]) for own in used))
    known = set(zip(given["text"], given["label"], strict=True))
    assert all(set(zip(own["text"], own["label"], strict=True)) <= known for own in used)

    # The scores are those of rows that chose nothing, by the file that was written.
    rows = used[2]
    served, whole = ld.load(found["model"])(**inputs_of([*rows["text"]])).logits, stock([*rows["text"]])
    right, of_full = (np.mean(rows["label"] == answers(logits)) for logits in (served.numpy(), whole))
    assert right == pytest.approx(chosen["score"])
    assert chosen["score"] - chosen["difference"]["mean"] == pytest.approx(of_full, abs=1e-6)

    # The other verbs open the folder as the run that is in it.
    run = Run.open(folder)
    assert run.folder == folder / "search"
    assert run.identity["scored_in"] == found["runtime"]
    shown = ldsearch("info", "runs/small").out
    said = [line for line in small.splitlines() if line.startswith(("chosen", "full model", "use it"))]
    assert len(said) >= 3
    assert all(line in shown for line in said)
    assert "0.7" in ldsearch("info", folder, "--budget", "0.7").out
    ldsearch.done("report", folder)
    page = Path("report.html").read_text()
    assert "<title>Report: small</title>" in page
    assert page.index(f"{chosen['score']:.4f}") < page.index("search space")
    ldsearch.done("evaluate", folder)

    ldsearch.done(*RUN, "--budget", 0.5)
    assert read(folder / "compress.json")["points"][1]["macs"] <= 0.5
    after = Run.open(folder)
    # One of each shape that just meets this budget, what is below the other's range, and the search's own.
    assert after.fields["this_call"]["search"]["measured"] <= 8
    assert after.fields["this_call"]["search"]["measured"] < len(after.trials)
    Path("more.csv").write_text(reviews(160, seed=5))
    assert "holds another run, which differs in data" in ldsearch.refused(*RUN, "--budget", 0.7)


def test_a_service_takes_of_the_same_file_what_fits_its_time(
    tuned: Path, small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cheapest, *_, dearest = read(tuned / "runs/small/model/budgets.json")["rows"]
    words = ["serve_elastic.py", "runs/small/model", "--milliseconds", "1e9", "0"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the film was fine\na sad and cold book\n"))
    runpy.run_path(str(ROOT / "examples/serve_elastic.py"), run_name="__main__")
    for line, row in zip(capsys.readouterr().out.splitlines(), (dearest, cheapest), strict=True):
        assert f"blocks keep {row['keep']}" in line


def test_a_score_in_int8_is_not_asked_of_an_export_that_runs_in_fp32(tuned: Path, small: str) -> None:
    run, exporting = Run.open(tuned / "runs/small"), import_module("ldsearch.export.export")
    ways = ({"format": "hf"}, {"format": "onnx", "runtime": run.identity["scored_in"]})
    for how, scores in zip(ways, ([], [run.best.score]), strict=True):
        stopped = mock.patch.object(exporting, "verify_fresh", side_effect=ExportError("seen"))
        with stopped as verify, pytest.raises(ExportError, match="seen"):
            ld.export_model(folder=str(run.folder), output="elsewhere", **how)
        assert [*verify.call_args.args[2].recorded] == scores


def test_without_labels_the_models_own_answers_are_the_target(ldsearch: Ldsearch, tuned: Path) -> None:
    ldsearch.done("compress", "tuned", "--data", "texts.txt", "--max-length", 16, "--budget", 0.9)
    folder = tuned / "runs/tuned-compressed"
    found = read(folder / "compress.json")
    for name in ("train", "validation", "test"):
        rows = lines(folder / f"data/{name}.jsonl")
        assert answers(stock([*rows["text"]])) == [*rows["label"]]
    full, chosen, *_ = found["points"]
    assert full["score"] == pytest.approx(1, abs=0.05)
    # Agreement with itself in fp32 is whole: what is lost is what differs.
    assert chosen["score"] - chosen["difference"]["mean"] == pytest.approx(1)
    assert "agreement" in found["metric"]
    assert any("no labels" in sentence for sentence in found["words"])

    # What is chosen next takes the place of what was exported.
    first = Run.open(folder).best.subnet
    ldsearch.done("compress", "tuned", "--data", "texts.txt", "--max-length", 16, "--budget", 0.3)
    kept = Subnet.from_fields(read(folder / "model/ldsearch_subnet.json")["subnet"])
    assert kept == Run.open(folder).best.subnet != first


def test_what_was_stopped_goes_on_and_ends_the_same(ldsearch: Ldsearch, tuned: Path, small: str) -> None:
    folder = (tuned / "runs/small").rename(tuned / "runs/whole").with_name("small")
    with mock.patch.object(short_search, "run_search", side_effect=Interrupted(15)):
        outcome = ldsearch(*RUN, "--budget", 0.7)
    assert outcome.code == 143
    assert "run the same command again" in outcome.err
    known = {path: path.stat().st_mtime_ns for path in folder.glob("supernet/*")}
    assert known
    ldsearch.done(*RUN, "--budget", 0.7)
    assert {path: path.stat().st_mtime_ns for path in known} == known
    one, other = (Run.open(tuned / "runs" / name) for name in ("whole", "small"))
    assert one.best.subnet == other.best.subnet
    assert one.best.held_out == other.best.held_out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compress", "tuned"), "--data texts.csv; some hundreds are enough"),
        (("compress", "tuned", "--data", "more.csv", "--label-column", "stars"), "stars"),
        (("compress", "--data", "more.csv"), "name the fine-tuned model"),
        (("compress", "tuned", "--data", "few.csv"), "has 30 rows: --data needs 50"),
        (("compress", "tuned", "--data", "strange.csv"), "the model classifies"),
        (("compress", "bart", "--data", "more.csv"), "BartForSequenceClassification: take train-supernet"),
        ((*RUN, "--budget", 0.4, "--at-least", "full"), "give one of them"),
        ((*RUN, "--blocks", 2), "takes a training: say for how long, as by --train 15"),
        ((*RUN, "--blocks", 3, "--train", 1), "--blocks must lie in 1..2 for this model, not 3"),
        ((*RUN, "--budget", "0.0001ms@batch=1,length=16"), "ms here in onnx, the full model "),
        ((*RUN, "--budget", "0.5x"), "would be slower than the full model"),
        ((*RUN, "--runtime", "own"), "unknown runtime of files 'own': use one of onnx, "),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    ldsearch: Ldsearch, tuned: Path, arguments: tuple[object, ...], message: str
) -> None:
    Path("few.csv").write_text(reviews(30))
    Path("strange.csv").write_text(reviews(100).replace(",good", ",purple"))
    tokenizer = AutoTokenizer.from_pretrained("tuned")
    decoding = tiny_encoder_decoder("bart", "SequenceClassification", vocab_size=len(tokenizer))
    save_model(decoding, tokenizer, Path("bart"))
    assert message in ldsearch.refused(*arguments)
    assert not Path("runs").exists() or "ms@" in str(arguments)


def test_from_python_a_list_gives_a_model_that_predicts_and_frames_and_datasets_are_read(tuned: Path) -> None:
    frame = pd.read_csv("more.csv")
    model = ld.compress("tuned", list(frame["text"]), budget=0.7, name="a", max_length=16)
    assert model.table["MACs"].iloc[0] == "1.00"
    tokens = AutoTokenizer.from_pretrained("tuned")("the film was fine", return_tensors="pt")
    assert model(**tokens).logits.shape == (1, 2)

    def stopped(folder: Path, how: Compress) -> None:
        pd.testing.assert_frame_equal(pd.read_json(how.data, lines=True), frame)
        raise Interrupted(15)

    for rows in (frame, datasets.Dataset.from_pandas(frame)):
        with mock.patch("ldsearch.commands.compress.compress_into", stopped), pytest.raises(Interrupted):
            ld.compress("tuned", rows)


def test_labelled_test_rows_beside_unlabelled_texts_score(ldsearch: Ldsearch, tuned: Path) -> None:
    Path("both").mkdir()
    rows = pd.read_csv("more.csv")
    rows.loc[:110, ["text"]].to_csv("both/train.csv", index=False)
    rows.loc[110:].to_csv("both/test.csv", index=False)
    ldsearch.done("compress", "tuned", "--data", "both", "--budget", 0.7, "--max-length", 16)
    folder = tuned / "runs/tuned-compressed"
    found, held = read(folder / "compress.json"), lines(folder / "data/test.jsonl")
    assert found["metric"] == "accuracy"
    right = np.mean(held["label"] == answers(stock([*held["text"]])))
    assert found["points"][0]["score"] == pytest.approx(right, abs=0.05)
    assert "what chose had no labels" in " ".join(found["words"])
    chose = lines(folder / "data/validation.jsonl")
    assert [*chose["label"]] == answers(stock([*chose["text"]]))


@pytest.mark.parametrize(
    ("ms", "says"),
    [
        ((9.0, 10.0), "nothing is gained: inputs of 14 tokens"),
        ((10.0, 5.0), "at 1x14 nothing is gained"),
        ((8.5, 5.0), "at 1x14 next to nothing is gained"),
        ((5.0, 4.0), ""),
    ],
)
def test_where_nothing_is_gained_the_words_say_what_to_serve(ms: tuple[float, float], says: str) -> None:
    cells = ("1x14", "8x14")
    full = {"name": "full model, onnx", "ms": dict(zip(cells, (9.0, 10.0), strict=True))}
    chosen = {"name": "chosen", "ms": dict(zip(cells, ms, strict=True))}
    done = Compressed([full, chosen], "accuracy", (), Path("runs/x"), "onnx", 7.0)
    best = SimpleNamespace(selector="budget 0.5", subnet=Subnet.of_encoder(range(6)))
    choice = Found(SimpleNamespace(best=best), "found by search", None)  # type: ignore[arg-type]
    words = " ".join(on_choice(done, choice, Goal()))
    assert says in words
    for advice in ("--budget 2x", "--blocks 4", "--format onnx --runtime onnx"):
        assert (advice in words) == bool(says)
    # At batch 8 four milliseconds may take 4.2.
    words = " ".join(on_choice(done, choice, Goal.parse(budget="4ms@batch=8,length=14")))
    assert (f"at 8x14 it took {ms[1]:.3g} ms, and 4 were asked for" in words) == (ms[1] > 4.2)
    assert "--budget 2x" not in words


def test_where_every_ratio_loses_too_much_nothing_is_dropped(
    ldsearch: Ldsearch, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compress, "MARGIN_OF_AGREEMENT", -1.0)  # all lose more than a gain of 1
    ldsearch.done("compress", "tuned", "--data", "texts.txt", "--max-length", 16)
    found = read(tuned / "runs/tuned-compressed/compress.json")
    full, chosen, *others = found["points"]
    assert chosen["macs"] == pytest.approx(1, abs=0.01)
    assert chosen["score"] == full["score"] == 1
    assert others
    assert all(point["macs"] <= 0.8 for point in others)
    text = " ".join(found["words"])
    assert "nothing is dropped: every constant ratio loses more" in text
    assert "ldsearch export MODEL OUTPUT --subnet full --format onnx --runtime onnx" in text
    texts = [*lines(Path("runs/tuned-compressed/data/test.jsonl"))["text"]]
    own = AutoTokenizer.from_pretrained("runs/tuned-compressed/model")  # cuts as the command was told
    inputs = own([*texts, "the film was fine " * 20], return_tensors="pt", padding=True, truncation=True)
    assert inputs["input_ids"].shape[1] == 16
    inputs = {name: one[:-1] for name, one in inputs.items()}
    served = ld.load("runs/tuned-compressed/model")(**inputs).logits.numpy()
    lengths = inputs["attention_mask"].sum(1).numpy()
    shorter = lengths < lengths.max()  # the longest lack a token
    assert shorter.sum() > 5
    np.testing.assert_allclose(served[shorter], stock(texts)[shorter], atol=1e-4)
