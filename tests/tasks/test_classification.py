"""Text classification: labels of every kind in a stable order, columns, features, scores, refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from ldsearch.errors import DataError
from ldsearch.tasks import TASKS, DataSource, Encoded, TextClassification, load_task
from ldsearch.tasks.base import score
from ldsearch.tasks.classification import TextExamples
from ldsearch.tasks.tables import Columns
from tests.tasks.by_hand import bert
from tests.tasks.test_every_task import write


def load(
    folder: Path, kind: str, labels: Sequence[Any], held: Sequence[Any] | None, known: Sequence[str] | None
) -> Any:
    """Labels of rows whose texts differ, and of validation rows that repeat the texts."""
    data, validation = (
        own and write(folder / name, [{"text": f"text {i}", "label": label} for i, label in enumerate(own)])
        for name, own in (("train.jsonl", labels), ("held.jsonl", held))
    )
    return load_task(kind, DataSource(data, validation=validation, keep_overlap=True), known)


HEAD = ["neg", "pos"]
NAMES = ("neg", "neutral", "pos")
TOPICS = tuple(f"t{i}" for i in range(12))
NAMELESS = tuple(f"LABEL_{i}" for i in range(5))
STARS = ("1 star", *(f"{n} stars" for n in range(2, 6)))

# Of each kind: training labels, those of validation rows, the model's names, what the refusal says.
REFUSED: dict[str, list[tuple[Any, ...]]] = {
    "classification": [
        ([0, 0.125] * 9, [0, 2.5], None, r"never saw: 2.5 \(numbers .* --task regression"),
        ([0, 1] * 9, [0, "x"], None, "never saw: x$"),
        ([0, 1] * 9, [0, None], None, "1 search rows have no label"),
        (["a"] * 20, None, None, "at least two labels"),
        ([["O"] * 3] * 20, None, None, "holds lists: .*multi-label, .* --task tokens"),
        (list(range(40)), None, None, "is 'label' the label column"),
        ([0, 1, None] * 9, None, None, "9 train rows have no label"),
        (["0", "1", " "] * 9, None, None, "9 train rows have no label"),
        *(
            (own * 10, None, HEAD, f"classifies neg, pos; .*{own[1]}.*--labels")
            for own in (["neg", "ugly"], ["neg", "1"], [0, 2], [-1, 0], ["neg", "Neg"])
        ),
        ([2, 3, 4, 5] * 5, None, NAMELESS, "in the order of the model's with --labels"),
    ],
    "regression": [
        *((["1", own] * 10, None, None, "10 train rows have no number") for own in ("high", "nan", "-inf")),
        *((["1", own] * 10, None, None, "10 train rows have no label") for own in (None, "", " ")),
        (["1.5", "1,5"] * 10, None, None, r"needed, not a comma \(the first is row 1\)"),
        ([0.5, 1.5] * 10, None, HEAD, "classifies neg, pos; regression needs one output"),
    ],
    "multi-label": [
        ([["a"], ["b"], 3] * 10, None, None, "a list, or names with commas between, not 3"),
        ([["a"], ["b"], None] * 10, None, None, "a list, or names with commas between, not"),
        (["['joy' 'anger']"] * 20, None, None, "is a list as NumPy prints it"),
        ([[], []] * 10, None, None, "no row of 'label' has a label"),
        ([["a"], ["b"]], [["a", "d"], ["a"]], None, "search rows .* never saw: d"),
        ([["a"], ["b"]] * 10, None, ["x", "y"], "classifies x, y; the data's labels are a, b"),
    ],
}


def each(cases: dict[str, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    return [(kind, *case) for kind, own in cases.items() for case in own]


@pytest.mark.parametrize(("kind", "labels", "held", "known", "says"), each(REFUSED))
def test_labels_that_do_not_fit_are_refused(
    tmp_path: Path, kind: str, labels: list[Any], held: list[Any] | None, known: list[str] | None, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        load(tmp_path, kind, labels, held, known)


@pytest.mark.parametrize(
    ("there", "named", "expected"),
    [
        (["label", "review", "text"], Columns(), Columns("text", None, "label")),
        (["premise", "hypothesis", "label"], Columns(), Columns("premise", "hypothesis", "label")),
        (["text", "stars", "label"], Columns(label="stars"), Columns("text", None, "stars")),
        (["a", "b", "label"], Columns(text="a", pair="b"), Columns("a", "b", "label")),
        # Who names the text wants no pair that was not named.
        (["sentence1", "sentence2", "label"], Columns(text="sentence1"), Columns("sentence1", None, "label")),
        # A pair that was named is not another one.
        (["premise", "hypothesis", "text", "b", "label"], Columns(pair="b"), Columns("text", "b", "label")),
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


def test_encoding_cuts_at_the_reference_and_a_pair_has_two_token_types() -> None:
    tokenizer = bert("a", "b", "c", "d")
    examples = TextExamples(("a", "a b c d a b"), None, (1, 0))
    encoded = TextClassification({}, ("x", "y"), {"train": examples}).encode("train", tokenizer, 6)
    assert [feature["input_ids"] for feature in encoded] == [[2, 5, 3], [2, 5, 6, 7, 8, 3]]
    assert [feature["labels"] for feature in encoded] == [1, 0]
    assert encoded.lengths.tolist() == [3, 6]
    assert (encoded.workload.reference, encoded.workload.mean_length) == (6, 4.5)
    pair = TextClassification({}, ("x", "y"), {"train": TextExamples(("a b",), ("c",), (0,))})
    (feature,) = pair.encode("train", tokenizer, 16)
    assert feature["input_ids"] == [2, 5, 6, 3, 7, 3]
    assert feature["token_type_ids"] == [0, 0, 0, 0, 1, 1]


# Of each kind: labels, the model's names; the names in id order, and the labels by these.
NUMBERED: dict[str, list[tuple[Any, ...]]] = {
    "classification": [
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
        # Spelled otherwise, or with other words around a number.
        (["Pos", "NEG", "Pos", "NEG"], NAMES, NAMES, (2, 0, 2, 0)),
        ([2, 5, 1, 3], STARS, STARS, (1, 4, 0, 2)),
        # Names that nobody gave, of the model or of the data.
        (["b", "a", "a", "b"], NAMELESS[:2], NAMELESS[:2], (1, 0, 0, 1)),
        ([5, 2, 1, 3, 4] * 2, NAMELESS, NAMELESS, (4, 1, 0, 2, 3) * 2),
        (["LABEL_1", "LABEL_0"], ("a", "b"), ("a", "b"), (1, 0)),
        # One label alone is no problem of a head that exists.
        (["pos", "pos", "pos"], ("neg", "pos"), ("neg", "pos"), (1, 1, 1)),
    ],
    "regression": [
        ([0.5, -1.5], None, ("score",), (0.5, -1.5)),
        ([0.5, -1.5], NAMELESS[:1], NAMELESS[:1], (0.5, -1.5)),
    ],
    "multi-label": [
        ([[10, 9], [2], []], None, ("2", "9", "10"), ((0, 1, 1), (1, 0, 0), (0, 0, 0))),
        ([["c", "b"], ["b"]], ("a", "b", "c"), ("a", "b", "c"), ((0, 1, 1), (0, 1, 0))),
        ([[2, 1], [1]], NAMES, NAMES, ((0, 1, 1), (0, 1, 0))),
    ],
}


@pytest.mark.parametrize(("kind", "labels", "known", "names", "ids"), each(NUMBERED))
def test_labels_are_numbered_by_value_or_alphabet_or_as_a_fine_tuned_head_has_them(
    tmp_path: Path,
    kind: str,
    labels: list[Any],
    known: Sequence[str] | None,
    names: tuple[str, ...],
    ids: tuple[Any, ...],
) -> None:
    for order in (1, -1):
        task = load(tmp_path, kind, labels[::order], labels[:1] * 2, known)
        assert task.labels == names
        assert task.splits["train"].labels == ids[::order]
        assert task.splits["search"].labels == task.splits["report"].labels == (ids[0],)
        assert kind.replace("-", "_") in task.head_config["problem_type"]


def test_names_for_labels_that_have_none_are_told(tmp_path: Path) -> None:
    told = load(tmp_path, "classification", ["neg", "pos"], ["pos", "neg"], ["LABEL_0", "LABEL_1"]).note
    assert told.startswith("the model's labels have no names: LABEL_0 for neg, LABEL_1 for pos; --labels")
    assert not load(tmp_path, "classification", ["NEG", "pos"], ["pos", "NEG"], HEAD).note


def test_scores_are_those_of_scipy_and_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    logits, gold = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, (40, 3))

    def measured(kind: str, labels: Any, metric: str | None = None) -> float:
        task = TASKS[kind]({}, ("x", "y", "z"), {}, metric_name=metric)
        encoded = Encoded(tuple({"labels": label} for label in labels), 8)
        return score(task.metric, task.statistics(list(logits), encoded)).value

    expected = f1_score(gold, logits > 0, average="micro")
    assert measured("multi-label", [tuple(map(float, row)) for row in gold]) == pytest.approx(expected)
    assert 0.2 < expected < 0.8  # or the two would agree on little
    classes = gold.argmax(axis=1)
    assert measured("classification", classes) == np.mean(classes == logits.argmax(axis=1))
    first, numbers = logits[:, 0], logits[:, 0] + rng.normal(size=40)
    assert measured("regression", numbers) == pytest.approx(pearsonr(first, numbers).statistic, abs=1e-6)
    assert measured("regression", numbers, "mse") == pytest.approx(np.mean((first - numbers) ** 2), rel=1e-5)
