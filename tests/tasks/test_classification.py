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
from ldsearch.tasks import DataSource, Encoded, TextClassification, load_task
from ldsearch.tasks.base import fingerprints_of, score
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


@pytest.mark.parametrize(
    ("train", "validation", "says"),
    [
        (labelled([0, 1] * 9), labelled([0, 7]), "never saw: 7"),
        (labelled(["a"] * 20), None, "at least two labels"),
        (labelled(list(range(40))), None, "is 'label' the label column"),
        (labelled([0, 1, None] * 9), None, "9 train rows have no label"),
        (labelled([0, 1] * 9), labelled([0, None]), "1 search rows have no label"),
        (labelled([0, 1] * 9), [{"text": None, "label": 1}], "1 search rows have no text"),
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
        (["text", "other", "class"], Columns(pair="other"), Columns("text", "other", "class")),
        # The only column left is the text.
        (["review_body", "sentiment"], Columns(label="sentiment"), Columns("review_body", None, "sentiment")),
    ],
)
def test_a_pair_or_a_text_is_found_by_name(there: list[str], named: Columns, expected: Columns) -> None:
    table = pd.DataFrame(columns=there)
    assert TextClassification.find_columns(table, DataSource("a.csv", columns=named)) == expected


def test_everything_that_is_missing_is_named_at_once() -> None:
    table = pd.DataFrame(columns=["words", "id", "sentiment"])
    with pytest.raises(DataError, match=r"no text .* and no label .* among words, id, sentiment"):
        TextClassification.find_columns(table, DataSource("a.csv"))


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


@pytest.mark.parametrize(
    ("labels", "names", "ids"),
    [
        ([10, 9, 10, 9], ["9", "10"], [1, 0, 1, 0]),  # by value, not by spelling
        ([1, -1, 0, 0, 1, 0], ["-1", "0", "1"], [2, 0, 1, 1, 2, 1]),
        (["b", "a", "b", "b"], ["a", "b"], [1, 0, 1, 1]),
        (["b", "B", "b", "B"], ["B", "b"], [1, 0, 1, 0]),
        (["10", "9", "9", "10"], ["9", "10"], [1, 0, 0, 1]),
        (["10", "x9", "x9", "10"], ["10", "x9"], [0, 1, 1, 0]),
        ([True, False, True, True], ["False", "True"], [1, 0, 1, 1]),
    ],
)
def test_labels_are_numbered_by_value_or_alphabet_not_by_appearance(
    tmp_path: Path, labels: list[object], names: list[str], ids: list[int]
) -> None:
    task = two_files(tmp_path, labelled(labels), labelled(labels[:1] * 2))
    assert task.labels == tuple(names)
    assert task.splits["train"].labels == tuple(ids)
    assert task.splits["search"].labels == task.splits["report"].labels == (ids[0],)
    reversed_task = two_files(tmp_path, labelled(labels[::-1]), labelled(labels[:1] * 2))
    assert reversed_task.labels == tuple(names)


@pytest.mark.parametrize(
    ("known", "labels", "names", "ids"),
    [
        # Names of a fine-tuned head, in its own order, even where not every one occurs.
        (["neg", "neutral", "pos"], ["pos", "neg", "pos", "neg"], ("neg", "neutral", "pos"), (2, 0, 2, 0)),
        (["b", "a"], ["a", "b", "a", "b"], ("b", "a"), (1, 0, 1, 0)),
        # Ids of such a head.
        (["neg", "neutral", "pos"], [2, 0, 2, 0], ("neg", "neutral", "pos"), (2, 0, 2, 0)),
        ([f"t{i}" for i in range(12)], [10, 9, 10, 2], tuple(f"t{i}" for i in range(12)), (10, 9, 10, 2)),
        # One label alone is no problem of a head that exists.
        (["neg", "pos"], ["pos", "pos", "pos"], ("neg", "pos"), (1, 1, 1)),
    ],
)
def test_a_fine_tuned_head_keeps_its_ids(
    tmp_path: Path, known: list[str], labels: list[object], names: tuple[str, ...], ids: tuple[int, ...]
) -> None:
    task = two_files(tmp_path, labelled(labels), labelled(labels[:2]), known=known)
    assert task.labels == names
    assert task.splits["train"].labels == ids


