"""Token classification: labels on first tokens, entities counted by hand, words that are cut off missed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BertTokenizer, PreTrainedTokenizerBase, RobertaTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks.tables import DataSource
from ldsearch.tasks.tokens import TaggedExamples, TokenClassification
from tests.tasks.by_hand import bert

LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")


def tokenizer() -> BertTokenizer:
    return bert("ad", "##am", "lives", "in", "lon", "##don", ".", "new")


def tagged(*sentences: tuple[str, str], labels: tuple[str, ...] = LABELS, metric: str = "f1") -> Any:
    """A task whose train split has the sentences, given as words and tags with spaces between."""
    words = tuple(tuple(text.split(" ")) for text, _ in sentences)
    tags = tuple(tuple(labels.index(tag) for tag in names.split(" ")) for _, names in sentences)
    return TokenClassification({}, labels, {"train": TaggedExamples(words, tags)}, metric_name=metric)


# Sentences that share no words.
ROWS = [{"tokens": [f"w{i}", f"x{i}", f"y{i}"], "ner_tags": ["B-PER", "I-PER", "O"]} for i in range(20)]


def load(*rows: Sequence[dict[str, Any]], known: Sequence[str] | None = None, **how: Any) -> Any:
    """A task of training rows, and of validation rows if there are some."""
    tables = {role: pd.DataFrame(own) for role, own in zip(("train", "search"), rows, strict=False)}
    return TokenClassification.of_tables(tables, DataSource("rows", **how), known)


def retagged(*tags: object) -> list[dict[str, Any]]:
    return [{**row, "ner_tags": list(tags)} for row in ROWS]


LONDON = "Adam lives in London .", "B-PER O O B-LOC O"


def test_a_words_first_token_has_its_label_and_no_other_token_has_one() -> None:
    task = tagged(LONDON, ("in", "O"))
    first, second = task.encode("train", tokenizer(), 16)
    pieces = tokenizer().convert_ids_to_tokens(first["input_ids"])
    assert pieces == ["[CLS]", "ad", "##am", "lives", "in", "lon", "##don", ".", "[SEP]"]
    assert first["labels"] == [-100, 1, -100, 4, 4, 0, -100, 4, -100]
    assert first["attention_mask"] == [1] * 9
    assert second["labels"] == [-100, 4, -100]


def test_a_word_that_the_tokenizer_splits_or_drops_does_not_shift_its_neighbours_labels() -> None:
    task = tagged(("in. \u200b London", "B-PER I-PER B-LOC"))
    encoded = task.encode("train", tokenizer(), 16)
    assert encoded[0]["input_ids"] == [2, 8, 11, 9, 10, 3]
    assert encoded[0]["labels"] == [-100, 1, -100, 0, -100, -100]
    assert [first.tolist() for first in encoded.firsts] == [[1, -1, 3]]


def test_words_behind_the_cut_are_missed() -> None:
    perfect = np.array([4, 1, 4, 4, 4, 4])
    for metric, counts in (("f1", [1, 1, 2]), ("accuracy", [3, 5])):
        task = tagged(LONDON, metric=metric)
        encoded = task.encode("train", tokenizer(), 6)
        assert encoded[0]["labels"] == [-100, 1, -100, 4, 4, -100]
        assert task.statistics([perfect], encoded).tolist() == [counts]


@pytest.mark.parametrize("labels", [LABELS, LABELS[::-1], ("I-PER", "O", "B-PER")])
def test_a_word_without_a_token_is_outside_every_entity_and_never_right(labels: tuple[str, ...]) -> None:
    sentence = "Adam \u200b London", "B-PER O B-PER"
    begin, inside = labels.index("B-PER"), labels.index("I-PER")
    task = tagged(sentence, labels=labels)
    encoded = task.encode("train", tokenizer(), 16)
    both = [np.array([inside, begin, inside, begin, inside, inside])]
    assert task.statistics(both, encoded).tolist() == [[2, 2, 2]]
    # No entity goes on behind it.
    going_on = [np.array([inside, begin, inside, inside, inside, inside])]
    assert task.statistics(going_on, encoded).tolist() == [[2, 2, 2]]
    # Even though O is what is right: the model did not say so.
    accurate = tagged(sentence, labels=labels, metric="accuracy")
    assert accurate.statistics(both, encoded).tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("gold", "predicted", "counts"),  # the last of correct, predicted and gold entities
    [
        ("B-PER I-PER O", "B-PER I-PER O", (1, 1, 1)),
        ("B-PER I-PER O", "B-PER O O", (0, 1, 1)),  # a shorter one is another
        ("B-PER I-PER O", "B-LOC I-LOC O", (0, 1, 1)),  # so is one of another type
        ("O O O", "B-PER O B-LOC", (0, 2, 0)),
        ("B-PER B-PER O", "B-PER I-PER O", (0, 1, 2)),  # B- begins another
        ("B-PER I-PER B-LOC", "I-PER I-PER I-LOC", (2, 2, 2)),  # I- begins one where none goes on
        ("B-PER O B-LOC", "B-PER I-LOC B-LOC", (2, 3, 2)),  # I- of another type begins one
    ],
)
def test_entities_are_counted_as_by_hand(gold: str, predicted: str, counts: tuple[int, ...]) -> None:
    task = tagged(("in lives new", gold))
    encoded = task.encode("train", tokenizer(), 8)
    outputs = [np.array([1, *(LABELS.index(tag) for tag in predicted.split()), 1])]
    assert task.statistics(outputs, encoded).tolist() == [list(counts)]


def byte_level(prefix: bool) -> RobertaTokenizer:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    ids = {piece: index for index, piece in enumerate(pieces)}
    return RobertaTokenizer(vocab=ids, merges=[], add_prefix_space=prefix)


@pytest.mark.parametrize("made", [tokenizer, lambda: byte_level(False), lambda: byte_level(True)])
def test_the_model_reads_the_words_as_it_would_read_the_sentence(
    made: Callable[[], PreTrainedTokenizerBase],
) -> None:
    task = tagged(("Adam lives in London", "B-PER O O B-LOC"))
    feature = task.encode("train", made(), 64)[0]
    assert feature["input_ids"] == made()("Adam lives in London")["input_ids"]
    assert [label for label in feature["labels"] if label != -100] == [1, 4, 4, 0]


@pytest.mark.parametrize(
    ("given", "known", "labels", "metric"),
    [
        (["B-X", "O", "O"], None, ("B-X", "O"), "f1"),
        (["I-X", "O", "O"], None, ("I-X", "O"), "f1"),
        (["NN", "VB", "NN"], None, ("NN", "VB"), "accuracy"),
        ([10, 9, 2], None, ("2", "9", "10"), "accuracy"),
        ([2, 0, 1], ["O", "B-X", "I-X"], ("O", "B-X", "I-X"), "f1"),  # ids of a fine-tuned model
        (["O", "B-X", "O"], ["O", "B-X", "I-X"], ("O", "B-X", "I-X"), "f1"),
    ],
)
def test_labels_have_a_stable_order_and_tell_the_default_metric(
    given: list[object], known: list[str] | None, labels: tuple[str, ...], metric: str
) -> None:
    task = load(retagged(*given), known=known)
    assert task.labels == labels
    ids = tuple(labels.index(str(tag)) if str(tag) in labels else tag for tag in given)
    assert set(task.splits["train"].tags) == {ids}
    assert task.metric.name == metric


def test_another_metric_may_be_chosen_where_it_fits_the_labels() -> None:
    assert load(ROWS, metric="accuracy").metric.name == "accuracy"
    with pytest.raises(DataError, match="not NN: choose --metric accuracy"):
        load(retagged("NN", "B-X", "O"), metric="f1")


ROW = {"tokens": ["a", "b"], "ner_tags": ["B-PER", "O"]}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[ROW, {**ROW, "tokens": ["a"]}]], "1 train rows have not as many tags as words .*row 1"),
        ([[{**ROW, "tokens": "a b"}]], "1 train rows have no list of words"),
        ([[ROW, {**ROW, "ner_tags": "O O"}]], "no list of tags in column 'ner_tags' .*row 1"),
        ([[{**ROW, "tokens": ["a", 2]}]], "no list of words"),
        ([[{**ROW, "tokens": ["a", None]}]], "no list of words"),
        ([[ROW, {"tokens": [], "ner_tags": []}]], "1 train rows have no list of words"),
        ([[{**ROW, "ner_tags": ["O", None]}]], "1 train rows have no label"),
        ([retagged("O", "O", "O")], "at least two labels"),
        ([ROWS, [{**ROW, "ner_tags": ["B-LOC", "O"]}]], "search rows .* never saw: B-LOC"),
    ],
)
def test_rows_that_are_misshapen_or_have_strange_tags_are_refused(
    rows: list[list[dict[str, Any]]], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        load(*rows)


WORDS = [["Ada", "lived", "here."], ["No,", "so", "did", "Bo", "王", "in", "it."], ["Yes", "."], ["Oh"]]
TEXTS = ["Ada lived here.", " No, so  did Bo王 in it.", "Yes .", "Oh"]


@pytest.mark.parametrize(
    "table",
    [
        {"text": TEXTS},
        {"text": [TEXTS[0], "", *TEXTS[1:], " "]},
        {"text": TEXTS, "label": [[], [], [], []]},
        {"text": TEXTS, "comments": [[], ["why"], [], []]},
        {"id": [1, 2, 3, 4], "sentence": TEXTS, "ner_tags": [None, None, float("nan"), ""]},
        {"tokens": WORDS},
        {"words": WORDS, "tags": [[-1, -1, -1], [], [None], [""]]},
    ],
    ids=lambda table: " ".join(table),
)
def test_rows_without_tags_are_their_words(table: dict[str, list[Any]]) -> None:
    source = DataSource("given")
    prepared = TokenClassification.prepare_table(pd.DataFrame(table), source)
    (column,) = {*prepared} & {"tokens", "text", "sentence", "words"}
    assert [list(row) for row in prepared[column]] == WORDS
    labels = {*prepared} & {"label", "ner_tags", "tags"}
    assert all(prepared[label].map(TokenClassification.is_hidden).all() for label in labels)
    blanks = TokenClassification.blanks(prepared, source, ["B-X", "O"])
    assert blanks == [["O"] * len(row) for row in WORDS]


def test_lines_with_columns_are_no_texts() -> None:
    lines = [line for word in ["a", "b", "c"] for line in (f"{word} NN B-X", f"{word} VB", "")]
    prepared = TokenClassification.prepare_table(pd.DataFrame({"text": lines}), DataSource("given"))
    assert list(prepared["tags"][0]) == ["B-X", "VB"]
    assert len(prepared) == 3
