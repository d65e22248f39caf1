"""The laws of a kind of task."""

import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import BartConfig, BertConfig, GPT2Config, PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.supernet.heads import HEADS, logits_of
from ldsearch.tasks import DataSource, Encoded, Task
from ldsearch.tasks.base import fingerprints_of, trimmed
from ldsearch.tasks.tables import Columns
from ldsearch.tasks.tokenizer import train_bpe, train_wordpiece
from ldsearch.testing.inputs import refuses

WORDS = tuple(f"w{number}" for number in range(300))
REFERENCE = 32
TRAIN, HELD = 40, 12  # rows


class TaskContract:
    """Laws of a kind of task; a test class inherits it, names the kind and makes rows of a table."""

    def kind(self) -> type[Task]:
        """The kind of task; it need not be registered."""
        raise NotImplementedError

    def rows(self, count: int, seed: int) -> list[dict[str, Any]]:
        """Rows as a file has them, under usual names: texts of ``WORDS``, at random, of 30 words at most."""
        raise NotImplementedError

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """That of its models."""
        return (train_bpe if HEADS[self.kind().head].generates else train_wordpiece)(WORDS, 400)

    def model(self, task: Task, vocabulary: int) -> PreTrainedModel:
        """A tiny stock model with its head."""
        return stock_model(task, vocabulary)

    def test_the_record_reads_the_task_again_from_elsewhere(self) -> None:
        """The task is read from ``supernet.json`` alone: columns, options, and files by whole paths."""
        kind = self.kind()
        with tempfile.TemporaryDirectory() as folder:
            for name, count, seed in (("train", TRAIN, 0), ("held", HELD, 1)):
                lines = "".join(json.dumps(row) + "\n" for row in self.rows(count, seed))
                (Path(folder) / f"{name}.jsonl").write_text(lines, encoding="utf-8")
            sentences = "sentences" in kind.reads
            with contextlib.chdir(folder):
                task = kind.load(DataSource("train.jsonl", validation="held.jsonl", sentences=sentences))
            record = json.loads(json.dumps(task.source))
            assert record.pop("task") == kind.kind
            assert set(record) == {field.name for field in fields(DataSource)}
            with contextlib.chdir("/"):
                again = kind.load(DataSource(**{**record, "columns": Columns(**record["columns"])}))
        assert again == task
        assert fingerprints_of(again) == fingerprints_of(task)

    def test_every_usual_column_is_found_and_named_ones_go_before(self) -> None:
        """Under any of ``column_names``, and under a name of one's own beside columns that look usual."""
        plain, task = self.rows(TRAIN, 0), self._task(alone=True)
        found = task.source["columns"]
        assert "pair" not in self.kind().column_names or "pair_column" in self.kind().reads
        for side, names in self.kind().column_names.items():
            for name in names:
                if name not in found.values():
                    renamed = [
                        {name if key == found[side] else key: row[key] for key in row} for row in plain
                    ]
                    again = self._task(renamed, alone=True)
                    assert again.source["columns"] == {**found, side: name}
                    assert fingerprints_of(again) == fingerprints_of(task)
        decoys = [{f"x {key}": row[key] for key in row} | dict.fromkeys(row, 3) for row in plain]
        named = Columns(**{side: found[side] and f"x {found[side]}" for side in found})
        again = self._task(decoys, alone=True, columns=named)
        assert fingerprints_of(again) == fingerprints_of(task)

    def test_columns_that_are_missing_or_named_twice_are_refused(self) -> None:
        """In one line, with the column's name or the row's number."""
        plain, column = self.rows(TRAIN, 0), self._task().source["columns"]["text"]
        without = [{("key" if key == column else key): row[key] for key in row} | {"id": 3} for row in plain]
        missing = [*plain, {**self.rows(1, 2)[0], column: None}]
        for says, rows, columns in (
            ("no text column", without, Columns()),
            ("has no column 'body'", plain, Columns(text="body")),
            ("two of text, pair and label", plain, Columns(text=column, label=column)),
            ("1 train rows have no ", missing, Columns()),
        ):
            said = self._refusal(rows, columns=columns)
            assert says in said, said
            assert "\n" not in said

    def test_a_fingerprint_changes_with_any_column_and_the_order(self) -> None:
        """Measurements on other rows do not count for these."""
        train = self._task().splits["train"]
        order = list(range(len(train)))
        assert train.take(order).fingerprint == train.fingerprint
        seen = {train.fingerprint, train.take(order[::-1]).fingerprint, train.take(order[:-1]).fingerprint}
        columns = [field.name for field in fields(train) if getattr(train, field.name) is not None]
        for name in columns:
            column = getattr(train, name)
            other = next(value for value in column if value != column[0])
            seen.add(replace(train, **{name: (other, *column[1:])}).fingerprint)
        assert len(seen) == 3 + len(columns)

    def test_rows_on_two_sides_are_dropped_from_training_unless_they_are_kept(self) -> None:
        """And nothing is, where none are."""
        assert self._task().overlap == ""
        both = self.rows(TRAIN, 0) + self.rows(3, 1)
        task, kept = self._task(both), self._task(both, keep_overlap=True)
        assert len(task.splits["train"]) == TRAIN
        assert task.overlap.startswith("dropped 3 training rows")
        assert (len(kept.splits["train"]), kept.overlap) == (TRAIN + 3, "")

    def test_padding_is_right_of_the_features_and_of_no_label(self) -> None:
        """To the longest of a batch, or to a given length."""
        task, tokenizer = self._task(), self.tokenizer()
        encoded = task.encode("train", tokenizer, REFERENCE)
        assert encoded.lengths.max() <= REFERENCE
        features = list(encoded)[:5]
        longest = max(len(feature["input_ids"]) for feature in features)
        for pad_to, width in ((None, longest), (40, 40)):
            batch = task.collate(tokenizer, pad_to)(features)
            assert batch["input_ids"].shape == batch["attention_mask"].shape == (len(features), width)
            for row, feature in enumerate(features):
                n = len(feature["input_ids"])
                assert batch["input_ids"][row, :n].tolist() == list(feature["input_ids"])
                assert batch["attention_mask"][row].tolist() == [1] * n + [0] * (width - n)
                labels, own = batch["labels"][row].tolist(), feature["labels"]
                if isinstance(own, list):
                    np.testing.assert_allclose(labels[: len(own)], own)
                    assert set(labels[len(own) :]) <= {-100}
                else:
                    np.testing.assert_allclose(labels, own)

    def test_padding_and_other_rows_change_no_statistic(self) -> None:
        """They are the same alone, in a batch and padded; those of some rows score as they do among all."""
        task, tokenizer = self._task(), self.tokenizer()
        encoded, model = task.encode("train", tokenizer, REFERENCE), self.model(task, len(tokenizer))
        alone = statistics_of(task, model, encoded, tokenizer, 1)
        assert alone.shape == task.metric.shape(encoded.examples)
        assert alone.dtype == np.float64
        assert task.metric.of_means(alone.mean(axis=0)) != 0
        for size, pad_to in ((7, None), (64, REFERENCE + 2)):
            together = statistics_of(task, model, encoded, tokenizer, size, pad_to)
            np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
        some = list(range(1, encoded.examples, 3))
        few = statistics_of(task, model, encoded.take(some), tokenizer, 7)
        scores = [task.metric.of_means(own.mean(axis=0)) for own in (few, alone[some])]
        np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4, atol=1e-5)

    def test_an_unknown_split_or_metric_is_refused(self) -> None:
        """By its name."""
        task = self._task()
        assert refuses(lambda: task.encode("nowhere", self.tokenizer(), REFERENCE), DataError)
        assert "'no metric'" in self._refusal(self.rows(TRAIN, 0), metric="no metric")

    def test_a_new_head_is_told_the_label_names(self) -> None:
        """In id order, both ways."""
        task = self._task()
        named = dict(enumerate(task.labels))
        assert task.head_config.get("id2label", {}) == named
        assert task.head_config.get("label2id", {}) == {name: index for index, name in named.items()}

    def _task(
        self, rows: Sequence[Mapping[str, Any]] | None = None, *, alone: bool = False, **how: Any
    ) -> Task:
        """A task of these training rows, with others to choose and report by, or ``alone``."""
        tables = {"train": pd.DataFrame(rows or self.rows(TRAIN, 0))}
        held = {} if alone else {"search": pd.DataFrame(self.rows(HELD, 1))}
        return self.kind().of_tables({**tables, **held}, DataSource("rows", **how))

    def _refusal(self, rows: Sequence[Mapping[str, Any]], **how: Any) -> str:
        try:
            self._task(rows, **how)
        except DataError as error:
            return str(error)
        raise AssertionError("nothing was refused")


