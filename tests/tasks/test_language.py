"""Running text: no token lost, no line torn on request; masks at BERT's rates, the same ones every time."""

import math
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chisquare
from transformers import BertTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks import load_task
from ldsearch.tasks.language import CausalLanguageModel, MaskedLanguageModel, TextLines
from ldsearch.tasks.tables import DataSource
from ldsearch.tasks.tokenizer import train_bpe
from tests.tasks.by_hand import CLS, END, LETTERS, MASK, SEP, SPECIAL, UNK, bert, ids, without

WORDS = 40


def tokenizer(words: int = WORDS) -> BertTokenizer:
    """One token a word, w0 to w39."""
    return bert(*(f"w{i}" for i in range(words)))


def masked(*lines: str) -> MaskedLanguageModel:
    return MaskedLanguageModel({}, (), {"train": TextLines(lines)})


def causal(*lines: str, sentences: bool = False) -> CausalLanguageModel:
    return CausalLanguageModel({"sentences": sentences}, (), {"train": TextLines(lines)})


def random_text(lines: int = 60, seed: int = 0, longest: int = 40, words: int = WORDS) -> list[str]:
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(words, size=rng.integers(1, longest)) for _ in range(lines))
    return [" ".join(f"w{i}" for i in line) for line in drawn]


def original(feature: Any) -> list[int]:
    """A feature's ids before masking."""
    pairs = zip(feature["input_ids"], feature["labels"], strict=True)
    return [token if label == -100 else label for token, label in pairs]


def blocks(task: CausalLanguageModel, reference: int) -> list[list[int]]:
    return [list(feature["input_ids"]) for feature in task.encode("train", LETTERS, reference)]


def random_letters(count: int = 40, longest: int = 30) -> list[str]:
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(list("abcdef"), rng.integers(1, longest))) for _ in range(count)]


def test_a_causal_text_by_hand() -> None:
    encoded = causal("abc", "de", "f").encode("train", LETTERS, 4)
    for name in ("input_ids", "labels"):
        assert [feature[name] for feature in encoded] == [
            ids("abc|"),
            ids("de|f"),
        ]  # the last "|" is left out
    assert blocks(causal("abc", "de"), 5) == [ids("abc|d"), ids("e|")]


@pytest.mark.parametrize("reference", [2, 5, 33, 4000])
def test_causal_blocks_hold_every_token_once_and_in_order(reference: int) -> None:
    lines = random_letters()
    stream = ids("".join(line + "|" for line in lines))
    found = blocks(causal(*lines), reference)
    assert [*chain(*found)] in (stream, stream[:-1])
    assert {len(block) for block in found[:-1]} <= {reference}
    whole = blocks(causal(*lines, sentences=True), reference)
    assert max(map(len, whole)) <= reference
    # A line's end may have had a block of its own, which is left out.
    assert [token for token in chain(*whole) if token != END] == [token for token in stream if token != END]


def test_no_line_is_torn_where_sentences_are_respected() -> None:
    found = blocks(causal("ab", "cd", "efg", "h", "ijklmnopq", "rs", "t", sentences=True), 6)
    assert found == [ids(text) for text in ("ab|cd|", "efg|h|", "ijklmn", "opq|", "rs|t|")]
    parts = blocks(causal(*random_letters(longest=15), sentences=True), 20)
    assert all(part[-1] == END for part in parts)
    # As many as fit: the next block's first line had no room.
    assert all(len(part) + after.index(END) + 1 > 20 for part, after in pairwise(parts))


def test_a_causal_tokenizer_needs_no_pad_token_and_sep_may_end_a_line() -> None:
    bare = without(train_bpe(["a"], 258), "pad")
    task = causal("abc", "de", "fgh")
    batch = task.collate(bare, None)(list(task.encode("train", bare, 7)))
    assert batch["input_ids"].tolist() == [ids("abc|de|"), [*ids("fgh|"), END, END, END]]
    assert batch["labels"].tolist() == [ids("abc|de|"), [*ids("fgh|"), -100, -100, -100]]
    (feature,) = causal("w0 w1", "w1").encode("train", tokenizer(), 9)
    assert feature["input_ids"] == [5, 6, SEP, 6, SEP]
    assert "token_type_ids" not in feature


