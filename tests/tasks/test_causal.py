"""Causal language modelling: every token once and in order, no line torn on request, the stock loss."""

import math
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from ldsearch.errors import DataError
from ldsearch.tasks.base import score
from ldsearch.tasks.language import CausalLanguageModel, TextLines
from ldsearch.tasks.tokenizer import train_bpe

LETTERS = train_bpe(["a"], 258)
END = 1
VOCABULARY = 258


def task_of(*lines: str, sentences: bool = False) -> CausalLanguageModel:
    return CausalLanguageModel({}, (), {"train": TextLines(lines)}, sentences=sentences)


def ids(text: str) -> list[int]:
    """One a letter; | ends a line."""
    vocabulary = LETTERS.get_vocab()
    return [END if letter == "|" else vocabulary[letter] for letter in text]


def blocks(task: CausalLanguageModel, reference: int) -> list[list[int]]:
    return [list(feature["input_ids"]) for feature in task.encode("train", LETTERS, reference)]


def random_lines(count: int = 40, longest: int = 30, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abcdef"), rng.integers(1, longest))) for _ in range(count)]


def test_a_text_by_hand() -> None:
    task = task_of("abc", "de", "f")
    encoded = task.encode("train", LETTERS, 4)
    assert [feature["input_ids"] for feature in encoded] == [ids("abc|"), ids("de|f")]  # "|" is left out
    assert [feature["labels"] for feature in encoded] == [ids("abc|"), ids("de|f")]
    assert all(set(feature) == {"input_ids", "attention_mask", "labels"} for feature in encoded)
    assert encoded[0]["attention_mask"] == [1, 1, 1, 1]
    assert encoded.reference == 4
    assert blocks(task_of("abc", "de"), 5) == [ids("abc|d"), ids("e|")]


@pytest.mark.parametrize("reference", [2, 5, 16, 33, 4000])
@pytest.mark.parametrize("sentences", [False, True])
def test_blocks_hold_every_token_once_and_in_order(reference: int, sentences: bool) -> None:
    lines = random_lines()
    found = blocks(task_of(*lines, sentences=sentences), reference)
    stream = ids("".join(line + "|" for line in lines))
    assert max(map(len, found)) <= reference
    joined = [token for block in found for token in block]
    if sentences:  # a line's end may have had a block of its own, which is left out
        joined, stream = ([token for token in tokens if token != END] for tokens in (joined, stream))
        assert joined == stream
    else:
        assert joined in (stream, stream[:-1])
        assert {len(block) for block in found[:-1]} <= {reference}


def test_no_line_is_torn_where_sentences_are_respected() -> None:
    found = blocks(task_of("ab", "cd", "efg", "h", "ijklmnopq", "rs", "t", sentences=True), 6)
    assert found == [ids(text) for text in ("ab|cd|", "efg|h|", "ijklmn", "opq|", "rs|t|")]
    lines = random_lines(longest=15)
    assert max(map(len, lines)) + 1 <= 20
    parts = blocks(task_of(*lines, sentences=True), 20)
    assert all(part[-1] == END for part in parts)
    # As many as fit: the next block's first line had no room.
    for part, following in pairwise(parts):
        assert len(part) + following.index(END) + 1 > 20


def test_lines_end_in_sep_where_there_is_no_end_of_text_token() -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    bert = BertTokenizer(vocab={token: index for index, token in enumerate(vocabulary)})
    (feature,) = task_of("a b", "b").encode("train", bert, 9)
    assert feature["input_ids"] == [5, 6, 3, 6, 3]
    assert "token_type_ids" not in feature


def without(*tokens: str) -> PreTrainedTokenizerFast:
    tokenizer = train_bpe(["a"], 258)
    for token in tokens:
        setattr(tokenizer, token, None)
    return tokenizer


@pytest.mark.parametrize("tokenizer", [LETTERS, without("pad_token")], ids=["pad", "no pad"])
def test_batches_are_padded_on_the_right(tokenizer: PreTrainedTokenizerFast) -> None:
    task = task_of("abc", "de", "fgh")
    batch = task.collate(tokenizer, None)(list(task.encode("train", tokenizer, 7)))
    pad = END if tokenizer.pad_token_id is None else 0
    assert batch["input_ids"].tolist() == [ids("abc|de|"), [*ids("fgh|"), pad, pad, pad]]
    assert batch["labels"].tolist() == [ids("abc|de|"), [*ids("fgh|"), -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 4 + [0] * 3]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    wide = task.collate(tokenizer, 9)(list(task.encode("train", tokenizer, 7)))
    assert {tensor.shape for tensor in wide.values()} == {(2, 9)}
    assert task.prepare(batch, tokenizer, np.random.default_rng(0)) is batch


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3,
        bos_token_id=END, eos_token_id=END, pad_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def test_perplexity_is_that_of_the_stock_loss_over_all_predicted_tokens() -> None:
    task, model = task_of(*random_lines(longest=12)), gpt2()
    encoded = task.encode("train", LETTERS, 32)
    batch = task.collate(LETTERS, 40)(list(encoded))
    with torch.no_grad():
        result = model(**batch)
        alone = [model(**task.collate(LETTERS, None)([feature])).loss.item() for feature in encoded]
    torch.testing.assert_close(task.objective.loss(result.logits, batch), result.loss)
    outputs = task.read(result.logits, batch).numpy()
    predicted = encoded.lengths - 1
    np.testing.assert_array_equal(outputs[:, 1], predicted)
    np.testing.assert_allclose(outputs[:, 0], alone * predicted, rtol=1e-5)
    statistics = task.statistics(list(outputs), encoded)
    assert statistics.shape == task.metric.shape(len(encoded))
    measured = score(task.metric, statistics)
    assert measured.value == pytest.approx(math.exp(result.loss.item()), rel=1e-5)
    assert measured.value > 100
    assert not measured.higher_is_better


def test_uniform_logits_have_the_vocabulary_as_perplexity_and_the_next_tokens_one() -> None:
    task = task_of(*random_lines())
    encoded = task.encode("train", LETTERS, 16)
    batch = task.collate(LETTERS, None)(list(encoded))

    def perplexity(logits: torch.Tensor) -> float:
        return score(task.metric, task.statistics(list(task.read(logits, batch).numpy()), encoded)).value

    assert perplexity(torch.zeros(*batch["labels"].shape, VOCABULARY)) == pytest.approx(VOCABULARY)
    told = torch.nn.functional.one_hot(batch["input_ids"], VOCABULARY) * 100.0
    assert perplexity(told.roll(-1, dims=1)) == pytest.approx(1.0)
    assert perplexity(told) > 1e6


def test_what_cannot_be_used_is_one_line() -> None:
    with pytest.raises(DataError, match="blocks of 1 tokens nothing is predicted: 2 are the least"):
        task_of("abc").encode("train", LETTERS, 1)
    with pytest.raises(DataError, match=r"an end-of-text token or \[SEP\]"):
        task_of("abc").encode("train", without("eos_token"), 8)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    bert = BertTokenizer(vocab={token: index for index, token in enumerate(vocabulary)})
    with pytest.raises(DataError, match="knows no word of the train text"):
        task_of("\u200b").encode("train", bert, 8)


WIKITEXT = Path(os.environ.get("LDSEARCH_DATA", "")) / "wikitext2"
