"""Extractive question answering: the answer is a span of a context that may be read in several windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Collate, DataSource, Encoded, split_named
from ldsearch.tasks.metrics import Metric
from ldsearch.tasks.objectives import Categorical, span_ends
from ldsearch.tasks.rows import pad_inputs
from ldsearch.tasks.splits import fix_splits
from ldsearch.tasks.squad import METRICS, answer_tokens, best_span
from ldsearch.tasks.tables import Columns, find_columns, read_tables
from ldsearch.tasks.windows import cut_windows

KIND = "questions"


class Answer(NamedTuple):
    """Where in its context an answer starts, in characters, and what it says."""

    start: int
    text: str


@dataclass(frozen=True)
class QuestionExamples:
    """One split: contexts, questions, and for each question one answer or more."""

    contexts: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[tuple[Answer, ...], ...]

    def __len__(self) -> int:
        return len(self.questions)

    def take(self, rows: Sequence[int]) -> "QuestionExamples":
        """Some of the rows, in the given order."""
        return QuestionExamples(
            contexts=tuple(self.contexts[row] for row in rows),
            questions=tuple(self.questions[row] for row in rows),
            answers=tuple(self.answers[row] for row in rows),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Every context once, and the questions."""
        return (*dict.fromkeys(self.contexts), *self.questions)

    @property
    def fingerprint(self) -> str:
        """Changes with any context, question or answer."""
        return digest(self.contexts, self.questions, self.answers)


@dataclass(frozen=True, kw_only=True)
class EncodedQuestions(Encoded):
    """Windows of the contexts, and beside them what turns logits into answers; no model sees that.

    Args:
        asked: The examples the windows were cut from.
        characters: For each window the characters of its context that each token covers, shape (n, 2): the
            first and the one behind the last, or -1 twice where it is no context token.
    """

    asked: QuestionExamples
    characters: tuple[NDArray[np.int32], ...]


