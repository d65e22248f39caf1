"""Language modelling: running text in blocks, whose tokens are masked, or predicted from those before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, special_ids
from ldsearch.tasks.objectives import Categorical, labelled_tokens, next_tokens, summed_nats
from ldsearch.tasks.readers import LINE
from ldsearch.tasks.tables import Columns, DataSource, texts_of
from ldsearch.trials.intervals import Statistics

# Devlin et al. 2019, Sec. 3.1: this share of the tokens is predicted; of these 80% are replaced with [MASK],
# 10% with a random token, and 10% are kept.
CHOSEN, HIDDEN, KEPT = 0.15, 0.8, 0.1
_SEED = 20_181_011

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TextLines(Rows):
    """One split: lines or documents in their order, none of them blank."""

    texts: tuple[str, ...]


class LanguageModel(Task):
    """A problem whose answer is a probability for each token; scored by perplexity."""

    metrics = "language-model"

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Negative log-likelihood in nats summed over a row's labels, and their number: shape (B, 2)."""
        return summed_nats(logits, batch["labels"])

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Nats and predicted tokens of each example, shape (examples, 2)."""
        return self.metric.statistics(*np.stack(outputs).astype(np.float64).T)


class RunningText(LanguageModel):
    """A text with its splits of ``TextLines``, from text files or tables: one line or document a row.

    Where the source has all three splits they are used as they are: lines of running text are no examples of
    their own, headings and turns of phrase recur in every text, and a text without the lines that stand
    elsewhere too would be torn. What is missing is cut by lines that share no text; then, unless a line is a
    document, neighbours of a held-out line are trained on, and its perplexity is a little too good.
    """

    column_names: ClassVar[Mapping[str, Sequence[str]]] = {"text": (LINE, "sentence", "content", "document")}

    @classmethod
    def read_rows(cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str) -> TextLines:
        """The lines that are not blank."""
        texts = tuple(text for text in texts_of(table[columns.text], role) if text.strip())
        if not texts:
            raise DataError(f"the {role} rows have no text")
        return TextLines(texts)

    @classmethod
    def split(cls, given: Mapping[str, Rows], source: DataSource) -> tuple[Mapping[str, Rows], str]:
        """Three splits as they are, fewer filled up from lines that share no text."""
        if len(given) < 3:
            return super().split(given, source)
        as_given = "splits of running text used as given: not compared with each other"
        return given, "" if source.keep_overlap else as_given

    def lines(self, split: str, tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
        """The ids of each line that has any, without special tokens around them."""
        # Not verbose: the tokenizer would warn of lines longer than the model reads.
        texts = list(self.rows(split).texts)
        lines = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [line for line in lines if line]


class MaskedLanguageModel(RunningText):
    """Some tokens of a text are predicted from all the others."""

    kind = "masked"
    head = "MaskedLM"
    objective = Categorical(labelled_tokens)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split and cut it into blocks of ``reference`` tokens, the last one as long as it is.

        Between two lines stands [SEP], around each block [CLS] and [SEP] (RoBERTa's full sentences; Liu et
        al. 2019, Sec. 4.2, but cut where the block is full). A block is an example; one of special tokens
        alone is left out. Its masks depend on its number and its tokens alone, so that a score can be
        measured again.

        Raises:
            DataError: If there is no such split, the tokenizer lacks [CLS], [SEP] or [MASK] or knows none of
                the text, or the reference length leaves no room.
        """
        if reference < 3:
            raise DataError(
                f"blocks of {reference} tokens have no room for text: --max-length 3 is the least"
            )
        masking = _Masking(tokenizer)
        first, last = special_ids(tokenizer, "cls", "sep")
        stream = [token for line in self.lines(split, tokenizer) for token in (*line, last)][:-1]
        blocks = (np.array([first, *part, last]) for part in _cut(stream, reference - 2))
        kept = [ids for ids in blocks if masking.choosable(ids).any()]
        if not kept:
            raise DataError(f"the tokenizer knows no word of the {split} text")
        typed = "token_type_ids" in tokenizer.model_input_names
        features = []
        for number, ids in enumerate(kept):
            inputs, labels = masking(ids[None], np.random.default_rng([_SEED, number]))
            feature = {"input_ids": inputs[0].tolist(), "attention_mask": [1] * len(ids)}
            types = {"token_type_ids": [0] * len(ids)} if typed else {}
            features.append({**feature, **types, "labels": labels[0].tolist()})
        return Encoded(tuple(features), reference)

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """The same text masked anew: every epoch predicts other tokens (Liu et al. 2019, Sec. 4.1)."""
        inputs, labels = batch["input_ids"], batch["labels"]
        original = torch.where(labels != -100, labels, inputs)
        masked = _Masking(tokenizer)(original.cpu().numpy(), rng)
        inputs, labels = (torch.from_numpy(ids).to(original.device) for ids in masked)
        return {**batch, "input_ids": inputs, "labels": labels}


