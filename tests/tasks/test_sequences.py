"""Translation and summarisation: both sides cut and ended, the stock loss, columns, references, splits."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tokenizers.processors import TemplateProcessing
from transformers import MBartTokenizer, NllbTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks.sequences import SequencePairs, SequenceToSequence, Summarisation, Translation
from ldsearch.tasks.tables import Columns, DataSource
from ldsearch.tasks.tokenizer import train_bpe
from tests.tasks.by_hand import END, LETTERS, ids, without


def task_of(*pairs: tuple[str, str]) -> SequenceToSequence:
    sources, targets = zip(*pairs, strict=True)
    return SequenceToSequence({}, (), {"train": SequencePairs(sources, tuple((text,) for text in targets))})


def test_both_sides_end_in_eos_and_are_cut() -> None:
    encoded = task_of(("abc", "de"), ("abcdefgh", "fghijklm")).encode("train", LETTERS, 5)
    assert list(encoded) == [
        {"input_ids": ids("abc|"), "labels": ids("de|")},
        {"input_ids": ids("abcd|"), "labels": ids("fghi|")},
    ]
    assert encoded.lengths.tolist() == [4, 5]


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


def rows(name: str, count: int) -> list[dict[str, Any]]:
    """Rows that share no words with one another or with other names'."""
    return [{"de": f"{name}{i} größe{name}{i}", "en": f"{name}x{i} size{name}{i}"} for i in range(count)]


def test_a_column_that_is_named_for_one_side_is_not_the_other() -> None:
    table = pd.DataFrame(columns=["de", "en", "src"])
    with pytest.raises(DataError, match=r"no label column \(target, tgt, en\) among de, en, src"):
        Translation.find_columns(table, DataSource("rows", columns=Columns(text="en")))
    found = Translation.find_columns(table, DataSource("rows", columns=Columns(label="src")))
    assert found == Columns("de", None, "src")


def test_a_list_of_sentences_is_joined_and_a_list_of_targets_are_references() -> None:
    table = pd.DataFrame([{"source": [f"a{i}.", f"b{i}."], "target": [f"c{i}", f"d{i}"]} for i in range(30)])
    for lists in (table, table.map(np.array)):  # as parquet has them
        task = Summarisation.of_tables({"train": lists}, DataSource("rows"))
        pairs = task.splits["search"]
        number = pairs.sources[0].split(".")[0].removeprefix("a")
        assert pairs.sources[0] == f"a{number}. b{number}."
        assert pairs.targets[0] == (f"c{number}", f"d{number}")
        (first, *_) = task.encode("search", LETTERS, 9)
        assert first["labels"] == ids(f"c{number}|")


def test_rows_that_share_either_side_are_not_on_two_sides() -> None:
    train, held = rows("a", 30), rows("b", 8)
    train[3]["de"] = "x eins zwei drei vier fünf"
    held[2]["de"] = "eins zwei drei vier fünf y"
    train[4]["en"] = "x one two three four five"
    held[5]["en"] = "one two three four five y"
    tables = {"train": pd.DataFrame(train), "search": pd.DataFrame(held)}
    task = Translation.of_tables(tables, DataSource("rows"))
    assert len(task.splits["train"]) == 28
    assert task.overlap.startswith("dropped 2 training rows linked by 5 shared words in a row to a search")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([{"de": " ", "en": "a"}], "1 train rows have no text in column 'de'"),
        ([{"de": "a", "en": None}, {"de": "b", "en": []}], "2 train rows have no text in column 'en'"),
        ([{"de": "a", "en": ["b", ""]}], "1 train rows have no text in column 'en'"),
        ([{"de": "a", "en": 3}], "1 train rows have no text in column 'en'"),
    ],
)
def test_rows_without_text_on_either_side_are_refused(bad: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Translation.of_tables({"train": pd.DataFrame([*rows("a", 20), *bad])}, DataSource("rows"))


def test_a_tokenizer_that_writes_languages_and_knows_no_target_is_refused() -> None:
    unset = NllbTokenizer(src_lang="deu_Latn")
    for _ in range(2):  # transformers has it go on with the sources'
        with pytest.raises(
            DataError, match="NllbTokenizer writes languages into texts: set its src_lang and tgt"
        ):
            task_of(("a", "b")).encode("train", unset, 9)


@pytest.mark.parametrize("token", ["eos", "pad"])
def test_a_tokenizer_without_the_tokens_is_refused(token: str) -> None:
    with pytest.raises(DataError, match="needs a tokenizer with eos and pad tokens"):
        task_of(("a", "b")).encode("train", without(train_bpe(["a"], 258), token), 9)
