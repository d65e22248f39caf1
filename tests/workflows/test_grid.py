"""Grids of depth configurations: the numbers of stock models, resuming, comparing, refusing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ldsearch.errors import DataError, RunError
from ldsearch.options import Evaluate
from ldsearch.search.grid import MARKER, GridResult, grid_metric, load_grid, mean_difference, measure_grid


def options(**changes: object) -> Evaluate:
    return Evaluate(folder=Path("not read"), all_depths=True, **changes)


def test_nats_are_the_stock_models_own_loss(reported, tmp_path):
    found = measure_grid(reported, tmp_path / "g", options())
    assert {*found.scores} == {(m, n) for m in (1, 2) for n in (1, 2)}
    model = AutoModelForSeq2SeqLM.from_pretrained(reported.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(reported.folder)
    how = {"truncation": True, "max_length": 24, "return_tensors": "pt"}
    rows, nats, tokens = reported.task.rows("report"), 0.0, 0
    for source, (target, *_) in zip(rows.sources, rows.targets, strict=True):
        batch = tokenizer(source, **how)
        labels = tokenizer(text_target=target, **how)["input_ids"]
        labels[0, -1] = tokenizer.eos_token_id
        with torch.no_grad():
            loss = model(**batch, labels=labels).loss
        nats, tokens = nats + float(loss) * labels.numel(), tokens + labels.numel()
    assert found.scores[2, 2] == pytest.approx(nats / tokens, rel=1e-5)


def test_what_is_written_can_be_read_and_compared(reported, tmp_path):
    first = measure_grid(reported, tmp_path / "a", options(assignment="head"))
    again = load_grid(tmp_path / "a")
    assert again.scores == first.scores
    other = measure_grid(reported, tmp_path / "b", options(assignment="left"), baseline=again)
    gap = mean_difference(other, again)
    by_hand = np.mean([other.scores[key] - first.scores[key] for key in first.scores])
    assert gap.mean == pytest.approx(by_hand)
    assert gap.low <= gap.mean <= gap.high
    table = pd.read_csv(tmp_path / "b" / "grid.csv")
    assert list(table["baseline"]) == pytest.approx(list(first.scores.values()))
    assert (table["macs"].iloc[-1] > table["macs"].iloc[:-1]).all()
    assert all((tmp_path / "b" / f"{name}.png").stat().st_size > 5_000 for name in ("grid", "pruning_ratios"))


def test_decoded_texts_are_kept_and_not_decoded_again(reported, tmp_path, monkeypatch):
    how = options(metric="bleu", max_target=8, limit=5)
    first = measure_grid(reported, tmp_path / "g", how)
    texts = json.loads((tmp_path / "g" / "1-2.json").read_text())
    assert len(texts) == 5
    monkeypatch.setattr("ldsearch.search.generation.decode", lambda *_: pytest.fail("decoded again"))
    assert measure_grid(reported, tmp_path / "g", how).scores == first.scores
    with pytest.raises(RunError, match="holds another run"):
        measure_grid(reported, tmp_path / "g", options(metric="bleu", max_target=9, limit=5))


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
    (tmp_path / MARKER).write_text('{"identity": {"metric": "nats", "examples": "a"}}')
    (tmp_path / "statistics.npz").write_bytes(b"PK\x03\x04")  # its writing was cut short
    with pytest.raises(RunError, match="holds no grid"):
        load_grid(tmp_path)
    with pytest.raises(DataError, match="no metric 'meteor'"):
        grid_metric("meteor")