@dataclass(frozen=True)
class QuestionAnswering:
    """A question-answering problem with its splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        splits: ``train``, ``search`` and ``report``.
        metric: One of ``squad.METRICS``.
        overlap: What was done so that the splits share no contexts, in words; empty where nothing was.
        stride: Tokens that neighbouring windows of a context share, where the questions leave room for
            twice as many; else half of what they leave.
    """

    source: Mapping[str, Any]
    splits: Mapping[str, QuestionExamples]
    metric: Metric
    overlap: str = ""
    stride: int = 128

    labels: ClassVar[tuple[str, ...]] = ()
    head: ClassVar[str] = "QuestionAnswering"
    head_config: ClassVar[Mapping[str, Any]] = MappingProxyType({"num_labels": 2})
    per_token: ClassVar[bool] = True
    objective: ClassVar[Categorical] = Categorical(span_ends)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> EncodedQuestions:
        """Tokenise a split: question, then as much of the context as fits, in as many windows as it takes.

        ``labels`` are the tokens at which the first answer starts and ends, or twice position 0, where
        [CLS] stands, in a window that does not hold all of it (Devlin et al. 2019, reference code).

        Raises:
            DataError: If there is no such split, the tokenizer does not say which characters a token covers,
                or the reference length leaves no room for a context.
        """
        asked = split_named(self.splits, split)
        windows = list(cut_windows(asked.questions, asked.contexts, tokenizer, reference, self.stride))
        labels = [
            span
            for origin, own in groupby(windows, key=lambda window: window.origin)
            for span in _answer_in([window.characters for window in own], asked.answers[origin][0])
        ]
        return EncodedQuestions(
            features=tuple(
                {**window.tokens, "labels": span} for window, span in zip(windows, labels, strict=True)
            ),
            reference=reference,
            origins=tuple(window.origin for window in windows),
            asked=asked,
            characters=tuple(window.characters for window in windows),
        )

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Pads to the longest, or to ``pad_to``; ``labels`` have shape (B, 2)."""
        return pad_inputs(tokenizer, pad_to)

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """Nothing is random here."""
        return batch

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """The logits of start and end, shape (B, n, 2)."""
        return logits

    def predict(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[str]:
        """The best span's text for each example.

        Args:
            outputs: For each feature, in order, its logits without padding, shape (n, 2).
            encoded: What ``encode`` made.
        """
        assert isinstance(encoded, EncodedQuestions)
        assert encoded.origins is not None
        found = [best_span(*both) for both in zip(outputs, encoded.characters, strict=True)]
        texts = []
        for origin, own in groupby(zip(encoded.origins, found, strict=True), key=lambda pair: pair[0]):
            best = max((span for _, span in own), key=lambda span: span.score)
            texts.append(encoded.asked.contexts[origin][best.first : best.stop])
        return texts

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """F1 or exact match of each example's best span, shape (examples,); arguments as ``predict``'s."""
        assert isinstance(encoded, EncodedQuestions)
        answers = [[answer.text for answer in own] for own in encoded.asked.answers]
        return self.metric.statistics(self.predict(outputs, encoded), answers)


def load_questions(source: DataSource, known_labels: Sequence[str] | None = None) -> QuestionAnswering:
    """Read questions, their contexts and answers, and fix the splits so that none share a context.

    Args:
        source: The data. Of its columns ``text`` is the context, ``pair`` the question and ``label`` the
            answers, which hold lists ``text`` and ``answer_start``; where not named they are ``context``,
            ``question`` and ``answers``, as SQuAD v1.1 has them on the hub.
        known_labels: Means nothing here: the head has no named outputs.

    Raises:
        DataError: If data is missing, empty or misshapen, has questions without an answer or answers that
            do not stand where they should, or is too small or too alike to be split; or on an unknown
            metric or a negative stride.
    """
    name = source.metric or next(iter(METRICS))
    if name not in METRICS:
        raise DataError(f"no metric {name!r} for {KIND}: there are {', '.join(METRICS)}")
    if source.stride < 0:
        raise DataError(f"the stride is a number of shared tokens, not {source.stride}")
    named = source.columns
    columns = _Columns(named.text or "context", named.pair or "question", named.label or "answers")
    given = {}
    for role, table in read_tables(source.data, source.config, source.validation).items():
        if role == "report" and not _answered(table, columns):
            continue  # public test sets hide their answers
        find_columns(table, Columns(*columns), f"{source.data} ({role})")
        given[role] = _examples(table, columns, role)
    fixed = fix_splits(
        {role: examples.contexts for role, examples in given.items()},
        source.keep_overlap,
        search_rows=source.search_rows,
    )
    splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
    record = replace(source, metric=name).record(KIND, columns._asdict())
    return QuestionAnswering(record, splits, METRICS[name], fixed.overlap.describe(), source.stride)


class _Columns(NamedTuple):
    """Context, question and answers, under the names that ``Columns`` has for such."""

    text: str
    pair: str
    label: str


def _answered(table: pd.DataFrame, columns: _Columns) -> bool:
    return columns.label in table and any(_answers(cell) for cell in table[columns.label])


def _examples(table: pd.DataFrame, columns: _Columns, role: str) -> QuestionExamples:
    contexts, questions = (tuple(table[name]) for name in columns[:2])
    for name, texts in zip(columns, (contexts, questions), strict=False):
        if blank := sum(not isinstance(text, str) or not text.strip() for text in texts):
            raise DataError(f"{blank} of {len(table)} {role} rows have no {name}")
    answers = tuple(_answers(cell) for cell in table[columns.label])
    if unanswered := sum(not own or any(not text.strip() for _, text in own) for own in answers):
        raise DataError(f"{unanswered} of {len(table)} {role} rows have no answer: every question needs one")
    astray = sum(
        any(start < 0 or not context.startswith(text, start) for start, text in own)
        for context, own in zip(contexts, answers, strict=True)
    )
    if astray:
        raise DataError(
            f"{astray} of {len(table)} {role} rows have an answer that does not stand at its answer_start, "
            "counted in characters of the context"
        )
    # Spaces before a question would be tokens to some tokenizers.
    return QuestionExamples(contexts, tuple(question.strip() for question in questions), answers)


def _answers(cell: Any) -> tuple[Answer, ...]:
    """Of one row; parquet and the hub give NumPy arrays for lists. Null is no answer."""
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return ()
    fields: Mapping[str, Any] = cell if isinstance(cell, Mapping) else {}
    starts, texts = fields.get("answer_start"), fields.get("text")
    if (
        not isinstance(starts, list | np.ndarray)
        or not isinstance(texts, list | np.ndarray)
        or len(starts) != len(texts)
        or not all(isinstance(start, Integral) for start in starts)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise DataError(
            f"answers must hold a list text and as long a list answer_start of whole numbers, not "
            f"{str(cell)[:80]!r}"
        )
    return tuple(Answer(int(start), text) for start, text in zip(starts, texts, strict=True))


def _answer_in(windows: Sequence[NDArray[np.int32]], answer: Answer) -> list[tuple[int, int]]:
    return answer_tokens(windows, answer.start, answer.start + len(answer.text))