def stock_model(task: Task, vocabulary: int) -> PreTrainedModel:
    """A tiny random stock model of a task's head: BERT, or what generates."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 16, "init_std": 0.5, "dropout": 0.0, "max_position_embeddings": 64}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_layers": 2, f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 32}
    ends: dict[str, Any] = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "decoder_start_token_id": 1,
    }
    encoder: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = {
        "CausalLM": GPT2Config(n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3),
        "Seq2SeqLM": BartConfig(**sizes, **ends, forced_eos_token_id=1),
    }.get(task.head, BertConfig(**encoder, initializer_range=0.5))
    config.update({**task.head_config, "vocab_size": vocabulary})
    model: PreTrainedModel = HEADS[task.head].auto.from_config(config).eval()
    return model


def statistics_of(
    task: Task,
    model: PreTrainedModel,
    encoded: Encoded,
    tokenizer: PreTrainedTokenizerBase,
    size: int,
    pad_to: int | None = None,
) -> NDArray[np.float64]:
    """A stock model's statistics on rows, in batches of a size, padded to a length or to their longest."""
    outputs: list[NDArray[Any]] = []
    for start in range(0, len(encoded), size):
        features: Sequence[Any] = encoded.features[start : start + size]
        batch = task.collate(tokenizer, pad_to)(list(features))
        with torch.no_grad():
            logits = logits_of(model(**_inputs(task, batch)))
        lengths = [len(feature["input_ids"]) for feature in features]
        outputs += trimmed(task.read(logits, batch).numpy(), lengths, task.per_token)
    return task.statistics(outputs, encoded)


def _inputs(task: Task, batch: dict[str, Any]) -> dict[str, Any]:
    """The model's inputs; with a decoder of its own also the labels, which it shifts."""
    return batch if task.head == "Seq2SeqLM" else {k: v for k, v in batch.items() if k != "labels"}
