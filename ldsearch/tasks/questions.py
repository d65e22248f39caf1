"""Extractive question answering: the answer is a span of a context that may be read in several windows.

SQuAD v1.1 (Rajpurkar et al. 2016) and v2 (2018), some of whose questions have no answer. A window of n
tokens has logits (n, 2), the start's and the end's, and characters (n, 2): the first that a token covers of
its context and the one behind the last, or -1 twice where it is no context token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Encoded, Rows, Task
from ldsearch.tasks.objectives import Categorical, span_ends
from ldsearch.tasks.tables import (
    Columns,
    DataSource,
    is_blank,
    is_missing,
    read_written,
    refuse_rows,
    usual_column,
)
from ldsearch.tasks.tokenizer import require_fast
from ldsearch.trials.intervals import Statistics

# Longest predicted answer in tokens (Devlin et al. 2019, reference code).
LONGEST_ANSWER = 30
# A window has room for at least this many tokens of its context, or there would be hundreds of windows.
LEAST_ROOM = 8
# The start of an answer whose text does not tell it.
_NOT_ONCE = -2
# Rows tokenised at once: a tokenizer's offsets take far more memory than what is kept of them.
_CHUNK = 1_000


class Answer(NamedTuple):
    """An answer: its first character in the context, and its text."""

    start: int
    text: str


@dataclass(frozen=True)
class QuestionExamples(Rows):
    """One split: contexts, questions, and for each question its answers, none where it has none."""

    contexts: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[tuple[Answer, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Every context once, and the questions."""
        return (*dict.fromkeys(self.contexts), *self.questions)

    @property
    def compared(self) -> Sequence[str]:
        """The contexts."""
        return self.contexts


@dataclass(frozen=True, kw_only=True)
class EncodedQuestions(Encoded):
    """Windows of the contexts, with what turns logits into answers, which no model sees.

    Args:
        rows: The examples the windows were cut from.
        characters: Of each window, shape (n, 2).
    """

    rows: QuestionExamples
    characters: tuple[NDArray[np.int32], ...]

    def take(self, rows: Sequence[int]) -> "EncodedQuestions":
        """Select examples with all of their windows, in their order."""
        assert self.origins is not None
        place = {row: index for index, row in enumerate(sorted(set(rows)))}
        kept = [window for window, origin in enumerate(self.origins) if origin in place]
        return replace(
            self,
            features=tuple(self.features[window] for window in kept),
            origins=tuple(place[self.origins[window]] for window in kept),
            rows=self.rows.take(list(place)),
            characters=tuple(self.characters[window] for window in kept),
        )


