"""Translation and summarisation: both sides cut and ended, the stock loss, columns, references, splits."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from ldsearch.errors import DataError
from ldsearch.tasks import load_task
from ldsearch.tasks.base import score
from ldsearch.tasks.sequences import SequencePairs, SequenceToSequence, load_sequences
from ldsearch.tasks.tables import Columns, DataSource
from ldsearch.tasks.tokenizer import train_bpe

LETTERS = train_bpe(["a"], 258)
END = 1
VOCABULARY = 258


def task_of(*pairs: tuple[str, str]) -> SequenceToSequence:
    sources, targets = zip(*pairs, strict=True)
    return SequenceToSequence({}, (), {"train": SequencePairs(sources, tuple((text,) for text in targets))})


def ids(text: str) -> list[int]:
    """One a letter; | ends a text."""
    vocabulary = LETTERS.get_vocab()
    return [END if letter == "|" else vocabulary[letter] for letter in text]


def test_both_sides_end_in_eos_and_are_cut() -> None:
    encoded = task_of(("abc", "de"), ("abcdefgh", "fghijklm")).encode("train", LETTERS, 5)
    assert list(encoded) == [
        {"input_ids": ids("abc|"), "labels": ids("de|")},
        {"input_ids": ids("abcd|"), "labels": ids("fghi|")},
    ]
    assert encoded.lengths.tolist() == [4, 5]


def test_batches_are_padded_on_the_right_each_side_to_its_own_longest() -> None:
    task = task_of(("abc", "de"), ("abcde", "f"))
    features = list(task.encode("train", LETTERS, 9))
    batch = task.collate(LETTERS, None)(features)
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["input_ids"].tolist() == [[*ids("abc|"), 0, 0], ids("abcde|")]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]
    assert batch["labels"].tolist() == [ids("de|"), [*ids("f|"), -100]]
    wide = task.collate(LETTERS, 9)(features)
    assert {tensor.shape for tensor in wide.values()} == {(2, 9)}
    assert wide["labels"].tolist() == [[*ids("de|"), *[-100] * 6], [*ids("f|"), *[-100] * 7]]
    assert features == list(task.encode("train", LETTERS, 9))
    assert task.prepare(batch, LETTERS, np.random.default_rng(0)) is batch


def test_a_target_that_the_tokenizer_does_not_end_is_ended_within_the_cut() -> None:
    bare = train_bpe(["a"], 258)
    bare.backend_tokenizer.post_processor = None
    encoded = task_of(("abc", "de"), ("a", "fghijk")).encode("train", bare, 4)
    assert [feature["labels"] for feature in encoded] == [ids("de|"), ids("fgh|")]
    assert encoded[0]["input_ids"] == ids("abc")
    # One that begins with the same token is not ended yet.
    bare.backend_tokenizer.post_processor = TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", END)]
    )
    (feature,) = task_of(("abc", "de")).encode("train", bare, 9)
    assert feature == {"input_ids": ids("|abc"), "labels": ids("|de|")}


def test_targets_are_tokenised_as_targets() -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "▁b"]
    mbart = MBartTokenizer(vocab=[(piece, -1.0) for piece in pieces], src_lang="de_DE", tgt_lang="en_XX")
    (feature,) = task_of(("a b", "b")).encode("train", mbart, 8)
    german, english = mbart.convert_tokens_to_ids(["de_DE", "en_XX"])
    assert german != english
    assert feature["input_ids"] == [*mbart.convert_tokens_to_ids(["▁a", "▁b"]), mbart.eos_token_id, german]
    assert feature["labels"] == [mbart.convert_tokens_to_ids("▁b"), mbart.eos_token_id, english]


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "max_position_embeddings": 64, "init_std": 0.5, "dropout": 0.0,
    "pad_token_id": 0, "eos_token_id": END, "bos_token_id": END, "forced_eos_token_id": END,
}  # fmt: skip


def stock(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if name == "bart":
        return BartForConditionalGeneration(BartConfig(**SIZES, decoder_start_token_id=END)).eval()
    if name == "marian":
        return MarianMTModel(MarianConfig(**SIZES, decoder_start_token_id=0)).eval()
    sizes: dict[str, Any] = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = T5Config(
        **sizes, vocab_size=VOCABULARY, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0
    )
    return T5ForConditionalGeneration(config).eval()


@pytest.mark.parametrize("name", ["bart", "marian", "t5"])
def test_perplexity_is_that_of_the_stock_loss_over_all_target_tokens(name: str) -> None:
    rng = np.random.default_rng(0)
    pairs = [
        tuple("".join(rng.choice(list("abcdef"), rng.integers(1, 20))) for _ in range(2)) for _ in range(12)
    ]
    task, model = task_of(*pairs), stock(name)  # type: ignore[arg-type]
    encoded = task.encode("train", LETTERS, 16)
    batch = task.collate(LETTERS, None)(list(encoded))
    with torch.no_grad():
        result = model(**batch)
        alone = [model(**task.collate(LETTERS, None)([feature])).loss.item() for feature in encoded]
    torch.testing.assert_close(task.objective.loss(result.logits, batch), result.loss)
    outputs = task.read(result.logits, batch).numpy()
    tokens = np.array([min(16, len(target) + 1) for _, target in pairs])
    np.testing.assert_array_equal(outputs[:, 1], tokens)
    np.testing.assert_allclose(outputs[:, 0], alone * tokens, rtol=1e-5)
    statistics = task.statistics(list(outputs), encoded)
    assert statistics.shape == task.metric.shape(12)
    measured = score(task.metric, statistics)
    assert measured.value == pytest.approx(math.exp(result.loss.item()), rel=1e-5)
    assert not measured.higher_is_better


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows(name: str, count: int, text: str = "de", label: str = "en") -> list[dict[str, Any]]:
    """Rows that share no words with one another or with other names'."""
    return [{text: f"{name}{i} größe{name}{i}", label: f"{name}x{i} size{name}{i}"} for i in range(count)]