class CausalLanguageModel(RunningText):
    """Each token of a text is predicted from those before it."""

    kind = "causal"
    reads = ("sentences",)
    head = "CausalLM"
    hints: ClassVar[Mapping[str, str]] = {
        "text": "a chat, or a prompt and its answer, is to be one text, as the model writes it (its "
        "tokenizer's apply_chat_template)"
    }
    objective = Categorical(next_tokens)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split and cut it into blocks of ``reference`` tokens, the last one as long as it is.

        Each line ends in the tokenizer's end-of-text token, or [SEP] where it has none. With the source's
        ``sentences`` a block holds as many whole lines as fit; only a line that is longer than a block is
        cut. A block is an example. Its first token is not predicted; a block of one token is left out.

        Raises:
            DataError: If there is no such split, the tokenizer has no token to end a line with or knows none
                of the text, or the reference length leaves nothing to predict.
        """
        if reference < 2:
            raise DataError(
                f"in blocks of {reference} tokens nothing is predicted: --max-length 2 is the least"
            )
        (end,) = special_ids(tokenizer, "sep" if tokenizer.eos_token_id is None else "eos")
        lines = [[*line, end] for line in self.lines(split, tokenizer)]
        whole = self.source.get("sentences", False)
        blocks = (
            _whole_lines(lines, reference) if whole else _cut([t for line in lines for t in line], reference)
        )
        features = tuple(
            {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids}
            for ids in blocks
            if len(ids) > 1
        )
        if not features:
            raise DataError(f"the tokenizer knows no word of the {split} text")
        return Encoded(features, reference)

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Nats summed over a block's predicted tokens, and their number: shape (B, 2)."""
        return summed_nats(logits[:, :-1], batch["labels"][:, 1:])


class _Masking:
    """BERT's masking with a tokenizer's [MASK]; special tokens are neither chosen nor drawn."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        (self._mask,) = special_ids(tokenizer, "mask")
        self._special = np.array(tokenizer.all_special_ids)
        self._words = np.setdiff1d(np.arange(len(tokenizer)), self._special)

    def choosable(self, ids: Ids) -> NDArray[np.bool_]:
        """Mask of the tokens that may be chosen, shape of ``ids``."""
        return ~np.isin(ids, self._special)

    def __call__(self, ids: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Inputs and labels of rows of ids, all of shape (rows, n); at least one token a row is chosen."""
        free = self.choosable(ids)
        counts = np.maximum(1, np.rint(CHOSEN * free.sum(axis=1)))
        rank = np.where(free, rng.random(ids.shape), np.inf).argsort(axis=1).argsort(axis=1)
        chosen = free & (rank < counts[:, None])
        fate = rng.random(ids.shape)
        inputs = np.where(chosen & (fate < HIDDEN), self._mask, ids)
        drawn = rng.choice(self._words, ids.shape)
        inputs = np.where(chosen & (fate >= HIDDEN + KEPT), drawn, inputs)
        return inputs, np.where(chosen, ids, -100)


def _cut(stream: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Every token once, in order, in parts that are full but for the last."""
    return (stream[start : start + size] for start in range(0, len(stream), size))


def _whole_lines(lines: Sequence[list[int]], reference: int) -> Iterator[list[int]]:
    """Every token once, in order, a new block where the next line does not fit."""
    block: list[int] = []
    for line in lines:
        for part in _cut(line, reference):
            if len(block) + len(part) > reference:
                yield block
                block = []
            block = [*block, *part]
    yield block
