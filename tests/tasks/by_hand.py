"""Tokenizers whose ids can be told by hand: one a letter, or one a word."""

from typing import Any

from transformers import BertTokenizer

from ldsearch.tasks.tokenizer import train_bpe

LETTERS, END = train_bpe(["a"], 258), 1
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(5)


def ids(text: str) -> list[int]:
    """Those of ``LETTERS``; | ends a text."""
    vocabulary = LETTERS.get_vocab()
    return [END if letter == "|" else vocabulary[letter] for letter in text]


def bert(*pieces: str) -> BertTokenizer:
    """The pieces have the ids from 5 on."""
    return BertTokenizer(vocab={piece: index for index, piece in enumerate((*SPECIAL, *pieces))})


def without(tokenizer: Any, token: str) -> Any:
    """The tokenizer, which lacks a special token from now on."""
    setattr(tokenizer, f"{token}_token", None)
    return tokenizer
