"""compress with a training: by the model itself, and with blocks left out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

import ldsearch as ld
from ldsearch.bench import Bench
from ldsearch.compression import compress as compressing
from ldsearch.runs.run import Run
from ldsearch.search.rules import every_other
from ldsearch.subnet import Subnet
from ldsearch.training import recover
from tests.cli.conftest import Ldsearch, lines, read
from tests.cli.test_compress import RUN


def test_a_training_by_the_model_itself_is_taken_where_it_is_better(ldsearch: Ldsearch, tuned: Path) -> None:
    ldsearch.done(*RUN, "--budget", 0.5, "--train", 0.02)
    folder = tuned / "runs/small"
    plain, trained = (Run.open(folder / name) for name in ("search", "search-trained"))
    assert trained.best.costs["macs"] <= plain.best.costs["macs"] * 1.01
    # The full model that it is compared with has other weights, and is in no file of these.
    full = trained.best.full_costs["macs"]
    assert all(point.costs["macs"] < full for point in trained.own_points())
    assert {one.subnet for one in plain.points()} == {one.subnet for one in plain.own_points()}
    better = trained.best.score > plain.best.score
    found = read(folder / "compress.json")
    assert found["search"] == ("search-trained" if better else "search")
    assert Run.open(folder).best.subnet == (trained if better else plain).best.subnet
    assert ("was not taken" in " ".join(found["words"])) is not better
    training = read(folder / "trained/training.json")["identity"]
    assert training["teacher"] == "tuned"
    taught = read(folder / "taught.json")
    assert str(taught["steps"]) in training["trainer"]
    assert taught["subnet"] is None
    assert "at" not in training
    # Every row that does not score is trained on.
    assert sum(len(lines(folder / f"data/{name}.jsonl")) for name in ("train", "validation", "test")) == 160

    # Where nothing is asked for, losses are counted from the model as it was given, and MACs decide.
    ldsearch.done(*RUN, "--train", 0.02)
    given, other = (Bench.open(folder / name, runs=folder) for name in ("supernet", "trained"))
    rows = [replace(one, runtime="onnx") for one in (given, other)]
    best = Run.open(folder / "search-trained").best.subnet
    lost = rows[0].evaluator.statistics(given.full) - rows[1].evaluator.statistics(best)
    means = np.random.default_rng(0).choice(lost, (4_000, len(lost))).mean(1)
    assert replace(rows[1], beside=rows[0]).loss_bound(best) == pytest.approx(
        np.quantile(means, 0.95),
        abs=1.01 / len(lost),  # one row more or less
    )
    assert rows[1].loss_bound(other.full) == 0
    assert Run.open(folder / "search-trained").best.selector == "at least full-0.01"
    # A margin that nothing exceeds takes the cheapest of either.
    ldsearch.done(*RUN, "--train", 0.02, "--at-least", "full-100%")
    runs = [Run.open(folder / name) for name in ("search", "search-trained")]
    assert {run.best.selector for run in runs} == {"at least full-100%"}
    cheapest = min(runs, key=lambda run: run.best.costs["macs"])
    assert Run.open(folder).best.costs["macs"] == cheapest.best.costs["macs"]


def test_what_only_fewer_blocks_meet_is_trained_for(ldsearch: Ldsearch, tuned: Path) -> None:
    folder = tuned / "runs/small"
    refused = ldsearch.refused(*RUN, "--budget", 0.25)
    assert "meets the budget 0.25: the cheapest costs" in refused
    ldsearch.done(*RUN, "--budget", 0.25, "--train", 0.02, "--blocks", 1, "--name", "one")
    found = read(folder.with_name("one") / "compress.json")
    assert found["points"][1]["macs"] <= 0.25
    assert "without, nothing is within it" in " ".join(found["words"])
    outcome = ldsearch("compress", *RUN[1:], "--budget", 0.05, "--train", 0.02, "--name", "none")
    assert "meets the budget 0.05" in outcome.err


def test_with_blocks_left_out_everything_is_told_of_the_model_as_it_was_given(
    ldsearch: Ldsearch, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressing, "_rank", lambda found, better: found.run.folder.name == "search-trained")
    outcome = ldsearch.done(*RUN, "--train", 0.02, "--blocks", 2)
    folder = tuned / "runs/small"
    found, run = read(folder / "compress.json"), Run.open(folder)
    given, own = (Bench.open(folder / name, runs=folder) for name in ("supernet", "trained"))
    assert own.supernet.blocks == 2 < given.supernet.blocks
    assert "2 of the 3 blocks" in outcome.out.replace("\n ", "")

    # MACs are those of the whole model with these blocks, lengths and no others.
    stack = run.best.subnet.stacks()["encoder"]
    alike = Subnet(replace(stack, blocks=every_other(3, 2)))
    macs, full = given.macs([alike, given.full])
    assert run.best.costs["macs"] == pytest.approx(macs)
    assert run.best.full_costs["macs"] == pytest.approx(full)
    assert found["points"][1]["macs"] == pytest.approx(macs / full)
    (line, *_), *_ = (row["latency"] for row in read(folder / "model/budgets.json")["rows"])
    assert 0 < line["macs_ratio"] < 0.75
    # So are scores, of the run, of what was written, and of other verbs.
    first = run.trials.iloc[0]
    assert Subnet.from_json(first["subnet"]) == given.full
    assert first["score"] == pytest.approx(given.evaluator([given.full])[0].score.value)
    assert given.held_out is not None
    whole = given.held_out([given.full])[0].score.value
    ldsearch.done("info", folder)
    ldsearch.done("report", folder)
    assert f"{whole:.4f}" in ldsearch.done("evaluate", folder).out
    rows = [*lines(folder / "data/test.jsonl")["text"]]
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    served = ld.load(folder / "model", budget="0.7")(**tokenizer(rows, return_tensors="pt", padding=True))
    assert np.isfinite(served.logits.numpy()).all()

    # What was chosen is trained on alone, taught by the model as it was given, and evaluated against it.
    teachers = []

    def spied(*given, teacher, **named):
        teachers.append(teacher.blocks)
        return make_trainer(*given, teacher=teacher, **named)

    make_trainer = recover.make_trainer
    monkeypatch.setattr(recover, "make_trainer", spied)
    told = ldsearch.done("train-supernet", "--model", folder, "--max_steps", 2).out
    assert teachers == [3]
    alone = folder.with_name("small-recovered")
    assert f"{whole:.4f}; recovered minus full" in told
    assert f"{whole:.4f}" in ldsearch.done("evaluate", alone).out
    ldsearch.done("export", alone, alone.with_name("alone"), "--format", "onnx", "--runtime", "onnx")
