"""Every shipped kind of task under its contract; hidden labels, stock losses, files of other formats."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cosine
from transformers import PreTrainedTokenizerBase

from ldsearch.disk.fingerprint import digest
from ldsearch.errors import DataError
from ldsearch.supernet.heads import logits_of
from ldsearch.tasks import TASKS, DataSource, Task, load_task
from ldsearch.tasks.base import fingerprints_of
from ldsearch.tasks.tokenizer import train_bpe, train_wordpiece
from ldsearch.testing.tasks import WORDS, TaskContract, stock_model

GENERATES = ("causal", "translation", "summarisation")
# The column of the labels, and what a public test set has there.
HIDDEN: dict[str, tuple[str, Any]] = {
    "classification": ("label", -1),
    "regression": ("label", -1.0),  # STS-B's are floats
    "tokens": ("tags", None),
    "questions": ("answers", {"text": [], "answer_start": []}),
    "translation": ("target", None),
    "ranking": ("label", [-1.0, -1.0, -1.0]),
}


def rows_of(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(f"{kind} {seed}")

    def text(least: int = 6, most: int = 14) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))

    def row() -> dict[str, Any]:
        if kind == "tokens":
            words = text().split()
            return {"tokens": words, "tags": [draw.choice(["O", "B-X", "I-X"]) for _ in words]}
        if kind == "questions":
            context = text(20, 30)
            answers = {"text": [context.split()[0]], "answer_start": [0]}
            return {"context": context, "question": text(2, 4), "answers": answers}
        if kind in ("translation", "summarisation"):
            return {"source": text(), "target": text()}
        if kind == "ranking":
            labels = [1.0, *(draw.randint(0, 1) / 1 for _ in range(2))]
            return {"query": text(), "document": [text() for _ in labels], "label": labels}
        labels = {
            "classification": lambda: draw.choice("ab"),
            "regression": lambda: draw.randint(0, 40) / 8,
            "embedding": lambda: [draw.randint(-40, 40) / 8 for _ in range(16)],
            "multi-label": lambda: draw.sample(["x", "y", "z"], draw.randint(0, 3)),
        }
        return {"text": text(), **({"label": labels[kind]()} if kind in labels else {})}

    return [row() for _ in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def tokenizer_of(kind: str) -> PreTrainedTokenizerBase:
    return train_bpe(WORDS, 400) if kind in GENERATES else train_wordpiece(WORDS, 400)


@pytest.mark.parametrize("name", TASKS)
class TestTasks(TaskContract):
    """Every shipped kind of task."""

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.name = name

    def kind(self) -> type[Task]:
        return TASKS[self.name]

    def rows(self, count: int, seed: int) -> list[dict[str, Any]]:
        return rows_of(self.name, count, seed)


@pytest.fixture(params=list(TASKS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(kind: str, tmp_path: Path) -> DataSource:
    train, held = rows_of(kind, 40, 0), rows_of(kind, 12, 1)
    return DataSource(write(tmp_path / "train.jsonl", train), validation=write(tmp_path / "held.jsonl", held))


def test_parquet_has_the_same_rows_as_jsonl_and_validation_rows_are_halved(
    kind: str, source: DataSource, tmp_path: Path
) -> None:
    tables = {name: str(tmp_path / f"{name}.parquet") for name in ("data", "validation")}
    for name, path in tables.items():
        lines = Path(getattr(source, name)).read_text().splitlines()
        pd.DataFrame(map(json.loads, lines)).to_parquet(path)
    parquet = load_task(kind, replace(source, **tables))
    assert fingerprints_of(parquet) == fingerprints_of(load_task(kind, source))
    assert [len(split) for split in parquet.splits.values()] == [40, 6, 6]


@pytest.mark.parametrize("kind", HIDDEN)
def test_a_test_split_with_hidden_labels_is_left_out(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "folder"
    folder.mkdir()
    column, hidden = HIDDEN[kind]
    for name, seed, count in (("train", 0, 40), ("validation", 1, 12), ("test", 2, 9)):
        write(folder / f"{name}.jsonl", rows_of(kind, count, seed))
    assert len(load_task(kind, DataSource(str(folder))).splits["report"]) == 9
    write(folder / "test.jsonl", [{**row, column: hidden} for row in rows_of(kind, 9, 2)])
    splits = load_task(kind, DataSource(str(folder))).splits
    assert [len(split) for split in splits.values()] == [40, 6, 6]


def away(vectors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """By SciPy, in the mean."""
    return torch.tensor(np.mean([cosine(a, b) for a, b in zip(vectors, labels, strict=True)])).float()


def test_the_loss_is_the_stock_models(kind: str, source: DataSource) -> None:
    task, tokenizer = load_task(kind, source), tokenizer_of(kind)
    model, encoded = stock_model(task, len(tokenizer)), task.encode("train", tokenizer, 32)
    for size in (1, 7):
        features = encoded.features[:size]
        batch = task.collate(tokenizer, None)(features)
        assert (task.prepare(batch, tokenizer, np.random.default_rng(0)) is batch) == (kind != "masked")
        named = dict(batch)
        if kind == "ranking":  # stock classes know its loss as that of independent labels
            named["labels"] = batch["labels"][:, :1]
            model.config.problem_type = "multi_label_classification"
        if task.head == "QuestionAnswering":
            if size > 1:
                continue  # whose stock loss counts pads
            named["start_positions"], named["end_positions"] = named.pop("labels").T
        with torch.no_grad():
            stock = model(**named)
        logits = logits_of(stock)
        theirs = stock.loss if "loss" in stock else away(logits, batch["labels"])
        torch.testing.assert_close(task.objective.loss(logits, batch), theirs)
        if task.metrics == "language-model":
            nats, tokens = task.read(logits, batch).sum(dim=0)
            torch.testing.assert_close(nats / tokens, stock.loss)


def everything() -> dict[str, Any]:
    """Digests of each kind's splits, its tokenizer and its features."""
    digests = {}
    for kind, task in TASKS.items():
        rows = task.prepare_table(pd.DataFrame(rows_of(kind, 40, 0)), DataSource("rows"))
        columns = task.find_columns(rows, DataSource("rows"))
        given = {"train": task.read_rows(rows, columns, task.label_names(rows, columns, None), "train")}
        splits, _ = task.split(given, DataSource("rows"))
        tokenizer = tokenizer_of(kind)
        encoded = task({}, ("a", "b") if columns.label else (), splits).encode("train", tokenizer, 32)
        numbers = sorted(tokenizer.get_vocab().items())
        digests[kind] = digest(*map(str, [*splits.values(), numbers, list(encoded)]))
    return digests


def test_splits_tokenizers_and_features_are_the_same_again() -> None:
    assert everything() == everything()


@pytest.mark.slow
def test_splits_tokenizers_and_features_are_the_same_in_another_process() -> None:
    program = (
        "import json, numpy, random, torch; from tests.tasks.test_every_task import everything\n"
        "numpy.random.seed(1); random.seed(1); torch.manual_seed(1); print(json.dumps(everything()))"
    )
    # Another order of sets, too.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(there.stdout) == everything()


def test_a_stride_below_0_is_refused() -> None:
    with pytest.raises(DataError, match="not -1"):
        DataSource("rows", stride=-1)