@pytest.mark.parametrize("reference", [4, 33, 4000])
def test_masked_blocks_hold_every_token_once_and_in_order(reference: int) -> None:
    lines = random_text()
    encoded = masked(*lines).encode("train", tokenizer(), reference)
    found = [original(feature) for feature in encoded]
    assert all(block[0] == CLS and block[-1] == SEP for block in found)
    assert {len(block) for block in found[:-1]} <= {reference}
    assert len(found[-1]) <= reference == encoded.reference
    stream = tokenizer().convert_ids_to_tokens([token for block in found for token in block[1:-1]])
    expected = " [SEP] ".join(lines).split()
    assert len(found) == math.ceil(len(expected) / (reference - 2))
    assert stream == expected
    for block, feature in zip(found, encoded, strict=True):
        chosen = sum(label != -100 for label in feature["labels"])
        assert chosen == max(1, round(0.15 * sum(token >= len(SPECIAL) for token in block)))


def test_a_masked_text_by_hand() -> None:
    lines = ("w0 w1 w2", "zzz", "\u200b", "w3", "w4 w5 w6 w7 w8")  # the third is no token
    encoded = masked(*lines).encode("train", tokenizer(), 10)
    assert [original(feature) for feature in encoded] == [
        [CLS, 5, 6, 7, SEP, UNK, SEP, 8, SEP, SEP],
        [CLS, 9, 10, 11, 12, 13, SEP],
    ]
    assert encoded[1]["token_type_ids"] == [0] * 7
    # A block with nothing to predict is left out.
    encoded = masked(" ".join(["w0"] * 8 + ["zzz"] * 8 + ["w1"] * 8)).encode("train", tokenizer(), 10)
    assert [original(feature)[1] for feature in encoded] == [5, 6]


