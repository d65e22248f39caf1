"""Ranking: queries, each with documents to be put in order by a model that reads both (a cross-encoder).

An example is a query. Its documents are its features, so that metrics, intervals and splits are of queries.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, features_of
from ldsearch.tasks.labels import label_text
from ldsearch.tasks.likeness import OF_ORDER, by_query, gains_of, grouped
from ldsearch.tasks.objectives import Objective, Relevance, relevance
from ldsearch.tasks.tables import (
    Columns,
    DataSource,
    find_columns,
    is_blank,
    is_missing,
    refuse_rows,
    texts_of,
    usual_column,
)
from ldsearch.trials.intervals import Statistics

_LISTS = (list, tuple, np.ndarray)


@dataclass(frozen=True)
class RankedExamples(Rows):
    """One split: queries, and of each its documents and how relevant they are, 0 being not at all."""

    queries: tuple[str, ...]
    documents: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[float, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The queries, and every document once."""
        every = dict.fromkeys(document for own in self.documents for document in own)
        return (*self.queries, *every)

    @property
    def compared(self) -> Sequence[str]:
        """The queries: a collection's documents may be on every side."""
        return self.queries


class Ranking(Task):
    """Documents in the order of their relevance to a query, with splits of ``RankedExamples``.

    Rows are (query, document, label); lists of documents with a list of labels; or (query, positive,
    negative), each a text or a list, with the negatives named as the label column. Rows of one query, word
    for word, are one example. A model has one output, or two whose difference orders.
    """

    kind = metrics = "ranking"
    head = "SequenceClassification"
    reads = ("pair_column",)
    together = True
    likeness = OF_ORDER
    rows_are = "queries"
    own_answers = (
        "they have no labels, so the scores are of the order that the full model itself gives in fp32: a "
        "document's gain is what the model makes of it beside the best"
    )
    column_names: ClassVar = {
        "text": ("query", "question", "anchor", "search_query", "queries"),
        "pair": (
            *("document", "passage", "documents", "passages", "paragraph", "positive", "positives"),
            *("text", "answer", "context", "docs"),
        ),
        "label": (
            *("label", "score", "labels", "scores", "relevance", "relevant", "target"),
            *("negative", "negatives"),
        ),
    }

    @cached_property
    def objective(self) -> Objective:  # type: ignore[override]
        """Cross-entropy where labels are 0 to 1; scores beyond are what outputs should be."""
        labels = (label for own in self.splits["train"].labels for label in own)
        return Relevance(squares=any(label > 1 for label in labels))

    @classmethod
    def claims(cls, config: PreTrainedConfig, table: Callable[[], pd.DataFrame], source: DataSource) -> bool:
        """True of one output, and of rows whose usual columns give most queries several documents."""
        if config.num_labels != 1 or {*cls._columns(rows := table(), source)[:2]} - {*rows.columns}:
            return False
        documents = [len(own) for own in cls.prepare_table(rows, source).iloc[:, 1]]
        return 2 * sum(count > 1 for count in documents) > len(documents)

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """A row for each query, with lists of its documents and, where there are some, of their labels."""
        query, document, label = cls._columns(table, source)
        there, needed = [str(column) for column in table.columns], [query, document, label or query]
        if any(there.count(str(column)) != 1 for column in needed):
            return table  # whose columns are refused by name
        known: dict[Any, dict[tuple[Any, Any], None]] = {}
        labels = [None] * len(table) if label is None else list(table[label])
        for row, (asked, *own) in enumerate(zip(table[query], table[document], labels, strict=True)):
            # What is no text is a row of its own, to be refused by its number.
            name = asked.strip() if isinstance(asked, str) else (row,)
            known.setdefault(name, {}).update(dict.fromkeys(_pairs(*own)))
        columns: dict[Any, Any] = {
            query: [name if isinstance(name, str) else None for name in known],
            document: [[text for text, _ in pairs] for pairs in known.values()],
        }
        if label is not None:
            columns[label] = [[own for _, own in pairs] for pairs in known.values()]
        return pd.DataFrame(columns)

    @classmethod
    def _columns(cls, table: pd.DataFrame, source: DataSource) -> list[str | None]:
        """The columns of query, document and label, named or usual; None where there is none."""
        found = {side: getattr(source.columns, side) for side in cls.column_names}
        for side, usual in cls.column_names.items():
            free = [str(name) for name in table.columns if name not in found.values()]
            found[side] = found[side] or usual_column(free, usual)
        return list(found.values())

    @classmethod
    def find_columns(cls, table: pd.DataFrame, source: DataSource) -> Columns:
        """The columns of a prepared table, which keep their names."""
        hints = {"label": "it has labels, or negatives; ldsearch compress needs none"}
        return find_columns(table, source.columns, cls.column_names, source.data, hints)

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """No label of any document."""
        labels = cell if isinstance(cell, _LISTS) else [cell]
        return all(is_missing(own) or label_text(own) == "-1" for own in labels)

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """A 0 for each document."""
        _, document, _ = cls._columns(table, source)
        return [[0.0] * len(own) for own in table[document]]

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """The model's one or two outputs."""
        if known is not None and len(known) > 2:
            raise DataError(
                f"the model classifies {', '.join(known)}; ranking needs one output, or two whose difference "
                "orders"
            )
        return known or ["relevance"]

    @classmethod
    def read_rows(
        cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str
    ) -> RankedExamples:
        """Queries, documents and labels."""
        queries = texts_of(table[columns.text], role)
        documents = tuple(map(tuple, table[columns.pair]))
        refuse_rows((not own for own in documents), role, "have no document")
        labels = tuple(tuple(map(_number, own)) for own in table[columns.label])
        refuse_rows((any(map(is_blank, own)) for own in documents), role, f"have no text in {columns.pair!r}")
        odd = (not all(map(math.isfinite, own)) for own in labels)
        refuse_rows(odd, role, f"have a document without a number in {columns.label!r}")
        negative = (min(own) < 0 for own in labels)
        refuse_rows(negative, role, f"have a label below 0 in {columns.label!r}: 0 is not relevant")
        twice = (len({*own}) < len(own) for own in documents)
        refuse_rows(twice, role, "have a document twice with two labels")
        if all(len(own) < 2 for own in documents):
            raise DataError(
                f"no {role} query has two documents, so there is nothing to rank: give all documents of a "
                "query in one row, or in rows with the same query; single pairs with a score are --task "
                "regression"
            )
        return RankedExamples(queries, documents, labels)

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """Gains of each query's documents (``gains_of``)."""
        assert encoded.origins is not None
        return [gains_of(scores).tolist() for scores in by_query(outputs, encoded.origins)]

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split: a feature for each query with one of its documents, cut to ``reference`` tokens.

        ``labels`` are the document's and the number of its query.

        Raises:
            DataError: If there is no such split.
        """
        rows: RankedExamples = self.rows(split)
        origins = [query for query, own in enumerate(rows.documents) for _ in own]
        queries = [rows.queries[query] for query in origins]
        documents = [document for own in rows.documents for document in own]
        tokens = tokenizer(queries, documents, truncation=True, max_length=reference)
        labels = [label for own in rows.labels for label in own]
        pairs = [(label, float(query)) for label, query in zip(labels, origins, strict=True)]
        return Encoded(
            features_of(tokens, pairs), reference, tuple(origins), separator=tokenizer.sep_token_id
        )

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """The metric of each query, shape (queries,)."""
        assert encoded.origins is not None
        labels = grouped([feature["labels"][0] for feature in encoded], encoded.origins)
        return self.metric.statistics(by_query(outputs, encoded.origins), labels)

    def probe(self, logits: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """The outputs themselves, as of a regression: what orders."""
        return relevance(logits).sum()


def _pairs(documents: Any, label: Any) -> list[tuple[Any, Any]]:
    """Documents of a row with their labels: a number each, or negatives in place of the labels."""
    own, others = (list(cell) if isinstance(cell, _LISTS) else [cell] for cell in (documents, label))
    own = [one if isinstance(one, str) else None for one in own]
    if all(isinstance(other, str) and math.isnan(_number(other)) for other in others):
        return [*((one, 1.0) for one in own), *((other, 0.0) for other in others)]
    others = others if isinstance(label, _LISTS) else others * len(own)
    if len(others) != len(own):
        raise DataError(f"a query has {len(own)} documents and {len(others)} labels: {str(own)[:60]}")
    return list(zip(own, others, strict=True))


def _number(label: Any) -> float:
    try:
        return float(label)
    except (TypeError, ValueError):
        return math.nan