@pytest.mark.parametrize("labels", [["neg", "ugly"], ["neg", "1"], [0, 2], [-1, 0]])
def test_labels_that_a_fine_tuned_head_does_not_have_are_refused(
    tmp_path: Path, labels: list[object]
) -> None:
    with pytest.raises(DataError, match="the model classifies neg, pos; the data's labels are") as caught:
        load(write(tmp_path, labelled(labels * 10)), known=["neg", "pos"])
    assert str(labels[1]) in str(caught.value)


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_label_is_a_missing_label(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "blank.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{[0, 1, blank][i % 3]}\n" for i in range(30)))
    with pytest.raises(DataError, match=r"[0-9] train rows have no label"):
        load(str(path))


def test_text_and_labels_that_look_like_numbers_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("text,label\n" + "".join(f"000{i},0{i % 2}\n" for i in range(30)))
    task = load(str(path))
    assert task.labels == ("00", "01")
    assert all(text.startswith("000") for text in task.splits["train"].texts)


def test_whole_numbers_written_as_floats_are_the_same_labels(tmp_path: Path) -> None:
    rows = [{"text": f"text {i}", "label": float(i % 2)} for i in range(30)]
    assert load(write(tmp_path, rows)).labels == ("0", "1")


def similarities(values: list[object]) -> list[dict[str, object]]:
    """As STS-B has them: two sentences and a number from 0 to 5."""
    return [
        {"sentence1": f"one {i}", "sentence2": f"other {i}", "label": value} for i, value in enumerate(values)
    ]


def test_numbers_are_labels_as_they_are_from_json_and_from_text(tmp_path: Path) -> None:
    values: list[object] = [3.25, 0, 5, 1.0, 4.999, -0.5]
    rows = similarities(values)
    task = two_files(tmp_path, rows, rows[:2], kind="regression")
    assert task.splits["train"].labels == (3.25, 0.0, 5.0, 1.0, 4.999, -0.5)
    assert all(type(label) is float for label in task.splits["train"].labels)
    assert task.splits["train"].pairs == tuple(f"other {i}" for i in range(6))
    assert (task.labels, task.source["task"]) == (("score",), "regression")
    assert task.head_config["problem_type"] == "regression"
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame(rows[:2]).to_csv(tmp_path / "v.csv", index=False)
    paths = (str(tmp_path / name) for name in ("t.csv", "v.csv"))
    written = load(next(paths), kind="regression", validation=next(paths), keep_overlap=True)
    assert fingerprints_of(written) == fingerprints_of(task)


@pytest.mark.parametrize("value", ["high", "nan", "inf", "-inf", "1,5", "3 stars"])
def test_what_is_no_number_is_refused_in_one_line(tmp_path: Path, value: str) -> None:
    rows = similarities(["1.5", value, "2", "3"] * 10)
    with pytest.raises(DataError, match="10 train rows have no number in the label column 'label'") as caught:
        load(write(tmp_path, rows), kind="regression")
    assert "\n" not in str(caught.value)


def test_a_classifier_cannot_go_on_as_a_regressor(tmp_path: Path) -> None:
    data = write(tmp_path, similarities([0.5, 1.5] * 10))
    with pytest.raises(DataError, match="classifies neg, pos; regression needs one output"):
        load(data, ["neg", "pos"], kind="regression")
    assert load(data, ["LABEL_0"], kind="regression").labels == ("LABEL_0",)


