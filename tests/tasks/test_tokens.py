"""Token classification: labels on first tokens, entities counted by hand, words that are cut off missed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from seqeval.metrics import f1_score
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    BertConfig,
    BertForTokenClassification,
    BertTokenizer,
    PreTrainedTokenizerBase,
    RobertaTokenizer,
)

from ldsearch.errors import DataError
from ldsearch.tasks.base import fingerprints_of, score, trimmed
from ldsearch.tasks.tables import Columns, DataSource
from ldsearch.tasks.tokens import TaggedExamples, TokenClassification, load_tokens

Write = Callable[..., str]
LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "ad",
    "##am",
    "lives",
    "in",
    "lon",
    "##don",
    ".",
    "new",
]


def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(PIECES)})


def tagged(*sentences: tuple[str, str], labels: tuple[str, ...] = LABELS, metric: str = "f1") -> Any:
    """A task whose train split has the sentences, given as words and tags with spaces between."""
    words = tuple(tuple(text.split(" ")) for text, _ in sentences)
    tags = tuple(tuple(labels.index(tag) for tag in names.split(" ")) for _, names in sentences)
    return TokenClassification({}, labels, {"train": TaggedExamples(words, tags)}, metric_name=metric)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows to a jsonl file; returns its path."""

    def write_rows(rows: Sequence[dict[str, object]], name: str = "train") -> str:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


def rows(count: int = 20, words: str = "tokens", tags: str = "ner_tags") -> list[dict[str, object]]:
    """Sentences that share no words."""
    return [{words: [f"w{i}", f"x{i}", f"y{i}"], tags: ["B-PER", "I-PER", "O"]} for i in range(count)]


def test_a_words_first_token_has_its_label_and_no_other_token_has_one() -> None:
    task = tagged(("Adam lives in London .", "B-PER O O B-LOC O"), ("in", "O"))
    first, second = task.encode("train", tokenizer(), 16)
    assert tokenizer().convert_ids_to_tokens(first["input_ids"]) == [
        "[CLS]", "ad", "##am", "lives", "in", "lon", "##don", ".", "[SEP]",
    ]  # fmt: skip
    assert first["labels"] == [-100, 1, -100, 4, 4, 0, -100, 4, -100]
    assert first["attention_mask"] == [1] * 9
    assert second["labels"] == [-100, 4, -100]


def test_a_word_that_the_tokenizer_splits_or_drops_does_not_shift_its_neighbours_labels() -> None:
    task = tagged(("in. \u200b London", "B-PER I-PER B-LOC"))
    encoded = task.encode("train", tokenizer(), 16)
    assert encoded[0]["input_ids"] == [2, 8, 11, 9, 10, 3]
    assert encoded[0]["labels"] == [-100, 1, -100, 0, -100, -100]
    assert [first.tolist() for first in encoded.firsts] == [[1, -1, 3]]


def test_inputs_are_cut_at_the_reference_within_a_word_if_need_be() -> None:
    task = tagged(("Adam lives in London .", "B-PER O O B-LOC O"))
    encoded = task.encode("train", tokenizer(), 7)
    assert encoded[0]["input_ids"] == [2, 5, 6, 7, 8, 9, 3]
    assert encoded[0]["labels"] == [-100, 1, -100, 4, 4, 0, -100]
    assert encoded.reference == 7
    assert encoded.examples == 1


def test_words_behind_the_cut_are_missed() -> None:
    sentence = "Adam lives in London .", "B-PER O O B-LOC O"
    perfect = np.array([4, 1, 4, 4, 4, 4])
    task = tagged(sentence)
    encoded = task.encode("train", tokenizer(), 6)
    assert encoded[0]["labels"] == [-100, 1, -100, 4, 4, -100]
    assert task.statistics([perfect], encoded).tolist() == [[1, 1, 2]]
    accurate = tagged(sentence, metric="accuracy")
    assert accurate.statistics([perfect], encoded).tolist() == [[3, 5]]


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