@pytest.mark.parametrize(
    ("kind", "text", "label"),
    [
        ("translation", "de", "en"),
        ("translation", "src", "tgt"),
        ("translation", "source", "target"),
        ("summarisation", "document", "summary"),
        ("summarisation", "text", "summary"),
        ("summarisation", "article", "highlights"),
    ],
)
def test_columns_are_found_by_name(tmp_path: Path, kind: str, text: str, label: str) -> None:
    data = write(tmp_path / "train.jsonl", rows("a", 30, text, label))
    held = write(tmp_path / "held.jsonl", rows("b", 8, text, label))
    task = load_task(kind, DataSource(data, validation=held))
    assert isinstance(task, SequenceToSequence)
    assert task.source["task"] == kind
    assert task.source["columns"] == {"text": text, "pair": None, "label": label}
    assert task.sources("train")[:1] == ["a0 größea0"]
    assert task.references("train")[:1] == [["ax0 sizea0"]]
    assert "größea0" in " ".join(task.splits["train"].texts)
    assert "sizea0" in " ".join(task.splits["train"].texts)


def test_a_column_that_is_named_for_one_side_is_not_the_other(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", [{**row, "src": "x"} for row in rows("a", 30)])
    there = Columns(text="en", label="de")
    task = load_sequences(DataSource(data, columns=there), kind="translation")
    assert task.source["columns"] == {"text": "en", "pair": None, "label": "de"}
    with pytest.raises(DataError, match="no target or tgt column among de, en, src"):
        load_sequences(DataSource(data, columns=Columns(text="en")), kind="translation")
    task = load_sequences(DataSource(data, columns=Columns(label="src")), kind="translation")
    assert task.source["columns"]["text"] == "de"
    with pytest.raises(DataError, match="column 'en' cannot be both source and target"):
        load_sequences(DataSource(data, columns=Columns(text="en", label="en")), kind="translation")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_list_of_sentences_is_joined_and_a_list_of_targets_are_references(
    tmp_path: Path, kind: str
) -> None:
    import pandas as pd

    table = pd.DataFrame(
        {
            "source": [[f"a{i}.", f"b{i}."] for i in range(30)],
            "target": [[f"c{i}", f"d{i}"] for i in range(30)],
        }
    )
    path = tmp_path / f"a.{kind}"
    table.to_parquet(path) if kind == "parquet" else table.to_json(path, orient="records", lines=True)
    task = load_sequences(DataSource(str(path)), kind="summarisation")
    number = task.sources("search")[0].split(".")[0].removeprefix("a")
    assert task.sources("search")[0] == f"a{number}. b{number}."
    assert task.references("search")[0] == [f"c{number}", f"d{number}"]
    (first, *_) = task.encode("search", LETTERS, 9)
    assert first["labels"] == ids(f"c{number}|")


def test_rows_that_share_either_side_are_not_on_two_sides(tmp_path: Path) -> None:
    train, held = rows("a", 30), rows("b", 8)
    train[3]["de"] = "x eins zwei drei vier fünf"
    held[2]["de"] = "eins zwei drei vier fünf y"
    train[4]["en"] = "x one two three four five"
    held[5]["en"] = "one two three four five y"
    source = DataSource(write(tmp_path / "t.jsonl", train), validation=write(tmp_path / "v.jsonl", held))
    task = load_sequences(source, kind="translation")
    assert len(task.splits["train"]) == 28
    assert (
        task.overlap == "dropped 2 training rows linked by 5 shared words in a row to a search or report row"
    )


def test_data_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    def refused(says: str, *bad: dict[str, Any], **more: Any) -> None:
        data = write(tmp_path / "bad.jsonl", [*rows("a", 20), *bad])
        with pytest.raises(DataError, match=says) as caught:
            load_sequences(DataSource(data, **more), kind="translation")
        assert "\n" not in str(caught.value)

    refused("1 train rows have no text in column 'de'", {"de": " ", "en": "a"})
    refused("2 train rows have no text in column 'en'", {"de": "a", "en": None}, {"de": "b", "en": []})
    refused("1 train rows have no text in column 'en'", {"de": "a", "en": ["b", ""]})
    refused("1 train rows have no text in column 'en'", {"de": "a", "en": 3})
    refused("has no column 'fr'", columns=Columns(label="fr"))


def test_a_tokenizer_without_the_tokens_is_refused() -> None:
    task = task_of(("a", "b"))
    for token in ("eos", "pad"):
        bare: PreTrainedTokenizerFast = train_bpe(["a"], 258)
        setattr(bare, f"{token}_token", None)
        with pytest.raises(DataError, match=f"needs a tokenizer with an {token} token"):
            task.encode("train", bare, 9)


DATA = Path(os.environ.get("LDSEARCH_DATA", ""))
