"""Extractive question answering: the answer is a span of a context that may be read in several windows.

SQuAD v1.1 (Rajpurkar et al. 2016). A window of n tokens has logits (n, 2), the start's and the end's, and
characters (n, 2): the first that a token covers of its context and the one behind the last, or -1 twice where
it is no context token.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, split_rows
from ldsearch.tasks.metrics import metric_named
from ldsearch.tasks.objectives import Categorical, span_ends
from ldsearch.tasks.tables import Columns, DataSource, find_columns, read_tables, without_hidden

KIND = "questions"
# Longest predicted answer in tokens (Devlin et al. 2019, reference code).
LONGEST_ANSWER = 30
# A window has room for at least this many tokens of its context, or there would be hundreds of windows.
LEAST_ROOM = 8
# Rows tokenised at once: a tokenizer's offsets take far more memory than what is kept of them.
_CHUNK = 1_000


class Answer(NamedTuple):
    """An answer: its first character in the context, and its text."""

    start: int
    text: str


class Span(NamedTuple):
    """An answer in a window: its characters ``first`` to before ``stop``, and the sum of its two logits."""

    score: float
    first: int
    stop: int


class Window(NamedTuple):
    """One input of the model.

    Args:
        tokens: What the tokenizer says of it, without padding.
        origin: The row it was cut from.
        characters: Shape (n, 2).
    """

    tokens: Mapping[str, Any]
    origin: int
    characters: NDArray[np.int32]


@dataclass(frozen=True)
class QuestionExamples(Rows):
    """One split: contexts, questions, and for each question one answer or more."""

    contexts: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[tuple[Answer, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Every context once, and the questions."""
        return (*dict.fromkeys(self.contexts), *self.questions)


@dataclass(frozen=True, kw_only=True)
class EncodedQuestions(Encoded):
    """Windows of the contexts, with what turns logits into answers, which no model sees.

    Args:
        rows: The examples the windows were cut from.
        characters: Of each window, shape (n, 2).
    """

    rows: QuestionExamples
    characters: tuple[NDArray[np.int32], ...]


