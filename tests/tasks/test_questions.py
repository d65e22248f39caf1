"""Question answering: splits by context, answers that come back from logits whatever the padding."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import fingerprints_of, score
from ldsearch.tasks.questions import (
    Answer,
    EncodedQuestions,
    QuestionAnswering,
    QuestionExamples,
    load_questions,
)
from ldsearch.tasks.tables import Columns, DataSource
from tests.tasks.question_rows import (
    Rows,
    byte_level_tokenizer,
    examples_of,
    planted,
    row,
    rows_about,
    task_of,
    wordpiece_tokenizer,
)

Write = Callable[..., str]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return wordpiece_tokenizer()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return rows_about(12)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows to a jsonl file; returns its path."""

    def write_rows(rows: Rows, name: str = "train") -> str:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


def test_questions_of_one_context_are_never_on_two_sides(write: Write) -> None:
    train, validation = rows_about(40, length=12), rows_about(20, length=12, seed=1)
    task = load_questions(DataSource(write(train), validation=write(validation, "validation")))
    assert {name: len(split) for name, split in task.splits.items()} == {
        "train": 120,
        "search": 30,
        "report": 30,
    }
    sides = [set(split.contexts) for split in task.splits.values()]
    assert not any(one & other for i, one in enumerate(sides) for other in sides[i + 1 :])
    assert sides[1] | sides[2] == {row["context"] for row in validation}
    assert task.overlap == ""

    cut = load_questions(DataSource(write(train)))
    assert [len(split) for split in cut.splits.values()] == [96, 12, 12]
    assert sum(len(set(split.contexts)) for split in cut.splits.values()) == 40


def test_parquet_folders_and_lines_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    train, validation = rows_about(10, length=12), rows_about(4, length=12, seed=1)
    train[0] = row("Köln, 24–10 won", "  Who  won?\n", "Köln", "24–10", "won")  # noqa: RUF001
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, rows in (("train", train), ("validation", validation)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pd.DataFrame(rows).to_parquet(tmp_path / f"{name}.parquet")
    hidden = [{**row, "answers": {"text": [], "answer_start": []}} for row in validation]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hidden))
    lines = load_questions(
        DataSource(str(folder / "train.jsonl"), validation=str(folder / "validation.jsonl"))
    )
    parquet = load_questions(
        DataSource(str(tmp_path / "train.parquet"), validation=str(tmp_path / "validation.parquet"))
    )
    assert lines.splits == parquet.splits == load_questions(DataSource(str(folder))).splits
    assert fingerprints_of(lines) == fingerprints_of(parquet)
    assert lines.splits["train"].questions[0] == "Who  won?"
    assert lines.splits["train"].answers[0] == ((0, "Köln"), (6, "24–10"), (12, "won"))  # noqa: RUF001


