"""Text classification: labels of every kind in a stable order, columns, features, scores, refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import f1_score
from transformers import BertTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks import TASKS, DataSource, Encoded, TextClassification, load_task
from ldsearch.tasks.base import score
from ldsearch.tasks.classification import TextExamples
from ldsearch.tasks.tables import Columns
from tests.tasks.test_every_task import write as write_rows

Rows = Sequence[dict[str, object]]


def write(folder: Path, rows: Rows, name: str = "train") -> str:
    """Rows to a jsonl file; returns its path."""
    return write_rows(folder / f"{name}.jsonl", list(rows))


def load(data: str, known: Sequence[str] | None = None, kind: str = "classification", **source: Any) -> Any:
    return load_task(kind, DataSource(data, **source), known)


def labelled(labels: Sequence[object], prefix: str = "text") -> list[dict[str, object]]:
    return [{"text": f"{prefix} {index}", "label": label} for index, label in enumerate(labels)]


def two_files(folder: Path, train: Rows, validation: Rows, **options: object) -> Any:
    """Every row stays where it is, so that the files may repeat each other."""
    paths = write(folder, train), write(folder, validation, "validation")
    return load(paths[0], validation=paths[1], keep_overlap=True, **options)


@pytest.mark.parametrize(
    ("train", "validation", "says"),
    [
        (labelled([0, 1] * 9), labelled([0, 7]), "never saw: 7"),
        (labelled(["a"] * 20), None, "at least two labels"),
        (labelled(list(range(40))), None, "is 'label' the label column"),
        (labelled([0, 1, None] * 9), None, "9 train rows have no label"),
        (labelled(["0", "1", " "] * 9), None, "9 train rows have no label"),
        (labelled([i / 7 for i in range(1, 41)]), None, "--task regression"),
        (labelled([0, 1] * 9), labelled([0, None]), "1 search rows have no label"),
    ],
)
def test_data_that_does_not_fit_is_refused(tmp_path: Path, train: Rows, validation: Rows, says: str) -> None:
    other = validation and write(tmp_path, validation, "validation")
    with pytest.raises(DataError, match=says):
        load(write(tmp_path, train), validation=other)


@pytest.mark.parametrize(
    ("there", "named", "expected"),
    [
        (["label", "review", "text"], Columns(), Columns("text", None, "label")),
        (["premise", "hypothesis", "label"], Columns(), Columns("premise", "hypothesis", "label")),
        (["question", "sentence", "label"], Columns(), Columns("question", "sentence", "label")),
        (["text", "stars", "label"], Columns(label="stars"), Columns("text", None, "stars")),
        (["a", "b", "label"], Columns(text="a", pair="b"), Columns("a", "b", "label")),
        # Who names the text wants no pair that was not named.
        (["sentence1", "sentence2", "label"], Columns(text="sentence1"), Columns("sentence1", None, "label")),
        # A pair that was named is not another one.
        (
            ["premise", "hypothesis", "text", "other", "label"],
            Columns(pair="other"),
            Columns("text", "other", "label"),
        ),
        # The only column left is the text.
        (["review_body", "sentiment"], Columns(label="sentiment"), Columns("review_body", None, "sentiment")),
    ],
)
def test_a_pair_or_a_text_is_found_by_name(there: list[str], named: Columns, expected: Columns) -> None:
    table = pd.DataFrame(columns=there)
    assert TextClassification.find_columns(table, DataSource("a.csv", columns=named)) == expected


def test_everything_that_is_missing_is_named_at_once() -> None:
    table = pd.DataFrame(columns=["words", "id", "mood"])
    with pytest.raises(DataError, match=r"no text .* and no label .* among words, id, mood"):
        TextClassification.find_columns(table, DataSource("a.csv"))


def tiny_tokenizer() -> BertTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def test_encoding_cuts_at_the_reference_and_a_pair_has_two_token_types() -> None:
    examples = TextExamples(("a", "a b c d a b"), None, (1, 0))
    encoded = TextClassification({}, ("x", "y"), {"train": examples}).encode("train", tiny_tokenizer(), 6)
    assert [feature["input_ids"] for feature in encoded] == [[2, 5, 3], [2, 5, 6, 7, 8, 3]]
    assert [feature["labels"] for feature in encoded] == [1, 0]
    assert encoded.lengths.tolist() == [3, 6]
    assert (encoded.workload.reference, encoded.workload.mean_length) == (6, 4.5)
    pair = TextClassification({}, ("x", "y"), {"train": TextExamples(("a b",), ("c",), (0,))})
    (feature,) = pair.encode("train", tiny_tokenizer(), 16)
    assert feature["input_ids"] == [2, 5, 6, 3, 7, 3]
    assert feature["token_type_ids"] == [0, 0, 0, 0, 1, 1]


NAMES = ("neg", "neutral", "pos")
TOPICS = tuple(f"t{i}" for i in range(12))


@pytest.mark.parametrize(
    ("labels", "known", "names", "ids"),
    [
        ([10, 9, 10, 9], None, ("9", "10"), (1, 0, 1, 0)),  # by value, not by spelling
        ([1, -1, 0, 0, 1, 0], None, ("-1", "0", "1"), (2, 0, 1, 1, 2, 1)),
        (["b", "B", "b", "B"], None, ("B", "b"), (1, 0, 1, 0)),
        (["10", "9", "9", "10"], None, ("9", "10"), (1, 0, 0, 1)),
        (["10", "x9", "x9", "10"], None, ("10", "x9"), (0, 1, 1, 0)),
        (["01", "00", "00", "01"], None, ("00", "01"), (1, 0, 0, 1)),  # text stays as it is
        ([True, False, True, True], None, ("False", "True"), (1, 0, 1, 1)),
        ([1.0, 0.0, 1.0, 0.0], None, ("0", "1"), (1, 0, 1, 0)),  # whole numbers that a file wrote as floats
        # Names of a fine-tuned head, in its own order, even where not every one occurs.
        (["pos", "neg", "pos", "neg"], NAMES, NAMES, (2, 0, 2, 0)),
        (["a", "b", "a", "b"], ("b", "a"), ("b", "a"), (1, 0, 1, 0)),
        # Ids of such a head.
        ([2, 0, 2, 0], NAMES, NAMES, (2, 0, 2, 0)),
        ([10, 9, 10, 2], TOPICS, TOPICS, (10, 9, 10, 2)),
        # Spelled otherwise.
        (["Pos", "NEG", "Pos", "NEG"], NAMES, NAMES, (2, 0, 2, 0)),
        # One label alone is no problem of a head that exists.
        (["pos", "pos", "pos"], ("neg", "pos"), ("neg", "pos"), (1, 1, 1)),
    ],
)
def test_labels_are_numbered_by_value_or_alphabet_or_as_a_fine_tuned_head_has_them(
    tmp_path: Path,
    labels: list[object],
    known: Sequence[str] | None,
    names: tuple[str, ...],
    ids: tuple[int, ...],
) -> None:
    for order in (1, -1):
        task = two_files(tmp_path, labelled(labels[::order]), labelled(labels[:1] * 2), known=known)
        assert task.labels == names
        assert task.splits["train"].labels == ids[::order]
        assert task.splits["search"].labels == task.splits["report"].labels == (ids[0],)


@pytest.mark.parametrize("labels", [["neg", "ugly"], ["neg", "1"], [0, 2], [-1, 0], ["neg", "Neg"]])
def test_labels_that_a_fine_tuned_head_does_not_have_are_refused(
    tmp_path: Path, labels: list[object]
) -> None:
    with pytest.raises(DataError, match=f"the model classifies neg, pos; .*{labels[1]}.*--labels"):
        load(write(tmp_path, labelled(labels * 10)), known=["neg", "pos"])


def similarities(values: Sequence[object]) -> list[dict[str, object]]:
    """As STS-B has them: two sentences and a number from 0 to 5."""
    return [
        {"sentence1": f"one {i}", "sentence2": f"other {i}", "label": value} for i, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        *(
            (value, "10 train rows have no number in the label column")
            for value in ("high", "nan", "-inf", "1,5")
        ),
        *((value, "10 train rows have no label") for value in (None, "", " ")),
    ],
)
def test_what_is_no_number_is_refused(tmp_path: Path, value: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(write(tmp_path, similarities(["1.5", value, "2", "3"] * 10)), kind="regression")


def test_a_classifier_cannot_go_on_as_a_regressor(tmp_path: Path) -> None:
    data = write(tmp_path, similarities([0.5, 1.5] * 10))
    with pytest.raises(DataError, match="classifies neg, pos; regression needs one output"):
        load(data, ["neg", "pos"], kind="regression")
    assert load(data, ["LABEL_0"], kind="regression").labels == ("LABEL_0",)
    new = load(data, kind="regression")
    assert (new.labels, new.head_config["problem_type"]) == (("score",), "regression")


@pytest.mark.parametrize(
    ("labels", "known", "names", "first"),
    [
        ([[10, 9], [2], []], None, ("2", "9", "10"), [1, 2]),
        ([[10, 9], [2], []], TOPICS, TOPICS, [9, 10]),
        ([["t1", "t3"], ["t3"]], TOPICS, TOPICS, [1, 3]),
    ],
)
def test_several_labels_are_ordered_by_value_or_are_those_of_a_fine_tuned_head(
    tmp_path: Path, labels: list[Any], known: Sequence[str] | None, names: tuple[str, ...], first: list[int]
) -> None:
    task = two_files(tmp_path, labelled(labels * 2), labelled(labels), kind="multi-label", known=known)
    assert task.labels == names
    assert np.flatnonzero(task.splits["train"].labels[0]).tolist() == first
    assert task.head_config["problem_type"] == "multi_label_classification"


@pytest.mark.parametrize(
    ("labels", "known", "says"),
    [
        ([["a"], ["b"], 3], None, "several labels are a list, or names with commas between, not 3"),
        ([["a"], ["b"], None], None, "several labels are a list, or names with commas between"),
        ([[], []], None, "no row of 'label' has a label"),
        ([["a"], ["b"]], ["x", "y"], "classifies x, y; the data's labels are a, b"),
    ],
)
def test_several_labels_that_do_not_fit_are_refused(
    tmp_path: Path, labels: list[object], known: list[str] | None, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        load(write(tmp_path, labelled(labels * 10)), known, kind="multi-label")


def test_several_labels_that_training_never_saw_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="search rows have labels that training never saw: d"):
        two_files(tmp_path, labelled([["a"], ["b"]]), labelled([["a", "d"], ["a"]]), kind="multi-label")


def test_scores_are_those_of_scipy_and_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    logits, gold = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, (40, 3))

    def measured(kind: str, labels: Any, metric: str | None = None) -> float:
        task = TASKS[kind]({}, ("x", "y", "z"), {}, metric_name=metric)
        encoded = Encoded(tuple({"labels": label} for label in labels), 8)
        return score(task.metric, task.statistics(list(logits), encoded)).value

    several = [tuple(map(float, row)) for row in gold]
    expected = f1_score(gold, logits > 0, average="micro")
    assert measured("multi-label", several) == pytest.approx(expected)
    assert 0.2 < expected < 0.8  # or the two would agree on little
    classes = gold.argmax(axis=1)
    assert measured("classification", classes) == np.mean(classes == logits.argmax(axis=1))
    numbers = logits[:, 0] + rng.normal(size=40)
    assert measured("regression", numbers) == pytest.approx(
        pearsonr(logits[:, 0], numbers).statistic, abs=1e-6
    )
    squared = np.mean((logits[:, 0] - numbers) ** 2)
    assert measured("regression", numbers, "mse") == pytest.approx(squared, rel=1e-5)