class QuestionAnswering(Task):
    """A question-answering problem with its splits of ``QuestionExamples``.

    The text column holds contexts, the pair column questions, and the label column answers: lists ``text``
    and ``answer_start``, counted in characters, or a list of such pairs, or texts that stand once in the
    context. Empty ones are unanswerable: the model then points at position 0, where [CLS] stands. The
    source's ``stride`` is how many tokens neighbouring windows of a context share, where the questions leave
    room for twice as many; else half of what they leave.
    """

    kind = metrics = "questions"
    reads = ("pair_column", "stride")
    head = "QuestionAnswering"
    per_token = True
    objective = Categorical(span_ends)
    # As SQuAD v1.1 has them on the hub.
    column_names: ClassVar = {
        "text": ("context", "passage", "paragraph"),
        "pair": ("question", "query"),
        "label": ("answers", "answer"),
    }

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Two outputs per token: start and end."""
        return {"num_labels": 2}

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """Answers that a csv holds as text are read, and those of two columns become one."""
        table = read_written(table)
        text = usual_column([*table.columns], ("answer_text", "answer", "text"))
        if "answers" in table or "answer_start" not in table or text is None:
            return table
        both = zip(table[text], pd.to_numeric(table["answer_start"], errors="coerce"), strict=True)
        answers = [{"text": one, "answer_start": int(start) if start == start else -1} for one, start in both]
        return table.assign(answers=pd.Series(answers, table.index))

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """No answer."""
        return (isinstance(cell, str) and is_blank(cell)) or not _answers(cell, "")

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """No answer, for each row."""
        return [_cell(()) for _ in range(len(table))]

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """The best span of each example, or no answer."""
        return [_cell(own) for own in self.best_spans(outputs, encoded)]

    @classmethod
    def read_rows(
        cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str
    ) -> QuestionExamples:
        """Contexts, questions and answers, none of them where a question has none."""
        contexts, questions = tuple(table[columns.text]), tuple(table[columns.pair])
        refuse_rows(map(is_blank, contexts), role, f"have no {columns.text}")
        refuse_rows(map(is_blank, questions), role, f"have no {columns.pair}")
        cells = table[columns.label]
        refuse_rows(map(is_missing, cells), role, "have no answer (an empty list says that there is none)")
        answers = tuple(_answers(*both) for both in zip(cells, contexts, strict=True))
        blank = (any(is_blank(text) for _, text in own) for own in answers)
        refuse_rows(blank, role, "have no answer (an empty list says that there is none)")
        lost = (any(start == _NOT_ONCE for start, _ in own) for own in answers)
        refuse_rows(
            lost,
            role,
            "have an answer that stands not once in the context: where it starts, answer_start says",
        )
        astray = (
            any(start < 0 or not context.startswith(text, start) for start, text in own)
            for context, own in zip(contexts, answers, strict=True)
        )
        refuse_rows(astray, role, "have an answer that does not stand at its answer_start in the context")
        # Spaces before a question would be tokens to some tokenizers.
        return QuestionExamples(contexts, tuple(question.strip() for question in questions), answers)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> EncodedQuestions:
        """Tokenise a split: question, then as much of the context as fits, in as many windows as it takes.

        The whole question stands in every window, and each token of a context in one window or more.
        ``labels`` are the tokens at which the first answer starts and ends, or twice position 0, where
        [CLS] stands, in a window that does not hold all of it, or of a question without one (Devlin et al.
        2019, reference code).

        Raises:
            DataError: If there is no such split, the tokenizer does not say which characters a token covers,
                or the longest question leaves room for fewer than ``LEAST_ROOM`` tokens.
        """
        require_fast(tokenizer)
        rows: QuestionExamples = self.rows(split)
        room = _room(rows.questions, tokenizer, reference)
        stride = min(self.source.get("stride", DataSource.stride), room // 2)
        windows: list[dict[str, Any]] = []
        origins: list[int] = []
        characters: list[NDArray[np.int32]] = []
        for first in range(0, len(rows), _CHUNK):
            tokens = tokenizer(
                list(rows.questions[first : first + _CHUNK]),
                list(rows.contexts[first : first + _CHUNK]),
                truncation="only_second",
                max_length=reference,
                stride=stride,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            samples, offsets = tokens.pop("overflow_to_sample_mapping"), tokens.pop("offset_mapping")
            for window, sample in enumerate(samples):
                inside = np.array([part == 1 for part in tokens.sequence_ids(window)])[:, None]
                characters.append(np.where(inside, np.array(offsets[window], np.int32), np.int32(-1)))
                windows.append({name: values[window] for name, values in tokens.items()})
                origins.append(first + sample)
        labels = [
            span
            for origin, own in groupby(zip(origins, characters, strict=True), key=lambda pair: pair[0])
            for span in _spans([window for _, window in own], rows.answers[origin])
        ]
        return EncodedQuestions(
            features=tuple({**own, "labels": span} for own, span in zip(windows, labels, strict=True)),
            reference=reference,
            origins=tuple(origins),
            rows=rows,
            characters=tuple(characters),
        )

    def token_prior(self, logits: Tensor, batch: Batch) -> Tensor:
        """Log-probability that the answer starts or ends at a token: a dropped one has an old state."""
        ends, _ = span_ends(logits, batch)
        return ends.log_softmax(dim=-1).reshape(len(logits), 2, -1).logsumexp(dim=1)

    def predict(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[str]:
        """The text of ``best_spans``; the empty one where there is none."""
        return ["".join(answer.text for answer in own) for own in self.best_spans(outputs, encoded)]

    def best_spans(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[tuple[Answer, ...]]:
        """The best span for each example; of data with questions that have no answer, perhaps none.

        None where the sum of both logits at position 0, in the window where it is least, is larger than the
        best span's (Devlin et al. 2019, Sec. 4.3, with a threshold of 0).

        Args:
            outputs: For each feature, in order, its logits without padding, shape (n, 2).
            encoded: What ``encode`` made.
        """
        assert isinstance(encoded, EncodedQuestions)
        assert encoded.origins is not None
        answers = (own for rows in self.splits.values() for own in rows.answers)
        may_lack = not all(answers)
        found = [
            (*best_span(*both), float(both[0][0].sum()))
            for both in zip(outputs, encoded.characters, strict=True)
        ]
        spans: list[tuple[Answer, ...]] = []
        for origin, own in groupby(zip(encoded.origins, found, strict=True), key=lambda pair: pair[0]):
            windows = [window for _, window in own]
            best, first, stop, _ = max(windows, key=lambda window: window[0])
            none = may_lack and min(window[3] for window in windows) > best
            text = "" if none else encoded.rows.contexts[origin][first:stop]
            spans.append((Answer(first, text),) if text.strip() else ())
        return spans

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """F1 or exact match of each example's best span, shape (examples,); arguments as ``predict``'s."""
        assert isinstance(encoded, EncodedQuestions)
        answers = [[answer.text for answer in own] or [""] for own in encoded.rows.answers]
        return self.metric.statistics(self.predict(outputs, encoded), answers)


def _room(questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, reference: int) -> int:
    """Tokens of a context that fit in a window with the longest question."""
    lengths = map(len, tokenizer(list(questions), add_special_tokens=False, verbose=False)["input_ids"])
    taken = max(lengths) + tokenizer.num_special_tokens_to_add(pair=True)
    if reference - taken < LEAST_ROOM:
        raise DataError(
            f"the longest question takes {taken} tokens with its special ones: inputs of {reference} tokens "
            f"leave no room for a context, {taken + LEAST_ROOM} are the least: --max-length"
        )
    return reference - taken


def best_span(
    logits: NDArray[Any], characters: NDArray[np.int32], longest: int = LONGEST_ANSWER
) -> tuple[float, int, int]:
    """The span with the largest sum of logits that starts and ends in the context; of equals the first.

    Args:
        logits: Shape (n, 2).
        characters: Shape (n, 2).
        longest: Most tokens of a span.

    Returns:
        The sum of its two logits, its first character and the one behind its last.
    """
    inside = characters[:, 0] >= 0
    # Row s, column k: from token s to token s + k; what is behind the last token is no token of the context.
    starts, ends = logits.astype(np.float64).T
    ending, ends = (sliding_window_view(np.pad(row, (0, longest - 1)), longest) for row in (inside, ends))
    scores = np.where(inside[:, None] & ending, starts[:, None] + ends, -np.inf)
    start, more = divmod(int(scores.argmax()), longest)
    return float(scores[start, more]), int(characters[start, 0]), int(characters[start + more, 1])


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


def _spans(windows: Sequence[NDArray[np.int32]], answers: Sequence[Answer]) -> list[tuple[int, int]]:
    """Positions in each window of the first answer; of none, (0, 0)."""
    return answer_tokens(windows, answers[0]) if answers else [(0, 0)] * len(windows)


def _cell(answers: Sequence[Answer]) -> dict[str, list[Any]]:
    """Answers as SQuAD's files on the hub have them."""
    return {
        "text": [answer.text for answer in answers],
        "answer_start": [answer.start for answer in answers],
    }