def test_the_source_says_enough_to_read_it_again(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    train = [
        {"passage": r["context"], "query": r["question"], "spans": r["answers"]}
        for r in rows_about(20, length=12)
    ]
    path = Path(write(train))
    monkeypatch.chdir(path.parent)
    columns = Columns("passage", "query", "spans")
    task = load_questions(DataSource(path.name, columns=columns, metric="exact-match", stride=7))
    assert task.stride == 7
    assert task.source == {
        "task": "questions",
        "data": str(path),
        "config": None,
        "validation": None,
        "columns": {"text": "passage", "pair": "query", "label": "spans"},
        "keep_overlap": False,
        "search_rows": "auto",
        "metric": "exact-match",
        "stride": 7,
        "sentences": False,
    }
    recorded = {name: value for name, value in task.source.items() if name != "task"}
    monkeypatch.chdir("/")
    assert load_questions(DataSource(**{**recorded, "columns": Columns(**recorded["columns"])})) == task
    plain = load_questions(DataSource(write(rows_about(20, length=12), "plain")))
    assert plain.source["metric"] == plain.metric.name == "f1"
    assert plain.source["columns"] == {"text": "context", "pair": "question", "label": "answers"}


GOOD = rows_about(20, length=12)
STANDS = "rows have an answer that does not stand at its answer_start"
REFUSED: dict[str, tuple[Rows, str]] = {
    "no context column": (
        [{"text": "a", "question": "b", "answers": {}}],
        "no column 'context'; it has text",
    ),
    "no answers column": ([{"context": "a", "question": "b"}], r"\(train\) has no column 'answers'"),
    "no context": ([*GOOD, {**GOOD[0], "context": None}], "1 of 61 train rows have no context"),
    "no question": ([*GOOD, {**GOOD[0], "question": " "}], "1 of 61 train rows have no question"),
    "null": ([*GOOD, {**GOOD[0], "answers": None}], "1 of 61 train rows have no answer"),
    "unanswerable": (
        [*GOOD, *[{**GOOD[0], "answers": {"text": [], "answer_start": []}}] * 2],
        "2 of 62 train rows have no answer",
    ),
    "empty answer": (
        [*GOOD, {**GOOD[0], "answers": {"text": [""], "answer_start": [0]}}],
        "1 of 61 train rows have no answer",
    ),
    "one off": (
        [*GOOD, *[{**row("x yes", "q", "yes"), "answers": {"text": ["yes"], "answer_start": [1]}}] * 3],
        f"3 of 63 train {STANDS}",
    ),
    "second one off": (
        [*GOOD, {**row("x yes", "q"), "answers": {"text": ["yes", "x"], "answer_start": [2, 1]}}],
        f"1 of 61 train {STANDS}",
    ),
    "from behind": (
        [*GOOD, {**row("x yes", "q"), "answers": {"text": ["yes"], "answer_start": [-3]}}],
        f"1 of 61 train {STANDS}",
    ),
    "bytes": ([*GOOD, {**row("é yes", "q"), "answers": {"text": ["yes"], "answer_start": [3]}}], STANDS),
    "plain text": ([{**GOOD[0], "answers": "yes"}], "must hold a list text .* not 'yes'"),
    "list of answers": (
        [{**GOOD[0], "answers": [{"text": "yes", "answer_start": 0}]}],
        "answers must hold a list text",
    ),
    "no list": (
        [{**GOOD[0], "answers": {"text": "yes", "answer_start": 0}}],
        "answers must hold a list text",
    ),
    "fewer starts": (
        [{**GOOD[0], "answers": {"text": ["a", "b"], "answer_start": [0]}}],
        "as long a list answer_start",
    ),
    "half a start": ([{**GOOD[0], "answers": {"text": ["a"], "answer_start": [0.5]}}], "whole numbers"),
    "text is a number": ([{**GOOD[0], "answers": {"text": [3], "answer_start": [0]}}], "list text"),
    "one context": (rows_about(1, each=30), "share too much text"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_data_that_does_not_fit_is_one_line(write: Write, case: str) -> None:
    rows, says = REFUSED[case]
    with pytest.raises(DataError, match=says) as caught:
        load_questions(DataSource(write(rows)))
    assert "\n" not in str(caught.value)


def test_validation_is_held_to_the_same(write: Write) -> None:
    astray = [{**GOOD[0], "answers": {"text": ["?"], "answer_start": [0]}}]
    with pytest.raises(DataError, match=f"1 of 1 search {STANDS}"):
        load_questions(DataSource(write(GOOD), validation=write(astray, "validation")))


def test_an_unknown_metric_or_a_negative_stride_is_one_line(write: Write) -> None:
    with pytest.raises(DataError, match="no metric 'accuracy' for questions: there are f1, exact-match"):
        load_questions(DataSource(write(GOOD), metric="accuracy"))
    with pytest.raises(DataError, match="not -1"):
        load_questions(DataSource(write(GOOD), stride=-1))


def test_a_tokenizer_is_trained_on_every_context_once_and_every_question() -> None:
    examples = QuestionExamples(("a", "b", "a"), ("q", "r", "s"), ((Answer(0, "a"),),) * 3)
    assert sorted(examples.texts) == ["a", "b", "q", "r", "s"]


@pytest.mark.parametrize("metric", ["f1", "exact-match"])
@pytest.mark.parametrize("reference", [64, 512])
def test_a_model_that_knows_the_answers_is_always_right(
    rows: Rows, tokenizer: PreTrainedTokenizerBase, metric: str, reference: int
) -> None:
    task = task_of(rows, metric)
    encoded = task.encode("train", tokenizer, reference)
    statistics = task.statistics(planted(encoded), encoded)
    assert statistics.shape == (len(rows),)
    assert score(task.metric, statistics).value == 1.0
    # One that sees them at the other end is not.
    mirrored = [logits[::-1] for logits in planted(encoded)]
    assert score(task.metric, task.statistics(mirrored, encoded)).value < 0.5


@pytest.mark.parametrize("reference", [64, 512])
def test_byte_level_tokens_give_the_answers_back(rows: Rows, reference: int) -> None:
    context = f"{'jade ' * 30}Zoë naïve 日本語 😀 24–10, “face” é"  # noqa: RUF001
    foreign = [row(context, "q", answer) for answer in ("naïve", "日本語", "😀", "24–10", "“face”", "é")]  # noqa: RUF001
    task = task_of([*rows, *foreign], "exact-match")
    tokenizer = byte_level_tokenizer(examples_of(rows).texts)
    encoded = task.encode("train", tokenizer, reference)
    assert task.statistics(planted(encoded), encoded).tolist() == [1.0] * len(task.splits["train"])
    assert [text.strip() for text in task.predict(planted(encoded), encoded)[-6:]] == [
        row["answers"]["text"][0] for row in foreign
    ]


def test_each_example_has_its_own_statistic(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [row("bad, face, cage", "a", answer) for answer in ("bad", "face", "cage")]
    rows[1]["answers"] = {"text": ["bad, face", "face, cage"], "answer_start": [0, 5]}
    for metric, wrong, part in (("f1", 0.0, 2 / 3), ("exact-match", 0.0, 0.0)):
        task = task_of(rows, metric)
        encoded = task.encode("train", tokenizer, 64)
        outputs = planted(encoded)
        assert task.predict(outputs, encoded) == ["bad", "bad, face", "cage"]
        # The second says "cage", half of its second answer; the third says "bad".
        outputs[1], outputs[2] = outputs[2], outputs[0]
        assert task.predict(outputs, encoded) == ["bad", "cage", "bad"]
        assert task.statistics(outputs, encoded).tolist() == pytest.approx([1.0, part, wrong])


def test_an_answer_in_the_second_window_only_is_found_there(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [row(f"{'abc ' * 40}dad {'fig ' * 5}".strip(), "hi", "dad"), row("jade abc", "hi", "jade")]
    task = task_of(rows, stride=4)
    encoded = task.encode("train", tokenizer, 64)
    assert encoded.origins is not None
    held = [feature["labels"][0] > 0 for feature in encoded]
    assert encoded.origins == (*[0] * (len(held) - 1), 1)
    assert not held[0]
    assert sum(held) == 2
    outputs = planted(encoded)
    assert task.predict(outputs, encoded) == ["dad", "jade"]
    # A window that is surer of another answer wins.
    outputs[0][5, 0] = outputs[0][6, 1] = 10
    (first, _), (_, stop) = encoded.characters[0][5:7]
    assert task.predict(outputs, encoded) == [rows[0]["context"][first:stop], "jade"]
    assert task.statistics(outputs, encoded).tolist() == [0.0, 1.0]


def tiny_model(tokenizer: PreTrainedTokenizerBase) -> BertForQuestionAnswering:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.5,
    )
    return BertForQuestionAnswering(config).eval()


def run(
    task: QuestionAnswering,
    encoded: EncodedQuestions,
    tokenizer: PreTrainedTokenizerBase,
    size: int,
    pad_to: int | None,
) -> tuple[list[NDArray[np.float32]], list[float]]:
    """The model's outputs without padding, and each row's loss."""
    model, collate = tiny_model(tokenizer), task.collate(tokenizer, pad_to)
    outputs, losses = [], []
    for first in range(0, len(encoded), size):
        features = encoded.features[first : first + size]
        batch = task.prepare(collate(features), tokenizer, np.random.default_rng(0))
        assert batch["labels"].shape == (len(features), 2)
        assert batch["labels"].dtype == torch.int64
        longest = max(len(feature["input_ids"]) for feature in features)
        assert batch["input_ids"].shape[1] == (pad_to or longest)
        with torch.no_grad():
            out = model(**{name: tensor for name, tensor in batch.items() if name != "labels"})
        logits = torch.stack([out.start_logits, out.end_logits], dim=-1)
        for index, feature in enumerate(features):
            one = {name: tensor[index : index + 1] for name, tensor in batch.items()}
            losses.append(float(task.objective.loss(logits[index : index + 1], one)))
            outputs.append(task.read(logits, batch)[index, : len(feature["input_ids"])].numpy())
    return outputs, losses


def test_padding_changes_nothing(rows: Rows, tokenizer: PreTrainedTokenizerBase) -> None:
    task = task_of(rows)
    encoded = task.encode("train", tokenizer, 64)
    alone, losses = run(task, encoded, tokenizer, 1, None)
    statistics = task.statistics(alone, encoded)
    assert 0 < statistics.mean() < 1
    for size, pad_to in ((7, None), (7, 64), (64, 100)):
        outputs, padded_losses = run(task, encoded, tokenizer, size, pad_to)
        for one, other in zip(alone, outputs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        assert task.statistics(outputs, encoded).tolist() == statistics.tolist()
        assert padded_losses == pytest.approx(losses, abs=1e-4)


def test_the_loss_is_the_stock_models(rows: Rows, tokenizer: PreTrainedTokenizerBase) -> None:
    task = task_of(rows)
    encoded = task.encode("train", tokenizer, 64)
    _, losses = run(task, encoded, tokenizer, 1, None)
    model, collate = tiny_model(tokenizer), task.collate(tokenizer, None)
    for feature, loss in list(zip(encoded, losses, strict=True))[:10]:
        batch = collate([feature])
        labels = batch.pop("labels")
        with torch.no_grad():
            stock = model(**batch, start_positions=labels[:, 0], end_positions=labels[:, 1]).loss
        assert loss == pytest.approx(float(stock), abs=1e-5)
