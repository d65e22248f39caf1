"""Text classification: labels in a stable order, splits that share no text, fingerprints that notice."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks import TextClassification
from ldsearch.tasks.classification import Examples, load_classification
from ldsearch.tasks.tables import Columns

Rows = Sequence[dict[str, object]]
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows to a jsonl file; returns its path."""

    def write_rows(rows: Rows, name: str = "train") -> str:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


def labelled(labels: Sequence[object], prefix: str = "text") -> list[dict[str, object]]:
    return [{"text": f"{prefix} {index}", "label": label} for index, label in enumerate(labels)]


def two_files(write: Write, train: Rows, validation: Rows, **options: object) -> TextClassification:
    """Every row stays where it is, so that the files may repeat each other."""
    return load_classification(
        write(train),
        validation=write(validation, "validation"),
        keep_overlap=True,
        **options,  # type: ignore[arg-type]
    )


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
    write: Write, labels: list[object], names: list[str], ids: list[int]
) -> None:
    task = two_files(write, labelled(labels), labelled(labels[:1] * 2))
    assert task.labels == tuple(names)
    assert task.splits["train"].labels == tuple(ids)
    assert task.splits["search"].labels == task.splits["report"].labels == (ids[0],)
    reversed_task = two_files(write, labelled(labels[::-1]), labelled(labels[:1] * 2))
    assert reversed_task.labels == tuple(names)


def test_texts_and_pairs_come_as_they_are(write: Write) -> None:
    rows = [
        {"premise": "It rains.", "hypothesis": "NA", "label": "yes"},
        {"premise": "  007 ", "hypothesis": "", "label": "no"},
    ]
    task = two_files(write, rows, rows)
    assert task.splits["train"].texts == ("It rains.", "  007 ")
    assert task.splits["train"].pairs == ("NA", "")
    assert task.source["columns"] == {"text": "premise", "pair": "hypothesis", "label": "label"}
    single = two_files(write, rows, rows, columns=Columns(text="hypothesis"))
    assert single.splits["train"].texts == ("NA", "")
    assert single.splits["train"].pairs is None


def test_named_columns_are_used(write: Write) -> None:
    rows = [{"text": "no", "label": 0, "body": f"b{i}", "stars": i % 2 + 1} for i in range(4)]
    task = two_files(write, rows, rows[:2], columns=Columns(text="body", label="stars"))
    assert task.splits["train"].texts == ("b0", "b1", "b2", "b3")
    assert task.labels == ("1", "2")


@pytest.mark.parametrize(
    ("known", "labels", "names", "ids"),
    [
        # Names of a fine-tuned head, in its own order, even where not every one occurs.
        (["neg", "neutral", "pos"], ["pos", "neg", "pos", "neg"], ("neg", "neutral", "pos"), (2, 0, 2, 0)),
        (["b", "a"], ["a", "b", "a", "b"], ("b", "a"), (1, 0, 1, 0)),
        # Ids of such a head.
        (["neg", "neutral", "pos"], [2, 0, 2, 0], ("0", "1", "2"), (2, 0, 2, 0)),
        ([str(i) for i in range(12)], [10, 9, 10, 2], tuple(map(str, range(12))), (10, 9, 10, 2)),
        # One label alone is no problem of a head that exists.
        (["neg", "pos"], ["pos", "pos", "pos"], ("neg", "pos"), (1, 1, 1)),
    ],
)
def test_a_fine_tuned_head_keeps_its_ids(
    write: Write, known: list[str], labels: list[object], names: tuple[str, ...], ids: tuple[int, ...]
) -> None:
    task = two_files(write, labelled(labels), labelled(labels[:2]), known_labels=known)
    assert task.labels == names
    assert task.splits["train"].labels == ids


@pytest.mark.parametrize("labels", [["neg", "ugly"], ["neg", "1"], [0, 2], [-1, 0]])
def test_labels_that_a_fine_tuned_head_does_not_have_are_refused(write: Write, labels: list[object]) -> None:
    with pytest.raises(DataError, match="the model classifies neg, pos; the data's labels are") as caught:
        load_classification(write(labelled(labels * 10)), known_labels=["neg", "pos"])
    assert str(labels[1]) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rows", "cut"), [(5_000, 500), (30_000, 2_000), (64, 6), (6, 1)])