@dataclass(frozen=True)
class QuestionAnswering(Task):
    """A question-answering problem with its splits of ``QuestionExamples``.

    Args:
        stride: Tokens that neighbouring windows of a context share, where the questions leave room for
            twice as many; else half of what they leave.
    """

    stride: int = 128

    head = "QuestionAnswering"
    per_token = True
    metrics = KIND
    objective = Categorical(span_ends)

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Two outputs per token: start and end."""
        return MappingProxyType({"num_labels": 2})

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> EncodedQuestions:
        """Tokenise a split: question, then as much of the context as fits, in as many windows as it takes.

        ``labels`` are the tokens at which the first answer starts and ends, or twice position 0, where
        [CLS] stands, in a window that does not hold all of it (Devlin et al. 2019, reference code).

        Raises:
            DataError: If there is no such split, the tokenizer does not say which characters a token covers,
                or the reference length leaves no room for a context.
        """
        rows: QuestionExamples = self.rows(split)
        windows = list(cut_windows(rows.questions, rows.contexts, tokenizer, reference, self.stride))
        labels = [
            span
            for origin, own in groupby(windows, key=lambda window: window.origin)
            for span in answer_tokens([window.characters for window in own], rows.answers[origin][0])
        ]
        return EncodedQuestions(
            features=tuple(
                {**window.tokens, "labels": span} for window, span in zip(windows, labels, strict=True)
            ),
            reference=reference,
            origins=tuple(window.origin for window in windows),
            rows=rows,
            characters=tuple(window.characters for window in windows),
        )

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
            texts.append(encoded.rows.contexts[origin][best.first : best.stop])
        return texts

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """F1 or exact match of each example's best span, shape (examples,); arguments as ``predict``'s."""
        assert isinstance(encoded, EncodedQuestions)
        answers = [[answer.text for answer in own] for own in encoded.rows.answers]
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
    metric = metric_named(KIND, source.metric, 1).name
    if source.stride < 0:
        raise DataError(f"the stride is a number of shared tokens, not {source.stride}")
    named = source.columns
    columns = _Columns(named.text or "context", named.pair or "question", named.label or "answers")
    given = {}
    for role, table in without_hidden(
        read_tables(source), columns.label, lambda cell: not _answers(cell)
    ).items():
        find_columns(table, Columns(*columns), f"{source.data} ({role})")
        given[role] = _examples(table, columns, role)
    splits, overlap = split_rows(given, lambda examples: examples.contexts, source)
    record = replace(source, metric=metric).record(KIND, columns._asdict())
    return QuestionAnswering(record, (), splits, overlap, metric, source.stride)


def cut_windows(
    questions: Sequence[str],
    contexts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    reference: int,
    stride: int,
) -> Iterator[Window]:
    """The windows of every row, row after row; each token of a context is in one of its windows or more.

    Args:
        questions: The whole question stands in every window.
        contexts: One per question.
        tokenizer: A fast one.
        reference: Most tokens of a window.
        stride: Tokens that a window repeats of the one before; no more than half of what the longest question
            leaves room for.

    Raises:
        DataError: If the tokenizer does not say which characters a token covers, or the longest question
            leaves room for fewer than ``LEAST_ROOM`` tokens.
    """
    if not tokenizer.is_fast:
        raise DataError(
            f"{type(tokenizer).__name__} does not say which characters a token covers: answers in a context "
            "need a fast tokenizer (tokenizer.json)"
        )
    shared = min(stride, _room(questions, tokenizer, reference) // 2)
    for first in range(0, len(questions), _CHUNK):
        tokens = tokenizer(
            list(questions[first : first + _CHUNK]),
            list(contexts[first : first + _CHUNK]),
            truncation="only_second",
            max_length=reference,
            stride=shared,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        origins, offsets = tokens.pop("overflow_to_sample_mapping"), tokens.pop("offset_mapping")
        for row, origin in enumerate(origins):
            in_context = np.array([part == 1 for part in tokens.sequence_ids(row)])
            covered = np.where(in_context[:, None], np.array(offsets[row], dtype=np.int32), np.int32(-1))
            yield Window({name: values[row] for name, values in tokens.items()}, first + origin, covered)


def _room(questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, reference: int) -> int:
    """Tokens of a context that fit in a window with the longest question."""
    lengths = map(len, tokenizer(list(questions), add_special_tokens=False, verbose=False)["input_ids"])
    taken = max(lengths) + tokenizer.num_special_tokens_to_add(pair=True)
    if reference - taken < LEAST_ROOM:
        raise DataError(
            f"the longest question takes {taken} tokens with its special ones: inputs of {reference} tokens "
            f"leave no room for a context, {taken + LEAST_ROOM} are the least"
        )
    return reference - taken


def best_span(logits: NDArray[Any], characters: NDArray[np.int32], longest: int = LONGEST_ANSWER) -> Span:
    """The span with the largest sum of logits that starts and ends in the context; of equals the first.

    Args:
        logits: Shape (n, 2).
        characters: Shape (n, 2).
        longest: Most tokens of a span.
    """
    inside = characters[:, 0] >= 0
    # Row s, column k: from token s to token s + k; what is behind the last token is no token of the context.
    starts, ends = logits.astype(np.float64).T
    ending, ends = (sliding_window_view(np.pad(row, (0, longest - 1)), longest) for row in (inside, ends))
    scores = np.where(inside[:, None] & ending, starts[:, None] + ends, -np.inf)
    start, more = divmod(int(scores.argmax()), longest)
    return Span(float(scores[start, more]), int(characters[start, 0]), int(characters[start + more, 1]))


def answer_tokens(windows: Sequence[NDArray[np.int32]], answer: Answer) -> list[tuple[int, int]]:
    """Token positions of an answer's start and end in each window; (0, 0) where it is not wholly there.

    Args:
        windows: Characters of every window of the context, each of shape (n, 2).
        answer: The answer.
    """
    first, stop = answer.start, answer.start + len(answer.text)
    touching = [np.flatnonzero((window[:, 0] < stop) & (window[:, 1] > first)) for window in windows]
    reached = [window[tokens] for window, tokens in zip(windows, touching, strict=True)]
    every = np.concatenate(reached)
    # Not the answer's own characters: a tokenizer covers no spaces and may drop others at its edges.
    whole = (every[:, 0].min(initial=stop), every[:, 1].max(initial=first))
    return [
        (int(tokens[0]), int(tokens[-1]))
        if len(tokens) and (characters[0, 0], characters[-1, 1]) == whole
        else (0, 0)
        for tokens, characters in zip(touching, reached, strict=True)
    ]


class _Columns(NamedTuple):
    """Context, question and answers, under the names that ``Columns`` has for such."""

    text: str
    pair: str
    label: str


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
    """Answers of one row, none for null; parquet and the hub give NumPy arrays for lists."""
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
