"""Token classification: a label for every word, as in entity recognition or part-of-speech tagging."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, features_of
from ldsearch.tasks.labels import class_ids, class_names, with_class_names
from ldsearch.tasks.metrics import Metric, metric_named
from ldsearch.tasks.objectives import Categorical, labelled_tokens
from ldsearch.tasks.readers import LINE
from ldsearch.tasks.spans import holds_spans, split_words, tag_words
from ldsearch.tasks.tables import (
    Columns,
    DataSource,
    find_columns,
    is_blank,
    is_missing,
    is_no_text,
    read_written,
    refuse_rows,
    usual_column,
)
from ldsearch.tasks.tokenizer import require_fast
from ldsearch.trials.intervals import Statistics

_ENTITY_TAGS = ("B-", "I-", "E-", "S-")
_OUTSIDE = "O"
# Stands between documents in CoNLL files.
_DOCUMENT = "-DOCSTART-"
# A line's cells in CoNLL-U (universaldependencies.org/format.html); the first numbers a sentence's words.
_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NUMBER = re.compile(r"\d+([-.]\d+)?")
# What a column is called that numbers the sentences of a table with a word a row, and one of its words.
_SENTENCES = ("sentence #", "sentence_id", "sentence_idx", "sent_id", "sentence")
_WORDS = ("word", "token", "form")
# What columns of texts are called whose entities are spans of characters, and of those.
_TEXTS = ("text", "sentence", "content", "data")
_SPANS = ("spans", "entities", "label", "labels")
_WORDS_ALONE = {"text": ("tokens", "words", *_WORDS, *_TEXTS)}
# The predicted id of a word the model has not seen.
_UNSEEN = -1
_LISTS = (list, tuple, np.ndarray)
# Lines of a file with a word a line have as many parts each, but for slips.
_COLUMNS = 3

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

    def take(self, rows: Sequence[int]) -> "EncodedWords":
        """Select examples with their words."""
        features = tuple(self.features[row] for row in rows)
        tags, firsts = tuple(self.tags[row] for row in rows), tuple(self.firsts[row] for row in rows)
        return replace(self, features=features, tags=tags, firsts=firsts)


class TokenClassification(Task):
    """A tagging problem with its splits of ``TaggedExamples``.

    Rows hold a list of words and as many tags, names or ids; or a text and its entities as spans of
    characters; or a word, its tag and which sentence it is of. Lines of text files hold a word first and its
    tag last, and an empty one ends a sentence (CoNLL), or what CoNLL-U has, or a text each without tags. The
    metric is F1 of entities where any label starts with B- or I-, else the accuracy of words.
    """

    kind = metrics = "tokens"
    reads = ("labels",)
    head = "TokenClassification"
    per_token = by_line = True
    objective = Categorical(labelled_tokens)
    column_names: ClassVar = {
        **_WORDS_ALONE,
        "label": ("ner_tags", "tags", "labels", "pos_tags", "tag", "ner_tag", "upos", *_SPANS),
    }

    @property
    def metric(self) -> Metric:
        """The named metric or the default, which must fit the labels."""
        entities = any(label.startswith(("B-", "I-")) for label in self.labels)
        metric = metric_named(self.kind, self.metric_name or ("f1" if entities else "accuracy"), 1)
        others = [name for name in self.labels if name != _OUTSIDE and not name.startswith(_ENTITY_TAGS)]
        if metric.name == "f1" and others:
            raise DataError(
                f"f1 counts entities, whose labels are O and B-, I-, E- or S- with a type, not "
                f"{', '.join(others[:5])}: choose --metric accuracy"
            )
        return metric

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """Rows of lists of words and of tags, from whatever the files held."""
        if list(table.columns) == [LINE] and all(isinstance(cell, str) for cell in table[LINE]):
            return _of_lines(list(table[LINE]), source.data)
        table = read_written(table)
        wanted, there = source.columns, [str(column) for column in table.columns]
        spans = [name for name in ([wanted.label] if wanted.label else _SPANS) if name in there]
        label = next(
            (name for name in spans if holds_spans(table[name]) and table[name].map(len).any()), None
        )
        text = wanted.text or usual_column(there, _TEXTS)
        if label is not None and text in there and not any(map(is_blank, table[text])):
            words, tags = tag_words(table[text], table[label])
            return pd.DataFrame({text: words, label: tags})
        label = wanted.label or usual_column(there, cls.column_names["label"])
        untagged = label not in there or table[label].map(cls.is_hidden).all()
        column = wanted.text or usual_column(there, _WORDS_ALONE["text"])
        if untagged and text == column and text in there and not table[text].map(is_no_text).any():
            refuse_rows(map(is_blank, table[text]), "given", f"have no {text}")
            return table.assign(**{text: pd.Series(split_words(map(str, table[text])), table.index)})
        if any(isinstance(cell, _LISTS) for column in table for cell in table[column][:1]):
            return table
        sentence = usual_column(there, _SENTENCES)
        if sentence is None or (wanted.text or usual_column(there, _WORDS)) not in there:
            raise DataError(
                f"{source.data}: no column holds lists of words or tags; a file with a word and its tag "
                "a line, an empty line behind each sentence, is to be named .conll; a table with a word a "
                "row needs a column sentence_id"
            )
        # Kaggle's file names a sentence beside its first word alone.
        given = table[sentence].where(table[sentence].astype(str).str.strip() != "").ffill()
        sentences = table.drop(columns=sentence).groupby((given != given.shift()).cumsum())
        return sentences.agg(list).reset_index(drop=True)

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """No tag of any word."""
        tags = cell if isinstance(cell, _LISTS) else [cell]
        return all(is_missing(tag) or str(tag) in ("", "-1") for tag in tags)

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """As many tags as words, outside of every entity."""
        wanted = replace(source.columns, label=None)
        words = table[find_columns(table, wanted, _WORDS_ALONE, source.data).text]
        return [[names[_outside(names)]] * len(row) if isinstance(row, _LISTS) else [] for row in words]

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """The tag of each word; of one that the model has not seen, as if outside of every entity."""
        assert isinstance(encoded, EncodedWords)
        unseen = _outside(self.labels)
        return [
            [self.labels[tag] for tag in np.where(first >= 0, ids[first].astype(np.int64), unseen)]
            for ids, first in zip(outputs, encoded.firsts, strict=True)
        ]

    @classmethod
    def by_class_names(
        cls, tables: Mapping[str, pd.DataFrame], columns: Columns, known: Sequence[str] | None
    ) -> tuple[dict[str, pd.DataFrame], Sequence[str] | None, str]:
        """Names for ids, where the data set has them."""
        return with_class_names(tables, columns.label, known)

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """All that occur; or the model's, whose names or ids the data must use."""
        _check(train, columns, "train")
        tags = chain(*(cell for cell in train[columns.label] if isinstance(cell, _LISTS)))
        return class_names(pd.Series(list(tags), name=columns.label, dtype=object), known)

    @classmethod
    def read_rows(
        cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str
    ) -> TaggedExamples:
        """Words and label ids of each row, as many of these as of those."""
        _check(table, columns, role)
        words, tags = table[columns.text], table[columns.label]
        flat = pd.Series(list(chain(*tags)), name=columns.label, dtype=object)
        ids = iter(class_ids(flat, names, role))
        return TaggedExamples(tuple(map(tuple, words)), tuple(tuple(islice(ids, len(row))) for row in words))

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> EncodedWords:
        """Tokenise a split, cut to ``reference`` tokens; a word's label is its first token's, others -100.

        Raises:
            DataError: If there is no such split, or the tokenizer does not say which word a token is of.
        """
        require_fast(tokenizer)
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