def test_without_validation_two_tenths_are_cut_at_most_2000_rows_each_and_nothing_is_lost(
    write: Write, rows: int, cut: int
) -> None:
    task = load_classification(write(labelled([index % 2 for index in range(rows)])))
    train, search, report = (task.splits[split] for split in ("train", "search", "report"))
    assert (len(train), len(search), len(report)) == (rows - 2 * cut, cut, cut)
    texts = [*train.texts, *search.texts, *report.texts]
    assert sorted(texts) == sorted(f"text {index}" for index in range(rows))
    number = {text: int(text.removeprefix("text ")) for text in texts}
    for part in (train, search, report):
        assert all(number[text] % 2 == label for text, label in zip(part.texts, part.labels, strict=True))


def test_the_cut_is_a_function_of_the_data_alone(write: Write) -> None:
    rows = labelled([index % 2 for index in range(200)])
    random.seed(3)
    np.random.seed(3)
    first = load_classification(write(rows))
    random.seed(4)
    np.random.seed(4)
    again = load_classification(write(rows, "other"))
    assert first.splits == again.splits


def test_a_validation_file_is_halved_and_the_training_rows_that_share_its_text_are_dropped(
    write: Write,
) -> None:
    train = labelled(["a", "b"] * 10)
    validation = [
        {"text": "here is TEXT  3 again", "label": "a"},
        {"text": "text 5", "label": "b"},
        {"text": "five words that others share", "label": "b"},
        {"text": "nothing of the kind", "label": "a"},
    ]
    train.append({"text": "but five words that others share too", "label": "b"})
    paths = write(train), write(validation, "validation")
    task = load_classification(paths[0], validation=paths[1])
    assert task.splits["train"].texts == tuple(f"text {index}" for index in range(20) if index not in (3, 5))
    assert task.splits["train"].labels == tuple(index % 2 for index in range(20) if index not in (3, 5))
    held = [task.splits[split] for split in ("search", "report")]
    assert [len(split) for split in held] == [2, 2]
    rows = [row for split in held for row in zip(split.texts, split.labels, strict=True)]
    assert sorted(rows) == sorted((row["text"], "ab".index(str(row["label"]))) for row in validation)
    assert task.overlap == (
        "dropped 2 training rows that lie in a search or report row, 1 training rows linked by 5 shared "
        "words in a row to a search or report row"
    )
    assert task.source["keep_overlap"] is False

    whole = load_classification(paths[0], validation=paths[1], keep_overlap=True)
    assert whole.splits["train"].texts == tuple(row["text"] for row in train)
    assert whole.overlap == ""
    assert whole.source["keep_overlap"] is True


def test_the_cut_is_not_the_end_of_a_sorted_file(write: Write) -> None:
    task = load_classification(write(labelled([0] * 150 + [1] * 150)))
    assert set(task.splits["search"].labels) == {0, 1}


