"""What holds for every kind of task: records, fingerprints, splits, hidden labels, padding, refusals."""

import json
import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks import TASKS, DataSource, Task, load_task
from ldsearch.tasks.base import fingerprints_of
from ldsearch.tasks.tables import Columns
from ldsearch.tasks.tokenizer import train_bpe, train_wordpiece

WORDS = [f"w{i}" for i in range(300)]
GENERATES = ("causal", "translation", "summarisation")
# The column of the labels, and what a public test set has there.
HIDDEN: dict[str, tuple[str, Any]] = {
    "classification": ("label", -1),
    "tokens": ("tags", None),
    "questions": ("answers", {"text": [], "answer_start": []}),
    "translation": ("target", None),
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
        labels = {
            "classification": lambda: draw.choice("ab"),
            "regression": draw.random,
            "multi-label": lambda: draw.sample(["x", "y", "z"], draw.randint(0, 3)),
        }
        return {"text": text(), **({"label": labels[kind]()} if kind in labels else {})}

    return [row() for _ in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def tokenizer_of(kind: str) -> PreTrainedTokenizerBase:
    return train_bpe(WORDS, 400) if kind in GENERATES else train_wordpiece(WORDS, 400)


@pytest.fixture(params=list(TASKS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(kind: str, tmp_path: Path) -> DataSource:
    train, held = rows_of(kind, 40, 0), rows_of(kind, 12, 1)
    return DataSource(write(tmp_path / "train.jsonl", train), validation=write(tmp_path / "held.jsonl", held))


@pytest.fixture
def task(kind: str, source: DataSource) -> Task:
    return load_task(kind, source)


def test_validation_rows_are_halved_and_training_rows_stay(task: Task) -> None:
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sizes == {"train": 40, "search": 6, "report": 6}
    assert task.overlap == ""


def test_the_record_reads_the_task_again_from_elsewhere(
    kind: str, source: DataSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = replace(source, data="train.jsonl", validation="held.jsonl", sentences=kind == "causal")
    task = load_task(kind, relative)
    record = json.loads(json.dumps(task.source))
    assert record.pop("task") == kind
    assert set(record) == {field.name for field in fields(DataSource)}
    assert (record["data"], record["validation"]) == (source.data, source.validation)
    monkeypatch.chdir("/")
    again = load_task(kind, DataSource(**{**record, "columns": Columns(**record["columns"])}))
    assert again == task
    assert fingerprints_of(again) == fingerprints_of(task)


def test_a_fingerprint_changes_with_any_column_and_the_order(task: Task) -> None:
    train = task.splits["train"]
    order = list(range(len(train)))
    assert train.take(order).fingerprint == train.fingerprint
    seen = {train.fingerprint, train.take(order[::-1]).fingerprint, train.take(order[:-1]).fingerprint}
    columns = [field.name for field in fields(train) if getattr(train, field.name) is not None]
    for name in columns:
        column = getattr(train, name)
        other = next(value for value in column if value != column[0])
        seen.add(replace(train, **{name: (other, *column[1:])}).fingerprint)
    assert len(seen) == 3 + len(columns)


def test_training_rows_that_are_held_out_too_are_dropped_unless_they_are_kept(
    kind: str, source: DataSource, tmp_path: Path
) -> None:
    shared = write(tmp_path / "shared.jsonl", rows_of(kind, 40, 0) + rows_of(kind, 3, 1))
    task = load_task(kind, replace(source, data=shared))
    assert len(task.splits["train"]) == 40
    assert task.overlap.startswith("dropped 3 training rows")
    kept = load_task(kind, replace(source, data=shared, keep_overlap=True))
    assert len(kept.splits["train"]) == 43
    assert kept.overlap == ""


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


def test_padding_is_right_of_the_features_and_of_no_label(kind: str, task: Task) -> None:
    tokenizer = tokenizer_of(kind)
    encoded = task.encode("train", tokenizer, 48)
    assert encoded.lengths.max() <= 48
    features = list(encoded)[:5]
    longest = max(len(feature["input_ids"]) for feature in features)
    for pad_to, width in ((None, longest), (60, 60)):
        batch = task.collate(tokenizer, pad_to)(features)
        assert batch["input_ids"].shape == batch["attention_mask"].shape == (len(features), width)
        prepared = task.prepare(batch, tokenizer, np.random.default_rng(0))
        assert (prepared is batch) == (kind != "masked")
        for row, feature in enumerate(features):
            n = len(feature["input_ids"])
            assert batch["input_ids"][row, :n].tolist() == list(feature["input_ids"])
            assert batch["attention_mask"][row].tolist() == [1] * n + [0] * (width - n)
            labels, own = batch["labels"][row].tolist(), feature["labels"]
            if isinstance(own, list):
                assert labels[: len(own)] == own
                assert set(labels[len(own) :]) <= {-100}
            else:
                assert labels == pytest.approx(own)


def test_a_new_head_is_told_the_label_names(task: Task) -> None:
    named = dict(enumerate(task.labels))
    assert task.head_config.get("id2label", {}) == named
    assert task.head_config.get("label2id", {}) == {name: index for index, name in named.items()}


def test_an_unknown_split_or_metric_is_refused(kind: str, task: Task, source: DataSource) -> None:
    with pytest.raises(DataError, match="nowhere"):
        task.encode("nowhere", tokenizer_of(kind), 48)
    with pytest.raises(DataError, match="'spearman'"):
        load_task(kind, replace(source, metric="spearman"))