def _answers(cell: Any, context: str) -> tuple[Answer, ...]:
    """Answers of one row, none for null; a text alone starts where it stands in the context."""
    if is_missing(cell):
        return ()
    parts = list(cell) if isinstance(cell, list | np.ndarray) else [cell]
    if isinstance(cell, Mapping) and isinstance(cell.get("text"), list | np.ndarray):
        # Parquet and the hub give NumPy arrays for lists.
        starts, texts = cell.get("answer_start"), cell["text"]
        if isinstance(starts, list | np.ndarray) and len(starts) == len(texts):
            both = zip(texts, starts, strict=True)
            parts = [{"text": text, "answer_start": start} for text, start in both]
        else:
            parts = [cell]
    found = []
    for part in parts:
        own: Mapping[str, Any] = part if isinstance(part, Mapping) else {"text": part}
        text = own.get("text")
        start = own["answer_start"] if "answer_start" in own else _place(text, context)
        if not isinstance(text, str) or not isinstance(start, Integral):
            raise DataError(
                "answers must hold a list text and as long a list answer_start of whole numbers, or be "
                f"texts, not {str(cell)[:80]!r}"
            )
        found.append(Answer(int(start), text))
    return tuple(found)


def _place(text: Any, context: str) -> int | None:
    """Character offset of a text in its context; ``_NOT_ONCE`` if it is absent or ambiguous."""
    if not isinstance(text, str):
        return None
    start = context.find(text)
    return _NOT_ONCE if start < 0 or context.find(text, start + 1) >= 0 else start
