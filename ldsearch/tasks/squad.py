"""SQuAD v1.1 (Rajpurkar et al. 2016): the official script's scores, and spans of tokens from logits and back.

Shapes: a window of n tokens has logits (n, 2), the start's and the end's, and characters (n, 2): the first
that a token covers of its context and the first behind it, or -1 twice where it is no context token.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ldsearch.intervals import Statistics
from ldsearch.tasks.metrics import Metric, mean

# Of a predicted answer, in tokens (Devlin et al. 2019, reference code).
LONGEST_ANSWER = 30
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class Span(NamedTuple):
    """An answer in a window: its characters ``first`` to before ``stop``, and the sum of its two logits."""

    score: float
    first: int
    stop: int


def normalised(answer: str) -> str:
    """Lower case, without ASCII punctuation, then without articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """1 where one of the answers is, normalised, what was predicted, else 0."""
    return float(normalised(predicted) in {normalised(answer) for answer in answers})


def token_f1(predicted: str, answers: Sequence[str]) -> float:
    """F1 of the normalised words in common, those of the best answer; 0 where there are none in common."""
    said = Counter(normalised(predicted).split())
    wanted = [Counter(normalised(answer).split()) for answer in answers]
    return max(2 * (said & words).total() / max(1, said.total() + words.total()) for words in wanted)


def _for_each(score: Callable[[str, Sequence[str]], float]) -> Callable[..., Statistics]:
    """From the predicted texts and the answers of each example to statistics of shape (examples,)."""
    return lambda predicted, answers: np.array(
        [score(*both) for both in zip(predicted, answers, strict=True)], dtype=np.float64
    )


# The first is the default.
METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "f1": Metric("f1", _for_each(token_f1), mean),
        "exact-match": Metric("exact-match", _for_each(exact_match), mean),
    }
)


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


def answer_tokens(windows: Sequence[NDArray[np.int32]], first: int, stop: int) -> list[tuple[int, int]]:
    """Where an answer starts and ends in each window of its context; (0, 0) where it is not wholly there.

    Args:
        windows: Characters of every window of the context, each of shape (n, 2).
        first: The answer's first character.
        stop: The first behind it.
    """
    touching = [np.flatnonzero((window[:, 0] < stop) & (window[:, 1] > first)) for window in windows]
    reached = [window[tokens] for window, tokens in zip(windows, touching, strict=True)]
    every = np.concatenate(reached)
    # Not the characters asked for: a tokenizer covers no spaces, and may drop others at the answer's edges.
    whole = (every[:, 0].min(initial=stop), every[:, 1].max(initial=first))
    return [
        (int(tokens[0]), int(tokens[-1]))
        if len(tokens) and (characters[0, 0], characters[-1, 1]) == whole
        else (0, 0)
        for tokens, characters in zip(touching, reached, strict=True)
    ]