# Gold tags, predicted tags, (correct, predicted, gold) entities counted by hand.
COUNTED = [
    ("B-PER I-PER O", "B-PER I-PER O", (1, 1, 1)),
    ("B-PER I-PER O", "B-PER O O", (0, 1, 1)),  # a shorter one is another
    ("B-PER I-PER O", "O B-PER O", (0, 1, 1)),
    ("B-PER I-PER O", "B-LOC I-LOC O", (0, 1, 1)),  # so is one of another type
    ("B-PER I-PER O", "O O O", (0, 0, 1)),
    ("O O O", "B-PER O B-LOC", (0, 2, 0)),
    ("O O O", "O O O", (0, 0, 0)),
    ("B-PER B-PER O", "B-PER I-PER O", (0, 1, 2)),  # B- begins another
    ("B-PER I-PER B-LOC", "I-PER I-PER I-LOC", (2, 2, 2)),  # I- begins one where none goes on
    ("B-PER O B-LOC", "B-PER I-LOC B-LOC", (2, 3, 2)),  # I- of another type begins one
    ("B-PER I-PER I-PER", "B-PER I-LOC I-PER", (0, 3, 1)),
]


@pytest.mark.parametrize(("gold", "predicted", "counts"), COUNTED)
def test_entities_are_counted_as_by_hand(gold: str, predicted: str, counts: tuple[int, ...]) -> None:
    task = tagged(("in lives new", gold))
    encoded = task.encode("train", tokenizer(), 8)
    outputs = [np.array([1, *(LABELS.index(tag) for tag in predicted.split()), 1])]
    assert task.statistics(outputs, encoded).tolist() == [list(counts)]


def random_task(metric: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    sentences = []
    for _ in range(200):
        words = rng.choice(["Adam", "lives", "in", "London"], size=rng.integers(1, 9))
        sentences.append((" ".join(words), " ".join(rng.choice(LABELS, size=len(words)))))
    task = tagged(*sentences, metric=metric)
    return task, task.encode("train", tokenizer(), 32)


def test_f1_is_seqevals_of_all_sentences() -> None:
    task, encoded = random_task("f1")
    rng = np.random.default_rng(6)
    outputs, gold, predicted = [], [], []
    for feature in encoded:
        labels = np.array(feature["labels"])
        right = rng.random(len(labels)) < 0.7
        ids = np.where(right & (labels != -100), labels, rng.integers(0, 5, len(labels)))
        outputs.append(ids)
        gold.append([LABELS[i] for i in labels[labels != -100]])
        predicted.append([LABELS[i] for i in ids[labels != -100]])
    measured = score(task.metric, task.statistics(outputs, encoded))
    assert measured.value == pytest.approx(f1_score(gold, predicted), abs=1e-12)
    assert 0.2 < measured.value < 0.9
    assert measured.higher_is_better


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_perfect_predictions_score_one_and_wrong_ones_nothing(metric: str) -> None:
    task, encoded = random_task(metric)
    labels = [np.array(feature["labels"]) for feature in encoded]
    assert score(task.metric, task.statistics(labels, encoded)).value == 1.0
    outside = LABELS.index("O")
    wrong = [np.full_like(row, outside) if metric == "f1" else (row + 1) % 5 for row in labels]
    assert score(task.metric, task.statistics(wrong, encoded)).value == 0.0


def test_accuracy_counts_words_not_sentences_and_not_tokens() -> None:
    task = tagged(("Adam lives", "O B-PER"), ("London in in in", "O O O O"), metric="accuracy")
    encoded = task.encode("train", tokenizer(), 16)
    outputs = [np.array([9, 4, 9, 4, 9]), np.array([9, 4, 9, 4, 4, 0, 9])]
    statistics = task.statistics(outputs, encoded)
    assert statistics.tolist() == [[1, 2], [3, 4]]
    assert score(task.metric, statistics).value == 4 / 6


def test_padding_changes_neither_loss_nor_statistics_and_the_loss_is_the_stock_models() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, num_labels=len(LABELS), initializer_range=0.5,
    )  # fmt: skip
    model = BertForTokenClassification(config).eval()
    task, encoded = random_task("f1")
    measured = []
    for pad_to in (None, 32):
        collate = task.collate(tokenizer(), pad_to)
        outputs, losses = [], []
        for start in range(0, len(encoded), 16):
            features = list(encoded)[start : start + 16]
            batch = collate(features)
            with torch.no_grad():
                result = model(**batch)
            loss = task.objective.loss(result.logits, batch)
            torch.testing.assert_close(loss, result.loss)
            losses.append(loss)
            read = task.read(result.logits, batch)
            assert read.shape == batch["input_ids"].shape
            outputs += trimmed(
                read.numpy(), [len(feature["input_ids"]) for feature in features], task.per_token
            )
        measured.append((task.statistics(outputs, encoded), torch.stack(losses)))
    assert np.array_equal(measured[0][0], measured[1][0])
    torch.testing.assert_close(measured[0][1], measured[1][1])
    assert len(np.unique(measured[0][0])) > 3


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


