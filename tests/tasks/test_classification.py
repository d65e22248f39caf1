"""Text classification: splits that share no text, fingerprints that notice, features and batches."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks import DataSource, Encoded, TextClassification
from ldsearch.tasks.base import score
from ldsearch.tasks.classification import TextExamples, load_classification
from ldsearch.tasks.tables import Columns
from tests.tiny import tiny_model

Rows = Sequence[dict[str, object]]


def write(folder: Path, rows: Rows, name: str = "train") -> str:
    """Rows to a jsonl file; returns its path."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(
    data: str, known: Sequence[str] | None = None, kind: str = "classification", **source: object
) -> TextClassification:
    return load_classification(DataSource(data, **source), known, kind)  # type: ignore[arg-type]


def labelled(labels: Sequence[object], prefix: str = "text") -> list[dict[str, object]]:
    return [{"text": f"{prefix} {index}", "label": label} for index, label in enumerate(labels)]


def two_files(folder: Path, train: Rows, validation: Rows, **options: object) -> TextClassification:
    """Every row stays where it is, so that the files may repeat each other."""
    paths = write(folder, train), write(folder, validation, "validation")
    return load(paths[0], validation=paths[1], keep_overlap=True, **options)


def test_texts_and_pairs_come_as_they_are(tmp_path: Path) -> None:
    rows = [
        {"premise": "It rains.", "hypothesis": "NA", "label": "yes"},
        {"premise": "  007 ", "hypothesis": "", "label": "no"},
    ]
    task = two_files(tmp_path, rows, rows)
    assert task.splits["train"].texts == ("It rains.", "  007 ")
    assert task.splits["train"].pairs == ("NA", "")
    assert task.source["columns"] == {"text": "premise", "pair": "hypothesis", "label": "label"}
    single = two_files(tmp_path, rows, rows, columns=Columns(text="hypothesis"))
    assert single.splits["train"].texts == ("NA", "")
    assert single.splits["train"].pairs is None


def test_named_columns_are_used(tmp_path: Path) -> None:
    rows = [{"text": "no", "label": 0, "body": f"b{i}", "stars": i % 2 + 1} for i in range(4)]
    task = two_files(tmp_path, rows, rows[:2], columns=Columns(text="body", label="stars"))
    assert task.splits["train"].texts == ("b0", "b1", "b2", "b3")
    assert task.labels == ("1", "2")


@pytest.mark.parametrize(("rows", "cut"), [(5_000, 500), (30_000, 2_000), (64, 6), (6, 1)])
def test_without_validation_two_tenths_are_cut_at_most_2000_rows_each_and_nothing_is_lost(
    tmp_path: Path, rows: int, cut: int
) -> None:
    task = load(write(tmp_path, labelled([index % 2 for index in range(rows)])))
    train, search, report = (task.splits[split] for split in ("train", "search", "report"))
    assert (len(train), len(search), len(report)) == (rows - 2 * cut, cut, cut)
    texts = [*train.texts, *search.texts, *report.texts]
    assert sorted(texts) == sorted(f"text {index}" for index in range(rows))
    number = {text: int(text.removeprefix("text ")) for text in texts}
    for part in (train, search, report):
        assert all(number[text] % 2 == label for text, label in zip(part.texts, part.labels, strict=True))


def test_the_cut_is_not_the_end_of_a_sorted_file(tmp_path: Path) -> None:
    task = load(write(tmp_path, labelled([0] * 150 + [1] * 150)))
    assert set(task.splits["search"].labels) == {0, 1}


