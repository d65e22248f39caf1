"""Grids of depth configurations: the numbers of stock models, resuming, comparing, refusing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ldsearch import Bench
from ldsearch.commands.binding import read_trainer
from ldsearch.commands.grid import (
    GridOptions,
    GridResult,
    grid_metric,
    load_grid,
    mean_difference,
    measure_grid,
)
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.decoding import Decoding
from ldsearch.errors import DataError, RunError
from tests.translators import sentences

MODEL = {
    "model_type": "pegasus",
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 4,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A supernet of 2 x 4 blocks after two steps of flexible depth."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "config.json").write_text(json.dumps(MODEL))
    rows = [{"source": text, "target": text[::-1]} for text in dict.fromkeys(sentences(60))]
    for name, part in (("train", rows[:30]), ("validation", rows[30:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    flags = ("--max_steps", "2", "--disable_tqdm", "True")
    options = TrainSupernet(
        data=str(folder / "train.jsonl"),
        task="translation",
        validation=str(folder / "validation.jsonl"),
        keep_overlap=True,
        model=str(folder / "config.json"),
        strategy="flexible-depth",
        max_length=24,
        trainer=read_trainer(list(flags)),
    )
    return train_supernet(folder / "runs" / "flexible", options)


@pytest.fixture(scope="module")
def bench(trained: Path) -> Bench:
    return Bench.open(trained, "report")


def test_the_record_says_what_was_trained(bench):
    assert bench.record.depths == {"encoder": 2, "decoder": 4}
    assert bench.record.training["depth_tasks"]["assignment"] == "optimal"
    assert bench.record.workload["written"]


def test_nats_are_the_stock_models_own_loss(bench, tmp_path):
    found = measure_grid(bench, tmp_path / "g", GridOptions())
    assert {*found.scores} == {(m, n) for m in (1, 2) for n in (1, 2, 4)}
    model = AutoModelForSeq2SeqLM.from_pretrained(bench.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(bench.folder)
    nats = tokens = 0.0
    for source, (target, *_) in zip(
        bench.task.rows("report").sources, bench.task.rows("report").targets, strict=True
    ):
        batch = tokenizer(source, truncation=True, max_length=24, return_tensors="pt")
        labels = tokenizer(text_target=target, truncation=True, max_length=24, return_tensors="pt")[
            "input_ids"
        ]
        labels[0, -1] = tokenizer.eos_token_id
        with torch.no_grad():
            loss = model(**batch, labels=labels).loss
        nats, tokens = nats + float(loss) * labels.numel(), tokens + labels.numel()
    assert found.scores[2, 4] == pytest.approx(nats / tokens, rel=1e-5)


def test_what_is_written_can_be_read_and_compared(bench, tmp_path):
    first = measure_grid(bench, tmp_path / "a", GridOptions(assignment="head"))
    again = load_grid(tmp_path / "a")
    assert again.scores == first.scores
    other = measure_grid(bench, tmp_path / "b", GridOptions(assignment="left"), baseline=again)
    gap = mean_difference(other, again)
    by_hand = np.mean([other.scores[key] - first.scores[key] for key in first.scores])
    assert gap.mean == pytest.approx(by_hand)
    assert gap.low <= gap.mean <= gap.high
    table = pd.read_csv(tmp_path / "b" / "grid.csv")
    assert list(table["baseline"]) == pytest.approx(list(first.scores.values()))
    assert (table["macs"].iloc[-1] > table["macs"].iloc[:-1]).all()
    assert all((tmp_path / "b" / f"{name}.png").stat().st_size > 5_000 for name in ("grid", "pruning_ratios"))


def test_decoded_texts_are_kept_and_not_decoded_again(bench, tmp_path, monkeypatch):
    how = GridOptions("bleu", decoding=Decoding(max_length=8), limit=5)
    first = measure_grid(bench, tmp_path / "g", how)
    texts = json.loads((tmp_path / "g" / "1-2.json").read_text())
    assert len(texts) == 5
    monkeypatch.setattr("ldsearch.commands.generation.generate", lambda *_: pytest.fail("decoded again"))
    assert measure_grid(bench, tmp_path / "g", how).scores == first.scores
    with pytest.raises(RunError, match="holds another run"):
        measure_grid(bench, tmp_path / "g", GridOptions("bleu", decoding=Decoding(max_length=9), limit=5))


def test_grids_of_other_examples_or_depths_are_not_compared():
    metric = grid_metric("nats")
    grid = GridResult(metric, "a", {(1, 1): np.ones((3, 2))})
    for other in (
        GridResult(metric, "b", grid.statistics),
        GridResult(grid_metric("perplexity"), "a", grid.statistics),
        GridResult(metric, "a", {(1, 2): np.ones((3, 2))}),
    ):
        with pytest.raises(DataError, match="other examples, metrics or depths"):
            mean_difference(grid, other)


def test_what_is_no_grid_is_refused(tmp_path):
    with pytest.raises(RunError, match="holds no grid"):
        load_grid(tmp_path)
    with pytest.raises(DataError, match="no metric 'meteor'"):
        grid_metric("meteor")
