"""Every kind of task from the command line: trained, searched, scored on other rows, exported, loaded."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import ldsearch as package
from tests.cli.conftest import CONFIG, EPOCHS, Ldsearch, read, rows_of, weights, write

# The rows of each task, and its metric.
CASES = {
    "regression": ("pairs", "pearson"),
    "multi-label": ("multi-label", "micro-f1"),
    "tokens": ("tokens", "f1"),
    "questions": ("questions", "f1"),
    "masked": ("masked", "perplexity"),
}


def train(ldsearch: Ldsearch, task: str, *more: object) -> None:
    flags = ("--keep-overlap", "--max-length", 32, "--max_steps", 3, "--per_device_train_batch_size", 8)
    ldsearch.done("train-supernet", "--task", task, "--data", "rows.jsonl", *flags, *more)


@pytest.mark.parametrize("task", CASES)
def test_a_task_goes_all_the_way(ldsearch: Ldsearch, bare: Path, task: str) -> None:
    rows, metric = CASES[task]
    write(bare / "rows.jsonl", rows_of(rows))
    stride = ("--stride", 4) if task == "questions" else ()
    train(ldsearch, task, "--model", "config.json", "--name", "net", *stride)
    assert list(read(bare / "runs/net/supernet.json")["metrics"]) == [f"search_{metric}"]
    ldsearch.done("evolve", "--supernet", "runs/net", "--budget", "0.9", "--evaluations", 4)
    best = read(bare / "runs/net-evolve/best.json")
    assert (best["metric"], best["held_out"]["split"]) == (metric, "report")
    assert metric in ldsearch.done("evaluate", "runs/net-evolve").out
    if task not in ("tokens", "masked"):
        return  # their exports are alike
    ldsearch.done("export", "runs/net-evolve", "exported")
    model, tokenizer = package.load("exported"), AutoTokenizer.from_pretrained("exported")
    output = model(**tokenizer("fine day", return_tensors="pt"))
    assert torch.isfinite(next(iter(output.values()))).all()


def test_pretrained_with_layerdrop_pruned_and_fine_tuned_without(ldsearch: Ldsearch, bare: Path) -> None:
    write(bare / "rows.jsonl", rows_of("masked"))
    (bare / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 4}))
    drop = ("--strategy", "layerdrop", "--layer-drop", "0.5")
    train(ldsearch, "masked", "--model", "config.json", "--name", "pretrained", *drop)
    select = ("evolve", "--supernet", "runs/pretrained", "--keep", 2)
    for strategy in ("every-other", "influence"):
        ldsearch.done(*select, "--strategy", strategy)
    assert len(read(bare / "runs/pretrained-influence/run.json")["signal"]) == 4
    ldsearch.done("export", "runs/pretrained-every-other", "two-blocks")
    write(bare / "rows.jsonl", rows_of("pairs"))
    train(ldsearch, "regression", "--model", "two-blocks", "--strategy", "plain", "--name", "tuned")
    record = read(bare / "runs/tuned/supernet.json")
    assert (record["blocks"], record["layer_drop"]) == (2, 0.0)


def test_a_separate_teacher_or_none_trains_another_model_than_the_batch_itself(
    ldsearch: Ldsearch, place: Path
) -> None:
    start = ("train-supernet", "--data", "reviews.csv", "--model", "runs/tiny", "--max-length", 16, *EPOCHS)
    mixed = ("--teacher", "runs/tiny", "--label-share", "0.5", "--state-weight", 1)
    taught = []
    for name, flags in (("batch", ()), ("none", ("--teacher", "none")), ("folder", mixed)):
        ldsearch.done(*start, *flags, "--name", name)
        taught.append(weights(place / "runs" / name))
    for one, other in itertools.combinations(taught, 2):
        assert any(not torch.equal(one[name], other[name]) for name in one if "layer" in name)
