"""What holds for every kind of task: columns, records, splits, hidden labels, padding, losses, refusals."""

import json
import os
import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cosine
from transformers import BartConfig, BertConfig, GPT2Config, PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.disk.fingerprint import digest
from ldsearch.errors import DataError
from ldsearch.supernet.heads import HEADS, logits_of
from ldsearch.tasks import TASKS, DataSource, Task, load_task
from ldsearch.tasks.base import fingerprints_of, trimmed
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
    "ranking": ("label", [-1, -1, -1]),
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


def stock_model(task: Task, vocabulary: int) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "init_std": 0.5, "dropout": 0.0, "max_position_embeddings": 64}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_layers": 2, f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 32}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1}
    config = {
        "CausalLM": GPT2Config(n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3),
        "Seq2SeqLM": BartConfig(**sizes, **ends, forced_eos_token_id=1),
    }.get(
        task.head,
        BertConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            initializer_range=0.5,
        ),
    )
    config.update({**task.head_config, "vocab_size": vocabulary})
    return HEADS[task.head].auto.from_config(config).eval()


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


def test_every_usual_column_is_found_and_named_ones_go_before(kind: str, tmp_path: Path) -> None:
    usual = TASKS[kind].column_names
    plain = rows_of(kind, 40, 0)
    data = write(tmp_path / "plain.jsonl", plain)
    task = load_task(kind, DataSource(data))
    found = task.source["columns"]
    for side, names in usual.items():
        for name in names:
            if name in found.values():
                continue
            renamed = [{name if key == found[side] else key: row[key] for key in row} for row in plain]
            again = load_task(kind, DataSource(write(tmp_path / "renamed.jsonl", renamed)))
            assert again.source["columns"] == {**found, side: name}
            assert fingerprints_of(again) == fingerprints_of(task)
    decoys = [{f"x {key}": row[key] for key in row} | dict.fromkeys(row, 3) for row in plain]
    named = Columns(**{side: found[side] and f"x {found[side]}" for side in found})
    source = DataSource(write(tmp_path / "named.jsonl", decoys), columns=named)
    assert fingerprints_of(load_task(kind, source)) == fingerprints_of(task)


def test_columns_that_are_missing_or_named_twice_are_refused(
    kind: str, source: DataSource, tmp_path: Path
) -> None:
    def refused(says: str, **changes: Any) -> None:
        with pytest.raises(DataError, match=says) as caught:
            load_task(kind, replace(source, **changes))
        assert "\n" not in str(caught.value)

    column = load_task(kind, source).source["columns"]["text"]
    without = [{("key" if key == column else key): row[key] for key in row} for row in rows_of(kind, 40, 0)]
    without = [{**row, "id": 3} for row in without]
    refused("no text column", data=write(tmp_path / "without.jsonl", without))
    refused(rf"\(search\) has no column {column!r}", validation=write(tmp_path / "held2.jsonl", without))
    refused("has no column 'body'", columns=Columns(text="body"))
    refused("two of text, pair and label", columns=Columns(text=column, label=column))
    missing = [*rows_of(kind, 40, 0), {**rows_of(kind, 1, 2)[0], column: None}]
    refused("1 train rows have no .*row 40", data=write(tmp_path / "missing.jsonl", missing))


def test_parquet_has_the_same_rows_as_jsonl(kind: str, source: DataSource, tmp_path: Path) -> None:
    tables = [tmp_path / f"{role}.parquet" for role in ("train", "held")]
    for table, path in zip(tables, (source.data, source.validation), strict=True):
        pd.DataFrame([json.loads(line) for line in Path(str(path)).read_text().splitlines()]).to_parquet(
            table
        )
    parquet = load_task(kind, replace(source, data=str(tables[0]), validation=str(tables[1])))
    assert fingerprints_of(parquet) == fingerprints_of(load_task(kind, source))


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


def away(vectors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """By SciPy, in the mean."""
    return torch.tensor(np.mean([cosine(a, b) for a, b in zip(vectors, labels, strict=True)])).float()


def test_the_loss_is_the_stock_models_and_padding_changes_no_statistic(kind: str, task: Task) -> None:
    tokenizer = tokenizer_of(kind)
    model, encoded = stock_model(task, len(tokenizer)), task.encode("train", tokenizer, 32)

    def measured(size: int, pad_to: int | None) -> np.ndarray:
        outputs = []
        for start in range(0, len(encoded), size):
            features = encoded.features[start : start + size]
            batch = task.collate(tokenizer, pad_to)(features)
            named = dict(batch)
            if kind == "ranking":  # stock classes know its loss as that of independent labels
                named["labels"] = batch["labels"][:, :1]
                model.config.problem_type = "multi_label_classification"
            if task.head == "QuestionAnswering":
                named["start_positions"], named["end_positions"] = named.pop("labels").T
            with torch.no_grad():
                stock = model(**named)
            logits = logits_of(stock)
            if size == 1 or task.head != "QuestionAnswering":  # whose stock loss counts pads
                theirs = stock.loss if "loss" in stock else away(logits, batch["labels"])
                torch.testing.assert_close(task.objective.loss(logits, batch), theirs)
            lengths = [len(feature["input_ids"]) for feature in features]
            read = task.read(logits, batch)
            if task.metrics == "language-model":
                nats, tokens = read.sum(dim=0)
                torch.testing.assert_close(nats / tokens, stock.loss)
            outputs += trimmed(read.numpy(), lengths, task.per_token)
        return task.statistics(outputs, encoded)

    alone = measured(1, None)
    assert alone.shape == task.metric.shape(encoded.examples)
    assert alone.dtype == np.float64
    assert task.metric.of_means(alone.mean(axis=0)) != 0
    for size, pad_to in ((7, None), (64, 40)):
        np.testing.assert_allclose(measured(size, pad_to), alone, rtol=1e-4, atol=1e-5)


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


def test_a_new_head_is_told_the_label_names(task: Task) -> None:
    named = dict(enumerate(task.labels))
    assert task.head_config.get("id2label", {}) == named
    assert task.head_config.get("label2id", {}) == {name: index for index, name in named.items()}


def test_an_unknown_split_metric_or_stride_is_refused(kind: str, task: Task, source: DataSource) -> None:
    with pytest.raises(DataError, match="not -1"):
        replace(source, stride=-1)
    with pytest.raises(DataError, match="nowhere"):
        task.encode("nowhere", tokenizer_of(kind), 48)
    with pytest.raises(DataError, match="'spearman'"):
        load_task(kind, replace(source, metric="spearman"))