def test_relative_paths_are_recorded_absolute(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(write(labelled([0, 1] * 10)))
    monkeypatch.chdir(path.parent)
    other = path.with_name(f"other{path.suffix}")
    other.write_bytes(path.read_bytes())
    task = load_classification(path.name, validation=other.name, keep_overlap=True)
    assert task.source["data"] == str(path)
    assert task.source["validation"] == str(other)


@pytest.mark.parametrize(
    "changed",
    [
        Examples(("a", "c"), None, (0, 1)),
        Examples(("a", "b "), None, (0, 1)),
        Examples(("b", "a"), None, (0, 1)),
        Examples(("a", "b"), None, (1, 0)),
        Examples(("a", "b"), ("", ""), (0, 1)),
        Examples(("ab",), None, (0,)),
        Examples(("a",), ("b",), (0, 1)),
    ],
)
def test_a_fingerprint_changes_with_one_letter_one_label_or_the_order(changed: Examples) -> None:
    assert changed.fingerprint != Examples(("a", "b"), None, (0, 1)).fingerprint


def test_a_fingerprint_belongs_to_the_content_not_to_the_file(tmp_path: Path, write: Write) -> None:
    rows = labelled([0, 1, 0, 1])
    for name in ("b.csv", "c.csv"):
        (tmp_path / name).write_text("label,text\n" + "".join(f"{r['label']},{r['text']}\n" for r in rows))
    one = two_files(write, rows, rows)
    other = load_classification(
        str(tmp_path / "b.csv"), validation=str(tmp_path / "c.csv"), keep_overlap=True
    )
    assert one.fingerprints == other.fingerprints
    # Both halves of a file that repeats itself, and the rows of another.
    twice = two_files(write, rows[:2], [rows[0]] * 2).fingerprints
    assert twice["search"] == twice["report"] != twice["train"]


REFUSED: dict[str, tuple[Rows, Rows | None, str]] = {
    "stranger": (labelled([0, 1] * 9), labelled([0, 7]), "never saw: 7"),
    "one label": (labelled(["a"] * 20), None, "at least two labels"),
    "too few rows": (labelled([0, 1]), None, "too few"),
    "one validation row": (labelled([0, 1] * 9), labelled([0], "other"), "1 validation rows are too few"),
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
def test_data_that_does_not_fit_is_one_line(write: Write, case: str) -> None:
    train, validation, says = REFUSED[case]
    other = None if validation is None else write(validation, "validation")
    with pytest.raises(DataError, match=says) as caught:
        load_classification(write(train), validation=other)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hidden", [-1, None, "no column"])
def test_a_test_split_with_hidden_labels_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: object
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "reviews"
    folder.mkdir()
    for name, labels in (("train", [0, 1] * 5), ("validation", [0, 1]), ("test", [hidden] * 3)):
        rows = labelled(labels, name)
        if hidden == "no column" and name == "test":
            rows = [{"text": row["text"]} for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    splits = load_classification(str(folder)).splits
    held = [*splits["search"].texts, *splits["report"].texts]
    assert sorted(held) == ["validation 0", "validation 1"]


def tiny_tokenizer() -> BertTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def test_encoding_cuts_at_the_reference_and_pads_nothing() -> None:
    examples = Examples(("a", "a b c d a b"), None, (1, 0))
    task = TextClassification({}, ("x", "y"), {"train": examples})
    encoded = task.encode("train", tiny_tokenizer(), 6)
    assert [feature["input_ids"] for feature in encoded] == [[2, 5, 3], [2, 5, 6, 7, 8, 3]]
    assert [feature["labels"] for feature in encoded] == [1, 0]
    assert encoded.lengths.tolist() == [3, 6]
    assert encoded.workload.reference == 6
    assert encoded.workload.mean_length == 4.5


def test_a_pair_is_one_sequence_with_two_token_types() -> None:
    examples = Examples(("a b",), ("c",), (0,))
    encoded = TextClassification({}, ("x", "y"), {"train": examples}).encode("train", tiny_tokenizer(), 16)
    assert encoded[0]["input_ids"] == [2, 5, 6, 3, 7, 3]
    assert encoded[0]["token_type_ids"] == [0, 0, 0, 0, 1, 1]


def test_an_unknown_split_is_one_line() -> None:
    task = TextClassification({}, ("x", "y"), {"train": Examples(("a",), None, (0,))})
    with pytest.raises(DataError, match="no report split; there are train"):
        task.encode("report", tiny_tokenizer(), 8)


def test_the_score_is_the_share_of_best_logits_that_are_the_labels() -> None:
    task = TextClassification({}, ("x", "y", "z"), {})
    logits = np.array(
        [[0.1, 0.9, 0.0], [2.0, 1.0, 3.0], [-1.0, -2.0, -3.0], [0.0, 5.0, 1.0]], dtype=np.float32
    )
    statistics = task.statistics(logits, np.array([1, 2, 1, 0]))
    assert statistics.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert task.score(statistics).value == 0.5
    assert task.score(statistics).higher_is_better


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_label_is_a_missing_label(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "blank.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{[0, 1, blank][i % 3]}\n" for i in range(30)))
    with pytest.raises(DataError, match=r"[0-9] train rows have no label"):
        load_classification(str(path))


def test_text_and_labels_that_look_like_numbers_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("text,label\n" + "".join(f"000{i},0{i % 2}\n" for i in range(30)))
    task = load_classification(str(path))
    assert task.labels == ("00", "01")
    assert all(text.startswith("000") for text in task.splits["train"].texts)


def test_whole_numbers_written_as_floats_are_the_same_labels(tmp_path: Path) -> None:
    rows = [{"text": f"text {i}", "label": float(i % 2)} for i in range(30)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert load_classification(str(tmp_path / "a.jsonl")).labels == ("0", "1")
