"""Token classification: a label for every word, as in entity recognition or part-of-speech tagging."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, features_of, split_rows
from ldsearch.tasks.classification import SingleLabel
from ldsearch.tasks.metrics import metric_named
from ldsearch.tasks.objectives import Categorical, labelled_tokens
from ldsearch.tasks.tables import LINE, DataSource, find_column, read_tables, without_hidden

KIND = "tokens"
_WORDS = ("tokens", "words")
_TAGS = ("ner_tags", "tags", "labels", "pos_tags")
_ENTITY_TAGS = ("B-", "I-", "E-", "S-")
_OUTSIDE = "O"
# Stands between documents in CoNLL files.
_DOCUMENT = "-DOCSTART-"
# The predicted id of a word the model has not seen.
_UNSEEN = -1

Tags = Sequence[int] | NDArray[np.int64]


@dataclass(frozen=True)
class TaggedExamples(Rows):
    """One split: the words of each sentence, and their label ids."""

    words: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[int, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences, a space between two words."""
        return tuple(" ".join(words) for words in self.words)


@dataclass(frozen=True, kw_only=True)
class EncodedWords(Encoded):
    """A tokenised split, with what turns predictions for tokens into predictions for words.

    Args:
        tags: For each example the label ids of all its words, also of those that were cut off.
        firsts: For each example the first token of each word, -1 where it has none.
    """

    tags: tuple[tuple[int, ...], ...]
    firsts: tuple[NDArray[np.int64], ...]


