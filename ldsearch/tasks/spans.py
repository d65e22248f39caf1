"""Entities as spans of characters, as annotation tools write them, turned into words and a tag for each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ldsearch.tasks.tables import refuse_rows

# Keys of a span's first character and of the one behind its last: doccano's, then most others'.
_ENDS = (("start_offset", "end_offset"), ("start", "end"))
_LABELS = ("label", "labels", "type", "entity_group", "tag")


class Span(NamedTuple):
    """Characters ``start`` to ``stop`` (exclusive) and what they are."""

    start: int
    stop: int
    label: str


def holds_spans(column: "pd.Series[Any]") -> bool:
    """Whether every cell is a list of spans, or empty."""
    return all(isinstance(cell, list | np.ndarray) and None not in map(_span, cell) for cell in column)


def split_words(texts: Iterable[str]) -> list[list[str]]:
    """The words of each text between its spaces, a Chinese character a word of its own.

    A model reads them as it reads the text.
    """
    from tokenizers import pre_tokenizers

    splitter: Any = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _chinese()])
    return [[word for word, _ in splitter.pre_tokenize_str(text)] for text in texts]


def tag_words(texts: "pd.Series[Any]", column: "pd.Series[Any]") -> tuple[list[list[str]], list[list[str]]]:
    """The words of each text, and their tags: B- and I- with the label of a span, else O.

    Words are what BERT's tokenizers make of a text before they look into their vocabulary: what spaces and
    punctuation set apart, a mark of punctuation or a Chinese character a word of its own.

    Raises:
        DataError: If spans overlap, or one begins or ends inside a word.
    """
    words = [_words(text) for text in texts]
    spans = [sorted(_trimmed(text, cell)) for text, cell in zip(texts, column, strict=True)]
    overlapping = (any(a.stop > b.start for a, b in pairwise(own)) for own in spans)
    refuse_rows(overlapping, "given", "have entities that overlap, of which a word can have but one")
    astray = (
        not {span.start for span in own} <= {start for _, (start, _) in there}
        or not {span.stop for span in own} <= {stop for _, (_, stop) in there}
        for own, there in zip(spans, words, strict=True)
    )
    refuse_rows(astray, "given", "have an entity that begins or ends inside a word, or outside the text")
    tags = [_tags(there, own) for there, own in zip(words, spans, strict=True)]
    return [[word for word, _ in there] for there in words], tags


def _tags(words: Sequence[tuple[str, tuple[int, int]]], spans: Sequence[Span]) -> list[str]:
    tags = []
    for _, (start, stop) in words:
        own = next((span for span in spans if span.start <= start and stop <= span.stop), None)
        tags.append("O" if own is None else f"{'B' if own.start == start else 'I'}-{own.label}")
    return tags


def _words(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Words, each with its first character and the one behind its last."""
    found: list[tuple[str, tuple[int, int]]] = _splitter().pre_tokenize_str(text)
    return found


@cache
def _splitter() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), _chinese()])


def _chinese() -> Any:
    from tokenizers import Regex, pre_tokenizers

    characters = Regex("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
    return pre_tokenizers.Split(characters, "isolated")


def _trimmed(text: str, cell: Any) -> list[Span]:
    """A text's spans, without the spaces at their ends."""
    found = []
    for start, stop, label in filter(None, map(_span, cell)):
        inside = re.compile(r"\s*(.*?)\s*\Z", re.DOTALL).match(text[start:stop])
        assert inside is not None
        found.append(Span(start + inside.start(1), stop - len(text[start:stop]) + inside.end(1), label))
    return found


def _span(value: Any) -> Span | None:
    """A span of a list, ``[start, stop, label]``, or of an object; None: it is none."""
    if isinstance(value, Mapping):
        start, stop = next(
            ((value[one], value[other]) for one, other in _ENDS if one in value and other in value),
            (None, None),
        )
        label = next((value[name] for name in _LABELS if name in value), None)
        if isinstance(label, list) and len(label) == 1:
            (label,) = label
    elif isinstance(value, list | tuple | np.ndarray) and len(value) == 3:
        start, stop, label = value
    else:
        return None
    if not isinstance(start, Integral) or not isinstance(stop, Integral) or not isinstance(label, str):
        return None
    found = Span(int(start), int(stop), label)
    return found if 0 <= found.start < found.stop else None