def _outside(labels: Sequence[str]) -> int:
    """The id of what is no entity; of labels that are no entities', the first."""
    return [*labels].index(_OUTSIDE) if _OUTSIDE in labels else 0


def _check(table: pd.DataFrame, columns: Columns, role: str) -> None:
    """Refuse rows without lists of words and of as many tags."""
    words, tags = table[columns.text], table[columns.label]
    wordless = (
        not isinstance(row, _LISTS) or len(row) == 0 or not all(isinstance(word, str) for word in row)
        for row in words
    )
    refuse_rows(wordless, role, f"have no list of words in column {columns.text!r}")
    untagged = (not isinstance(row, _LISTS) for row in tags)
    refuse_rows(untagged, role, f"have no list of tags in column {columns.label!r}")
    both = zip(words, tags, strict=True)
    refuse_rows((len(row) != len(own) for row, own in both), role, "have not as many tags as words")


def _of_lines(lines: Sequence[str], data: str) -> pd.DataFrame:
    """Rows of words and tags, of lines with the word first and the tag last; or of CoNLL-U's, all they have.

    Where lines are of more lengths than files with columns have, each is a text without tags.

    Raises:
        DataError: If a line has a word alone, or its number first.
    """
    parts = [line.split("\t") for line in lines if not line.startswith("#")]
    tables = [
        list(group) for filled, group in groupby(parts, lambda part: bool("".join(part).strip())) if filled
    ]
    if all(len(part) == len(_CONLLU) and _NUMBER.fullmatch(part[0]) for own in tables for part in own):
        # Ranges and empty nodes are no words.
        kept = [[part for part in own if part[0].isdigit()] for own in tables]
        return pd.DataFrame([dict(zip(_CONLLU, zip(*own, strict=True), strict=True)) for own in kept])
    if len(parts) > 2 and all(
        [part[0].split()[:1] for part in own] == [[str(place)] for place in range(1, len(own) + 1)]
        for own in tables
    ):
        raise DataError(
            f"{data}: its lines begin with the number of a word: keep the word first and its tag last, as in "
            "grep -v '^#' FILE | cut -f 2,3 > FILE.conll"
        )
    words = [line.split() for line in lines]
    if len({len(line) for line in words if line}) > _COLUMNS:
        return pd.DataFrame({"tokens": split_words(line for line in lines if line.strip())})
    if alone := next((line for line in words if len(line) == 1), None):
        raise DataError(f"{data}: a line needs a word and its tag, not {alone[0]!r} alone")
    sentences = [list(group) for filled, group in groupby(words, key=bool) if filled]
    kept = [sentence for sentence in sentences if sentence[0][0] != _DOCUMENT]
    rows = [{"tokens": [line[0] for line in own], "tags": [line[-1] for line in own]} for own in kept]
    return pd.DataFrame(rows, columns=["tokens", "tags"])


def _entities(tags: Tags, labels: Sequence[str]) -> frozenset[tuple[str, int, int]]:
    """(type, first word, last word) of each entity, as conlleval counts them (Tjong Kim Sang 2000)."""
    # Here, since it brings scikit-learn, which takes a second to load.
    from seqeval.metrics.sequence_labeling import get_entities

    return frozenset(get_entities([_OUTSIDE if tag == _UNSEEN else labels[tag] for tag in tags]))


# What each metric compares, from the label ids of an example's words.
_READINGS: Mapping[str, Callable[[Tags, Sequence[str]], Any]] = MappingProxyType(
    {"f1": _entities, "accuracy": lambda tags, labels: tags}
)
