"""Extractive question answering: the answer is a span of a context that may be read in several windows.

SQuAD v1.1 (Rajpurkar et al. 2016). A window of n tokens has logits (n, 2), the start's and the end's, and
characters (n, 2): the first that a token covers of its context and the one behind the last, or -1 twice where
it is no context token.
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
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, require_fast
from ldsearch.tasks.objectives import Categorical, span_ends
from ldsearch.tasks.tables import Columns, DataSource, is_blank, is_missing, refuse_rows
from ldsearch.trials.intervals import Statistics

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
    and ``answer_start``, counted in characters. The source's ``stride`` is how many tokens neighbouring
    windows of a context share, where the questions leave room for twice as many; else half of what they
    leave.
    """

    kind = metrics = "questions"
    reads = ("stride",)
    head = "QuestionAnswering"
    per_token = True
    objective = Categorical(span_ends)
    # As SQuAD v1.1 has them on the hub.
    column_names: ClassVar = {"text": ("context",), "pair": ("question",), "label": ("answers",)}

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Two outputs per token: start and end."""
        return {"num_labels": 2}

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """No answer."""
        return not _answers(cell)

    @classmethod
    def read_rows(
        cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str
    ) -> QuestionExamples:
        """Contexts, questions and answers, at least one of each question."""
        contexts, questions = tuple(table[columns.text]), tuple(table[columns.pair])
        refuse_rows(map(is_blank, contexts), role, f"have no {columns.text}")
        refuse_rows(map(is_blank, questions), role, f"have no {columns.pair}")
        answers = tuple(map(_answers, table[columns.label]))
        unanswered = (not own or any(is_blank(text) for _, text in own) for own in answers)
        refuse_rows(
            unanswered, role, "have no answer: every question needs one (leave those of SQuAD v2 out)"
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
        [CLS] stands, in a window that does not hold all of it (Devlin et al. 2019, reference code).

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
            for span in answer_tokens([window for _, window in own], rows.answers[origin][0])
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
            _, first, stop = max((span for _, span in own), key=lambda span: span[0])
            texts.append(encoded.rows.contexts[origin][first:stop])
        return texts

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """F1 or exact match of each example's best span, shape (examples,); arguments as ``predict``'s."""
        assert isinstance(encoded, EncodedQuestions)
        answers = [[answer.text for answer in own] for own in encoded.rows.answers]
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


def _answers(cell: Any) -> tuple[Answer, ...]:
    """Answers of one row, none for null; parquet and the hub give NumPy arrays for lists."""
    if is_missing(cell):
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
