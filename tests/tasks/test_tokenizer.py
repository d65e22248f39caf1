"""Tokenizers trained on the spot: the same texts give the same ids, in every process; BPE loses nothing."""

import itertools
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from ldsearch.errors import DataError
from ldsearch.tasks.tokenizer import train_bpe, train_wordpiece

TEXTS = [
    f"{a}{b} {b}{a}ing Un{a} {b}, {a}!" for a in ("walk", "tree", "größe", "x1") for b in ("er", "ly", "zt")
]


def test_special_tokens_are_berts_and_first_and_pieces_of_unseen_words_put_them_together() -> None:
    tokenizer = train_wordpiece(TEXTS, 60)
    assert sorted(tokenizer.get_vocab().values()) == list(range(60))
    assert tokenizer.convert_ids_to_tokens(list(range(5))) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert tokenizer.pad_token_id == 0
    first, *others = tokenizer.tokenize("treewalkly")
    assert len(others) > 0
    assert all(piece.startswith("##") for piece in others)
    assert first + "".join(piece.removeprefix("##") for piece in others) == "treewalkly"


def test_frequent_words_are_one_piece_and_lower_cased() -> None:
    tokenizer = train_wordpiece(["The Forest grows", "the forest sleeps"] * 5, 200)
    assert tokenizer.tokenize("FOREST the") == ["forest", "the"]
    assert tokenizer.decode(tokenizer("forest sleeps")["input_ids"]) == "[CLS] forest sleeps [SEP]"


STRANGE = [
    "",
    " two  spaces, and a trailing one ",
    "tabs\tand\nlines\r\n",
    "Größe 火山 🙂 \u200b\x00 é e\u0301",
    "it 's not n't , cleaned up !",
    "[CLS] <unk> ##ing Ġ",
]


def test_bpe_gives_every_text_back_also_when_it_is_loaded_again(tmp_path: Path) -> None:
    trained = train_bpe(TEXTS, 300)
    trained.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == trained.get_vocab()
    for tokenizer, text in itertools.product((trained, again), (*TEXTS, *STRANGE)):
        assert tokenizer(text) == trained(text)
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == f"{text}</s>"
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
        assert (tokenizer.padding_side, tokenizer.pad_token_id, tokenizer.eos_token_id) == ("right", 0, 1)


def test_bpe_has_the_ids_that_models_need_and_no_more_than_asked_for() -> None:
    tokenizer = train_bpe(TEXTS, 280)
    assert sorted(tokenizer.get_vocab().values()) == list(range(280))
    assert sorted(tokenizer.all_special_ids) == [0, 1]
    batch = tokenizer(["walker", "a much longer text"], padding=True)
    assert set(batch) == {"input_ids", "attention_mask"}
    assert batch["attention_mask"][0][-1] == batch["input_ids"][0][-1] == 0
    assert tokenizer(["a", "b"], ["c", "d"])["input_ids"][0].count(1) == 2


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    assert len(train_bpe(TEXTS, 258)) == 258
    with pytest.raises(DataError, match="a vocabulary of 257 has no room for every byte: 258 are the least"):
        train_bpe(TEXTS, 257)