class TokenClassification(Task):
    """A tagging problem with its splits of ``TaggedExamples``; the metric is entity F1 or word accuracy."""

    head = "TokenClassification"
    per_token = True
    collator = DataCollatorForTokenClassification
    metrics = KIND
    objective = Categorical(labelled_tokens)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> EncodedWords:
        """Tokenise a split, cut to ``reference`` tokens; a word's label is its first token's, others -100.

        Raises:
            DataError: If there is no such split, or the tokenizer does not say which word a token is of.
        """
        if not tokenizer.is_fast:
            raise DataError(
                f"{type(tokenizer).__name__} does not say which word a token is of: token classification "
                "needs a fast tokenizer (tokenizer.json)"
            )
        examples: TaggedExamples = self.rows(split)
        tokens = tokenizer(
            # Where a space belongs to the word behind it, words without one are no words of their own.
            [[words[0], *(f" {word}" for word in words[1:])] for words in examples.words],
            is_split_into_words=True,
            truncation=True,
            max_length=reference,
        )
        firsts, labels = [], []
        for row, tags in enumerate(examples.tags):
            first: dict[int, int] = {}
            for token, word in enumerate(tokens.word_ids(row)):
                if word is not None:
                    first.setdefault(word, token)
            firsts.append(np.array([first.get(word, -1) for word in range(len(tags))], dtype=np.int64))
            own = [-100] * len(tokens["input_ids"][row])
            for word, token in first.items():
                own[token] = tags[word]
            labels.append(own)
        features = features_of(tokens, labels)
        return EncodedWords(features=features, reference=reference, tags=examples.tags, firsts=tuple(firsts))

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """The best label's id for each token, shape (B, n)."""
        return logits.argmax(dim=-1)

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per example (correct, predicted, gold) entities, or (correct, all) words.

        Every word counts. Of one the model has not seen, since it was cut off or has no token, nothing is
        predicted: it is outside every entity, and its label is wrong.

        Args:
            outputs: For each example the predicted label ids of its tokens, shape (n,).
            encoded: What ``encode`` made.
        """
        assert isinstance(encoded, EncodedWords)
        predicted = [
            np.where(first >= 0, ids[first], _UNSEEN)
            for ids, first in zip(outputs, encoded.firsts, strict=True)
        ]
        read = _READINGS[self.metric.name]
        found, gold = ([read(tags, self.labels) for tags in rows] for rows in (predicted, encoded.tags))
        return self.metric.statistics(found, gold)


def _entities(tags: Tags, labels: Sequence[str]) -> frozenset[tuple[str, int, int]]:
    """(type, first word, last word) of each entity, as conlleval counts them (Tjong Kim Sang 2000)."""
    # Here, since it brings scikit-learn, which takes a second to load.
    from seqeval.metrics.sequence_labeling import get_entities

    return frozenset(get_entities([_OUTSIDE if tag == _UNSEEN else labels[tag] for tag in tags]))


# What each metric compares, from the label ids of an example's words.
_READINGS: Mapping[str, Callable[[Tags, Sequence[str]], Any]] = MappingProxyType(
    {"f1": _entities, "accuracy": lambda tags, labels: tags}
)


def load_tokens(source: DataSource, known_labels: Sequence[str] | None = None) -> TokenClassification:
    """Read tagged sentences and fix the splits.

    Rows hold a list of words (``tokens`` or ``words``) and as many tags, names or ids (``ner_tags``,
    ``tags``, ``labels`` or ``pos_tags``); lines of text files hold a word first and its tag last, and an
    empty one ends a sentence (CoNLL).

    Args:
        source: The data; its text column is that of the words. The metric is F1 of entities where any label
            starts with B- or I-, else accuracy.
        known_labels: Label names of a fine-tuned model, in id order; the data must use them, or their ids.

    Raises:
        DataError: If data is missing, empty or misshapen, too small or too alike to be split, validation has
            labels training never saw, or the metric does not fit the labels.
    """
    tables = {role: _sentences(table, source.data) for role, table in read_tables(source, lines=True).items()}
    words = find_column(tables["train"], source.columns.text, _WORDS, "text", source.data)
    tags = find_column(tables["train"], source.columns.label, _TAGS, "label", source.data)
    rows = {
        role: _rows(table, words, tags, f"{source.data} ({role})", role)
        for role, table in without_hidden(tables, tags).items()
    }
    flat = {role: pd.Series(list(chain(*own)), name=tags, dtype=object) for role, (_, own) in rows.items()}
    names = SingleLabel().names(flat["train"], known_labels)
    given = {}
    for role, (sentences, _) in rows.items():
        ids = iter(SingleLabel().values(flat[role], names, role))
        given[role] = TaggedExamples(sentences, tuple(tuple(islice(ids, len(row))) for row in sentences))
    splits, overlap = split_rows(given, lambda examples: examples.texts, source)
    labels = tuple(names if known_labels is None else known_labels)
    record = source.record(KIND, {"text": words, "pair": None, "label": tags})
    return TokenClassification(record, labels, splits, overlap, _metric_name(source.metric, labels))


def _metric_name(wanted: str | None, labels: Sequence[str]) -> str:
    default = "f1" if any(label.startswith(("B-", "I-")) for label in labels) else "accuracy"
    name = metric_named(KIND, wanted or default, len(labels)).name
    others = [label for label in labels if label != _OUTSIDE and not label.startswith(_ENTITY_TAGS)]
    if name == "f1" and others:
        raise DataError(
            f"f1 counts entities, whose labels are O and B-, I-, E- or S- with a type, not "
            f"{', '.join(others[:5])}: choose --metric accuracy"
        )
    return name


def _sentences(table: pd.DataFrame, source: str) -> pd.DataFrame:
    """Lines as rows of words and tags; another table as it is."""
    if list(table.columns) != [LINE]:
        return table
    lines = [str(line).split() for line in table[LINE]]
    if alone := next((line for line in lines if len(line) == 1), None):
        raise DataError(f"{source}: a line needs a word and its tag, not {alone[0]!r} alone")
    sentences = [list(own) for filled, own in groupby(lines, key=bool) if filled]
    kept = [own for own in sentences if own[0][0] != _DOCUMENT]
    columns = {"tokens": 0, "tags": -1}
    return pd.DataFrame({name: [[line[at] for line in own] for own in kept] for name, at in columns.items()})


def _rows(
    table: pd.DataFrame, words: str, tags: str, source: str, role: str
) -> tuple[tuple[tuple[str, ...], ...], list[list[Any]]]:
    """Words and tags of each row, as many of these as of those."""
    for name, kind in ((words, "text"), (tags, "label")):
        find_column(table, name, (), kind, source)
    for number, both in enumerate(zip(table[words], table[tags], strict=True)):
        for name, cell in zip((words, tags), both, strict=True):
            if not isinstance(cell, list | tuple | np.ndarray):
                raise DataError(f"{role} row {number}: {name} is a list, not {str(cell)[:40]!r}")
        if len(both[0]) == 0 or not all(isinstance(word, str) for word in both[0]):
            raise DataError(f"{role} row {number}: {words} is a list of words, not {str(both[0])[:40]}")
        if len(both[0]) != len(both[1]):
            raise DataError(f"{role} row {number} has {len(both[0])} {words} and {len(both[1])} {tags}")
    return tuple(tuple(cell) for cell in table[words]), [list(cell) for cell in table[tags]]
