"""Windows of tokens over contexts longer than a model reads, a question before each; their origins kept."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError

# A window has room for this many tokens of its context at least: with less there would be hundreds of them.
LEAST_ROOM = 8
# Rows tokenised at once: a tokenizer's offsets take far more memory than what is kept of them.
_CHUNK = 1_000


class Window(NamedTuple):
    """One input of the model.

    Args:
        tokens: What the tokenizer says of it, without padding.
        origin: The row it was cut from.
        characters: Shape (n, 2): the first character of the context that a token covers and the first behind
            it, or -1 twice where it is no token of the context.
    """

    tokens: Mapping[str, Any]
    origin: int
    characters: NDArray[np.int32]


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
    """Tokens of a context that fit beside the longest question."""
    lengths = map(len, tokenizer(list(questions), add_special_tokens=False, verbose=False)["input_ids"])
    taken = max(lengths) + tokenizer.num_special_tokens_to_add(pair=True)
    if reference - taken < LEAST_ROOM:
        raise DataError(
            f"the longest question takes {taken} tokens with its special ones: inputs of {reference} tokens "
            f"leave no room for a context, {taken + LEAST_ROOM} are the least"
        )
    return reference - taken