REFUSED: dict[str, tuple[Rows, Rows | None, str]] = {
    "stranger": (labelled([0, 1] * 9), labelled([0, 7]), "never saw: 7"),
    "one label": (labelled(["a"] * 20), None, "at least two labels"),
    "ids as labels": (labelled(list(range(40))), None, "is 'label' the label column"),
    "no label": (labelled([0, 1, None] * 9), labelled([0]), "9 train rows have no label"),
    "no text": (
        [*labelled([0, 1] * 9), {"text": None, "label": 1}],
        labelled([0]),
        "1 train rows have no text",
    ),
    "no column": ([{"words": "a", "id": 3, "label": 0}] * 20, None, "no text column among words, id, label"),
    "other column": (labelled([0, 1] * 9), [{"text": "a", "stars": 0}], "no column 'label'"),
    "no validation label": (labelled([0, 1] * 9), labelled([0, None]), "1 search rows have no label"),
    "no validation text": (labelled([0, 1] * 9), [{"text": None, "label": 1}], "1 search rows have no text"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_data_that_does_not_fit_is_one_line(tmp_path: Path, case: str) -> None:
    train, validation, says = REFUSED[case]
    other = None if validation is None else write(tmp_path, validation, "validation")
    with pytest.raises(DataError, match=says) as caught:
        load(write(tmp_path, train), validation=other)
    assert "\n" not in str(caught.value)


def tiny_tokenizer() -> BertTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def test_encoding_cuts_at_the_reference_and_pads_nothing() -> None:
    examples = TextExamples(("a", "a b c d a b"), None, (1, 0))
    task = TextClassification({}, ("x", "y"), {"train": examples})
    encoded = task.encode("train", tiny_tokenizer(), 6)
    assert [feature["input_ids"] for feature in encoded] == [[2, 5, 3], [2, 5, 6, 7, 8, 3]]
    assert [feature["labels"] for feature in encoded] == [1, 0]
    assert encoded.lengths.tolist() == [3, 6]
    assert encoded.workload.reference == 6
    assert encoded.workload.mean_length == 4.5


def test_a_pair_is_one_sequence_with_two_token_types() -> None:
    examples = TextExamples(("a b",), ("c",), (0,))
    encoded = TextClassification({}, ("x", "y"), {"train": examples}).encode("train", tiny_tokenizer(), 16)
    assert encoded[0]["input_ids"] == [2, 5, 6, 3, 7, 3]
    assert encoded[0]["token_type_ids"] == [0, 0, 0, 0, 1, 1]


def test_the_score_is_the_share_of_best_logits_that_are_the_labels() -> None:
    task = TextClassification({}, ("x", "y", "z"), {})
    logits = np.array(
        [[0.1, 0.9, 0.0], [2.0, 1.0, 3.0], [-1.0, -2.0, -3.0], [0.0, 5.0, 1.0]], dtype=np.float32
    )
    encoded = Encoded(tuple({"labels": label} for label in (1, 2, 1, 0)), 8)
    statistics = task.statistics(list(logits), encoded)
    assert statistics.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert score(task.metric, statistics).value == 0.5
    assert score(task.metric, statistics).higher_is_better
    assert task.metric.name == "accuracy"


KINDS: dict[str, tuple[tuple[str, ...], tuple[object, ...]]] = {  # label names, and labels of three texts
    "classification": (("x", "y", "z"), (2, 0, 1)),
    "regression": (("score",), (3.25, 0.0, -1.5)),
    "multi-label": (("x", "y"), ((1.0, 0.0), (0.0, 0.0), (1.0, 1.0))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_a_batch_is_the_one_a_stock_model_of_the_problem_type_computes(kind: str) -> None:
    names, labels = KINDS[kind]
    task = TextClassification(
        {}, names, {"train": TextExamples(("a b c d", "b", "c a"), None, labels)}, kind=kind
    )
    batch = task.collate(tiny_tokenizer(), None)(list(task.encode("train", tiny_tokenizer(), 8)))
    assert batch["input_ids"].tolist() == [[2, 5, 6, 7, 8, 3], [2, 6, 3, 0, 0, 0], [2, 7, 5, 3, 0, 0]]
    assert batch["attention_mask"].sum(dim=1).tolist() == [6, 3, 4]
    model = tiny_model("bert", labels=len(names))
    model.config.update(dict(task.head_config))
    with torch.inference_mode():
        stock = model(**batch)
    assert float(task.objective.loss(stock.logits, batch)) == pytest.approx(float(stock.loss), rel=1e-6)
    assert task.prepare(batch, tiny_tokenizer(), np.random.default_rng(0)) is batch
    assert task.read(stock.logits, batch) is stock.logits
    assert model.config.id2label == dict(enumerate(names))