@pytest.mark.parametrize("words", ["tokens", "words"])
@pytest.mark.parametrize("tags", ["ner_tags", "tags", "labels", "pos_tags"])
def test_columns_are_found_by_name(write: Write, words: str, tags: str) -> None:
    task = load_tokens(DataSource(write(rows(words=words, tags=tags))))
    assert task.labels == ("B-PER", "I-PER", "O")
    assert task.source["columns"] == {"text": words, "pair": None, "label": tags}
    sentences = [sentence for split in task.splits.values() for sentence in split.words]
    assert sorted(sentences) == sorted((f"w{i}", f"x{i}", f"y{i}") for i in range(20))
    assert set(task.splits["train"].tags) == {(0, 1, 2)}


def test_named_columns_are_used(write: Write) -> None:
    table = [{**row, "upos": ["N", "V", "N"], "lemmas": ["a", "b", f"c{i}"]} for i, row in enumerate(rows())]
    task = load_tokens(DataSource(write(table), columns=Columns(text="lemmas", label="upos")))
    assert task.labels == ("N", "V")
    assert task.splits["train"].words[0][:2] == ("a", "b")
    assert task.metric.name == "accuracy"


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
    write: Write, given: list[object], known: list[str] | None, labels: tuple[str, ...], metric: str
) -> None:
    table = [{**row, "ner_tags": given} for row in rows()]
    task = load_tokens(DataSource(write(table)), known)
    assert task.labels == labels
    ids = tuple(labels.index(str(tag)) if str(tag) in labels else tag for tag in given)
    assert set(task.splits["train"].tags) == {ids}
    assert task.metric.name == metric


def test_another_metric_may_be_asked_for(write: Write) -> None:
    path = write(rows())
    assert load_tokens(DataSource(path, metric="accuracy")).metric.name == "accuracy"
    with pytest.raises(DataError, match="no metric 'mcc' for tokens: there are f1, accuracy"):
        load_tokens(DataSource(path, metric="mcc"))
    words = write([{**row, "ner_tags": ["NN", "B-X", "O"]} for row in rows()], "words")
    with pytest.raises(DataError, match="not NN: choose --metric accuracy"):
        load_tokens(DataSource(words, metric="f1"))


def test_parquet_has_the_same_rows_as_jsonl(write: Write, tmp_path: Path) -> None:
    pd.DataFrame(rows()).to_parquet(tmp_path / "train.parquet")
    table = load_tokens(DataSource(str(tmp_path / "train.parquet")))
    assert fingerprints_of(table) == fingerprints_of(load_tokens(DataSource(write(rows()))))