def test_of_the_chosen_80_percent_are_masks_10_random_and_10_kept() -> None:
    words = 1000
    encoded = masked(random_text(1, 3, 100_001, words)[0]).encode("train", tokenizer(words), 128)
    inputs, labels = (
        np.concatenate([np.array(feature[name]) for feature in encoded]) for name in ("input_ids", "labels")
    )
    inputs, labels = inputs[labels != -100], labels[labels != -100]
    assert len(labels) > 7_000
    # A tenth is drawn among all words, one in a thousand of which is the word itself.
    shares = np.array([0.8, 0.1 * (1 - 1 / words), 0.1 * (1 + 1 / words)])
    seen = [np.sum(inputs == MASK), np.sum((inputs != MASK) & (inputs != labels)), np.sum(inputs == labels)]
    assert chisquare(seen, shares * len(labels)).pvalue > 0.001
    drawn = inputs[(inputs != MASK) & (inputs != labels)]
    assert chisquare(np.bincount((drawn - 5) // 100, minlength=10)).pvalue > 0.001


def test_every_place_is_chosen_as_often_as_any_other() -> None:
    encoded = masked(" ".join(["w0"] * 15_000)).encode("train", tokenizer(), 32)
    chosen = np.array([feature["labels"] for feature in encoded]) != -100
    assert chosen[:, [0, -1]].sum() == 0
    assert chosen[:, 1:-1].sum(axis=1).tolist() == [4] * 500  # 0.15 · 30 = 4.5, to the even number
    assert chisquare(chosen[:, 1:-1].sum(axis=0)).pvalue > 0.001


def test_a_blocks_masks_depend_on_its_number_not_on_the_other_blocks() -> None:
    first, again, shifted = (
        masked(" ".join(["w0"] * 30 * count)).encode("train", tokenizer(), 32) for count in (3, 3, 2)
    )
    assert list(first) == list(again)
    assert list(first)[:2] == list(shifted)
    assert len({tuple(label != -100 for label in feature["labels"]) for feature in first}) == 3


def test_training_masks_the_same_text_anew() -> None:
    task = masked(*random_text(12), "w1 w2 w3 w4 zzz w5")
    features = list(task.encode("train", tokenizer(), 32))
    batch = task.collate(tokenizer(), None)(features)
    before = {name: tensor.clone() for name, tensor in batch.items()}
    seen, current = [], batch
    for seed in range(150):
        # Each from the last one, as if errors could pile up.
        current = task.prepare(current, tokenizer(), np.random.default_rng(seed))
        again = task.prepare(batch, tokenizer(), np.random.default_rng(seed))
        assert all(torch.equal(current[name], again[name]) for name in batch)
        seen.append(current["labels"] != -100)
    assert all(torch.equal(batch[name], before[name]) for name in batch)
    text = torch.where(current["labels"] == -100, current["input_ids"], current["labels"])
    for row, feature in enumerate(features):
        assert text[row, : len(feature["input_ids"])].tolist() == original(feature)
    assert torch.equal(current["attention_mask"], batch["attention_mask"])
    assert {tensor.dtype for tensor in current.values()} == {torch.int64}
    chosen, free = torch.stack(seen), text >= len(SPECIAL)
    assert torch.equal(chosen.any(dim=0), free)
    assert len({tuple(draw.flatten().tolist()) for draw in seen}) == 150
    expected = np.maximum(1, np.rint(0.15 * free.sum(dim=1).numpy()))
    assert (chosen.sum(dim=2).numpy() == expected).all()


def lines_of(name: str, count: int) -> list[str]:
    """Lines that share no words with one another or with other names'."""
    return [f"{name}{i} {name}a{i} größe{name}{i}" for i in range(count)]


def test_the_splits_of_a_folder_are_used_as_given_without_blank_lines(tmp_path: Path) -> None:
    parts = {name: ["= Plot =", *lines_of(name, 5)] for name in ("train", "validation", "test")}
    for name, part in parts.items():
        (tmp_path / f"{name}.txt").write_text(" \n\n" + "\n\n".join(part) + "\n")
    task = load_task("masked", DataSource(str(tmp_path)))
    texts = {name: list(split.texts) for name, split in task.splits.items()}
    assert texts == {"train": parts["train"], "search": parts["validation"], "report": parts["test"]}
    assert task.overlap == "splits of running text used as given: not compared with each other"
    assert load_task("masked", DataSource(str(tmp_path), keep_overlap=True)).overlap == ""


def test_one_file_is_cut_by_lines_that_share_no_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join([*lines_of("a", 40), "", *lines_of("a", 40)]))
    task = load_task("causal", DataSource(str(tmp_path / "text.txt")))
    sets = [set(split.texts) for split in task.splits.values()]
    assert set().union(*sets) == set(lines_of("a", 40))
    assert sum(map(len, sets)) == 40
    assert sum(map(len, task.splits.values())) == 80
    first = list(task.splits["train"].texts[:5])
    assert sorted(first, key=lines_of("a", 40).index) == first


def test_blank_lines_alone_are_no_text() -> None:
    with pytest.raises(DataError, match="train rows have no text"):
        MaskedLanguageModel.of_tables({"train": pd.DataFrame({"text": [" "]})}, DataSource("rows"))


@pytest.mark.parametrize(
    ("task", "tokenizer", "reference", "says"),
    [
        (masked("w0 w1 w2"), tokenizer(), 2, "blocks of 2 tokens"),
        (causal("abc"), LETTERS, 1, "blocks of 1 tokens"),
        (masked("zzz yyy", "\u200b"), tokenizer(), 16, "knows no word of the train text"),
        (causal("\u200b"), tokenizer(), 16, "knows no word of the train text"),
        (causal("abc"), without(train_bpe(["a"], 258), "eos"), 8, "with sep tokens"),
        (masked("w0 w1"), without(tokenizer(), "mask"), 16, "tokenizer with mask tokens"),
        (masked("w0 w1"), without(tokenizer(), "sep"), 16, "tokenizer with cls and sep tokens"),
    ],
)
def test_what_leaves_nothing_to_predict_is_refused(
    task: Any, tokenizer: Any, reference: int, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        task.encode("train", tokenizer, reference)
