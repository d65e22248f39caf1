"""The examples run, at tiny size."""

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
import torch
from optuna.trial import TrialState
from transformers import AutoTokenizer

import ldsearch
from ldsearch.costs.named import COSTS
from ldsearch.search.strategies import SEARCHES, Search
from ldsearch.testing import SearchContract
from tests import fresh
from tests.cli.conftest import CONFIG, reviews

ROOT = Path(__file__).parent.parent
Example = Callable[..., list[str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a configuration, and the supernet runs/small, whose blocks and tokens may be left out."""
    place = tmp_path_factory.mktemp("examples")
    (place / "reviews.csv").write_text(reviews(200))
    (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        ldsearch.train_supernet(
            data="reviews.csv",
            model="config.json",
            max_length=16,
            layer_drop=(0.2,),
            trainer={"max_steps": 2},
            name="small",
        )
    return place


@pytest.fixture
def example(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Example:
    """Run an example in a copy of the trained place and return the lines that it prints."""
    place = tmp_path / "place"
    shutil.copytree(trained, place)
    monkeypatch.chdir(place)

    def run(name: str, *words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *words])
        capsys.readouterr()
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_examples_are_short_enough_to_read():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert len(lengths) == 6
    assert {name for name, lines in lengths.items() if lines > 60} == {"tune.py"}


def test_a_csv_is_trained_searched_exported_and_labels_a_text(example: Example) -> None:
    words = ("--model", "config.json", "--budget", "0.7", "--evaluations", "8")
    text = "a fine and kind film"
    last = example("search_csv.py", "reviews.csv", *words, "--max_steps", "2", "--text", text)[-1]
    run = ldsearch.Run.open("runs/reviews-search")
    assert run.trials["macs_share"].iloc[0] == 1
    chosen = ldsearch.Subnet.from_json(
        json.dumps(json.loads(Path("runs/reviews-search/best.json").read_text())["subnet"])
    )
    assert run.trials.set_index("subnet").loc[chosen.to_json(), "macs_share"] <= 0.7
    bench = ldsearch.Bench.open("runs/reviews")
    batch = AutoTokenizer.from_pretrained("runs/reviews")(text, return_tensors="pt")
    with torch.inference_mode():
        odds = bench.supernet(dict(batch), chosen)[0].softmax(-1)
    assert f"{bench.supernet.model.config.id2label[int(odds.argmax())]} {float(odds.max()):.2f}" in last
    assert example("search_csv.py", "reviews.csv", *words, "--text", text)[-1] == last  # goes on where it was


def test_a_cost_of_ones_own_is_searched_and_kept_within(example: Example) -> None:
    try:
        example("own_cost.py", "runs/small", "--share", "0.6", "--evaluations", "12", "--per-block", "1")
        trials = ldsearch.Run.open("runs/joules").trials
    finally:
        COSTS.remove("joules")
    full, best = trials["joules"].iloc[0], json.loads(Path("runs/joules/best.json").read_text())["subnet"]
    lengths = ldsearch.Bench.open("runs/small").evaluator.encoded.workload
    mean = sum(n * count for n, count in lengths.histogram) / sum(count for _, count in lengths.histogram)
    assert full == pytest.approx(3 + 3 * 0.0004 * mean)
    assert len(best["encoder"]["blocks"]) == 1  # a block costs a joule, tokens next to nothing
    ordered = trials.sort_values("joules")
    assert ordered["joules"].iloc[0] < 0.6 * full


def test_a_strategy_of_ones_own_is_compared(example: Example) -> None:
    try:
        lines = example("own_strategy.py", "runs/small", "--evaluations", "10", "--budget", "0.8")
    finally:
        SEARCHES.remove("climb")
    assert [line.split(":")[0] for line in lines] == ["climb", "surrogate"]
    assert all("over random search" in line for line in lines)


class TestClimb(SearchContract):
    def search(self) -> Search:
        return Search(runpy.run_path(str(ROOT / "examples/own_strategy.py"))["Climb"])


def test_an_onnx_file_gives_the_labels_of_the_model_without_torch(example: Example) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    ldsearch.export_model(
        folder="runs/small", subnet="full", output="exported/small", format="onnx", runtime="onnx"
    )
    texts = ["a fine film", "the cold and cruel day of a very dark book"]
    lines = example("serve_onnx.py", str(Path("exported/small").resolve()), *texts)
    net = ldsearch.Bench.open("runs/small").supernet
    tokenizer = AutoTokenizer.from_pretrained("runs/small")
    for line, text in zip(lines, texts, strict=False):
        with torch.inference_mode():
            odds = net(dict(tokenizer(text, return_tensors="pt")), net.full)[0].softmax(-1)
        assert line == f"{net.model.config.id2label[int(odds.argmax())]} {float(odds.max()):.2f}  {text}"
    source = (ROOT / "examples" / "serve_onnx.py").read_text()
    assert "torch" not in source.replace("no torch", "")
    assert "transformers" not in source


@pytest.mark.slow
def test_a_study_of_trainings_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reviews.csv").write_text(reviews())
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    words = "reviews.csv --model config.json --evaluations 5 --low 0.8 --max_steps 2 --trials"
    monkeypatch.chdir(tmp_path)

    def tune(trials: int) -> str:
        code = f"import runpy; runpy.run_path({str(ROOT / 'examples/tune.py')!r}, run_name='__main__')"
        done = fresh.program(code, *words.split(), trials)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def load() -> optuna.Study:
        return optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path}/runs/tune/tune.db")

    tune(1)
    (first,) = load().trials
    interrupted = load().ask(first.distributions)
    last = tune(2).splitlines()[-1]
    study = load()
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    assert study.trials[0].value == first.value
    assert study.trials[1].params == interrupted.params
    assert f"trial {study.best_trial.number}," in last
    assert f"{study.best_value:.4f}" in last


def test_a_server_takes_cheaper_rows_while_batches_take_longer_than_the_folder_says(tmp_path: Path) -> None:
    timed = ((2.0, 10.0), (4.0, 20.0))  # of two rows, at batches of 1 and 8
    rows = [
        {"keep": [place], "latency": [{"batch": 1, "median_ms": one}, {"batch": 8, "median_ms": eight}]}
        for place, (one, eight) in enumerate(timed)
    ]
    (tmp_path / "budgets.json").write_text(json.dumps({"rows": rows}))
    pace = runpy.run_path(str(ROOT / "examples/serve_elastic.py"))["Pace"](tmp_path)
    assert [pace.row_within(limit, 8)["keep"] for limit in (25, 15, 5)] == [[1], [0], [0]]
    assert pace.row_within(41, 16)["keep"] == [1]
    for _ in range(20):
        pace.took(rows[1], 8, 40.0)  # twice as long
    assert pace.slower == pytest.approx(2, abs=0.02)
    assert [pace.row_within(limit, 8)["keep"] for limit in (41, 25)] == [[1], [0]]
    for _ in range(20):
        pace.took(rows[0], 8, 10.0)
    assert pace.row_within(25, 8)["keep"] == [1]