CONLL = "-DOCSTART- -X- O\n\n" + "".join(
    f"w{i} NN B-PER\nx{i}\tNN I-PER\ny{i} VB O\n" + ("\n", " \n\n")[i % 2] for i in range(20)
)


@pytest.mark.parametrize("name", ["train.txt", "train.conll"])
def test_lines_with_a_word_first_and_its_tag_last_are_read_too(
    write: Write, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(CONLL)
    lines = load_tokens(DataSource(str(tmp_path / name)))
    assert fingerprints_of(lines) == fingerprints_of(load_tokens(DataSource(write(rows()))))


def test_a_folder_of_such_files_is_split_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "ner"
    folder.mkdir()
    (folder / "train.txt").write_text(CONLL)
    (folder / "valid.txt").write_text("a O\nb B-PER\n\nc O\n")
    (folder / "test.txt").write_text("d O\n\ne O\nf O\n\ng B-PER")
    splits = load_tokens(DataSource(str(folder))).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 20, "search": 2, "report": 3}
    assert splits["search"].words == (("a", "b"), ("c",))
    assert splits["report"].tags == ((2,), (2, 2), (0,))


ROW = {"tokens": ["a", "b"], "ner_tags": ["B-X", "O"]}
REFUSED: dict[str, tuple[Sequence[dict[str, object]], Sequence[dict[str, object]] | None, str]] = {
    "no words": ([{"text": "a", "ner_tags": ["O"]}], None, "no tokens or words column among text, ner_tags"),
    "no tags": ([{"tokens": ["a"], "id": 3}], None, "name it with --label-column"),
    "ragged": ([ROW, {**ROW, "tokens": ["a"]}], None, "train row 1 has 1 tokens and 2 ner_tags"),
    "text": ([{**ROW, "tokens": "a b"}], None, "train row 0: tokens is a list, not 'a b'"),
    "tag text": ([ROW, {**ROW, "ner_tags": "O O"}], None, "train row 1: ner_tags is a list, not 'O O'"),
    "numbers": ([{**ROW, "tokens": ["a", 2]}], None, "train row 0: tokens is a list of words"),
    "null word": ([{**ROW, "tokens": ["a", None]}], None, "train row 0: tokens is a list of words"),
    "empty": ([ROW, {"tokens": [], "ner_tags": []}], None, "train row 1: tokens is a list of words"),
    "null tag": ([{**ROW, "ner_tags": ["O", None]}], None, "1 train rows have no label"),
    "one tag": ([{**ROW, "ner_tags": ["O", "O"]}] * 9, None, "at least two labels"),
    "unknown tag": (rows(), [{**ROW, "ner_tags": ["B-LOC", "O"]}], "search rows .* never saw: B-LOC"),
    "other column": (rows(), [{"tokens": ["a"], "tags": ["O"]}], "no column 'ner_tags'"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_data_that_does_not_fit_is_one_line(write: Write, case: str) -> None:
    train, validation, says = REFUSED[case]
    other = None if validation is None else write(validation, "validation")
    with pytest.raises(DataError, match=says) as caught:
        load_tokens(DataSource(write(train), validation=other))
    assert "\n" not in str(caught.value)


def test_a_line_without_a_tag_and_a_column_that_is_not_there_are_one_line(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "a.conll").write_text("a O\nb\n")
    with pytest.raises(DataError, match="a line needs a word and its tag, not 'b' alone"):
        load_tokens(DataSource(str(tmp_path / "a.conll")))
    with pytest.raises(DataError, match="has no column 'xpos'; it has tokens, ner_tags"):
        load_tokens(DataSource(write(rows()), columns=Columns(label="xpos")))


def test_a_slow_tokenizer_is_refused() -> None:
    task = tagged(("in", "O"))
    slow = cast(PreTrainedTokenizerBase, SimpleNamespace(is_fast=False))
    with pytest.raises(DataError, match="does not say which word a token is of"):
        task.encode("train", slow, 8)