def test_regression_is_scored_by_correlation_or_by_squared_error(tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(0, 5, 30).round(2)
    rows = similarities(values.tolist())
    noise = np.random.default_rng(1).normal(size=30)
    outputs = [np.array([value], dtype=np.float32) for value in 2 * values + noise]
    encoded = Encoded(tuple({"labels": float(value)} for value in values), 8)
    found = {}
    for metric in (None, "mse"):
        task = two_files(tmp_path, rows, rows, kind="regression", metric=metric)
        statistics = task.statistics(outputs, encoded)
        assert statistics.shape == task.metric.shape(30)
        found[task.metric.name] = score(task.metric, statistics)
    assert found["pearson"].value == pytest.approx(pearsonr(2 * values + noise, values).statistic, abs=1e-6)
    assert found["pearson"].higher_is_better
    assert found["mse"].value == pytest.approx(np.mean((values + noise) ** 2), rel=1e-5)
    assert not found["mse"].higher_is_better


SEVERAL = [["b", "a"], [], ["c"], ["a"], ["c", "b", "a"], []]
AS_IDS = ((1, 1, 0), (0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 1, 1), (0, 0, 0))


def test_several_labels_are_a_list_or_text_with_commas(tmp_path: Path) -> None:
    listed = labelled(SEVERAL)
    written = labelled([" , ".join(names) for names in SEVERAL])
    pd.DataFrame(listed).to_parquet(tmp_path / "train.parquet")
    pd.DataFrame(written).to_csv(tmp_path / "train.csv", index=False)
    paths = [write(tmp_path, listed, "lists"), write(tmp_path, written, "texts")]
    paths += [str(tmp_path / "train.parquet"), str(tmp_path / "train.csv")]
    validation = write(tmp_path, listed, "validation")
    for path in paths:
        task = load(path, kind="multi-label", validation=validation, keep_overlap=True)
        assert task.labels == ("a", "b", "c"), path
        assert task.splits["train"].labels == AS_IDS, path
        assert task.head_config["problem_type"] == "multi_label_classification"
        assert (task.source["task"], task.metric.name) == ("multi-label", "micro-f1")


def test_several_ids_are_ordered_by_value_and_may_be_those_of_a_fine_tuned_head(tmp_path: Path) -> None:
    rows = labelled([[10, 9], [2], []] * 2)
    assert two_files(tmp_path, rows, rows, kind="multi-label").labels == ("2", "9", "10")
    known = [f"topic {i}" for i in range(11)]
    task = two_files(tmp_path, rows, rows, kind="multi-label", known=known)
    assert task.labels == tuple(known)
    assert np.flatnonzero(task.splits["train"].labels[0]).tolist() == [9, 10]
    named = labelled([["topic 3"], ["topic 1", "topic 3"]])
    task = two_files(tmp_path, named, named, kind="multi-label", known=known)
    assert task.labels == tuple(known)
    assert np.flatnonzero(task.splits["train"].labels[1]).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("labels", "known", "says"),
    [
        ([["a"], ["b"], 3], None, "several labels are a list, or names with commas between, not 3"),
        ([["a"], ["b"], None], None, "several labels are a list, or names with commas between"),
        ([[], []], None, "no row of 'label' has a label"),
        ([["a"], ["b"]], ["x", "y"], "classifies x, y; the data's labels are a, b"),
    ],
)
def test_several_labels_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, labels: list[object], known: list[str] | None, says: str
) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load(write(tmp_path, labelled(labels * 10)), known, kind="multi-label")
    assert "\n" not in str(caught.value)


def test_one_of_several_labels_that_training_never_saw_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="search rows have labels that training never saw: d"):
        two_files(tmp_path, labelled(SEVERAL), labelled([["a", "d"], ["a"]]), kind="multi-label")


def test_several_labels_are_scored_by_micro_f1_of_those_more_likely_than_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 3)).astype(np.float32)
    gold = rng.integers(0, 2, (40, 3))
    task = two_files(tmp_path, labelled(SEVERAL), labelled(SEVERAL), kind="multi-label")
    encoded = Encoded(tuple({"labels": tuple(map(float, row))} for row in gold), 8)
    found = score(task.metric, task.statistics(list(logits), encoded))
    assert found.value == pytest.approx(f1_score(gold, logits > 0, average="micro"))
    assert 0.2 < found.value < 0.8  # or the two would agree on little
