"""Language modelling: running text in blocks, whose tokens are masked, or predicted from those before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Collate, Encoded, Rows, Task, split_rows
from ldsearch.tasks.objectives import Categorical, labelled_tokens, next_tokens, summed_nats
from ldsearch.tasks.tables import LINE, DataSource, find_column, read_tables

# Devlin et al. 2019, Sec. 3.1: this share of the tokens is predicted; of these 80% are replaced with [MASK],
# 10% with a random token, and 10% are kept.
CHOSEN, HIDDEN, KEPT = 0.15, 0.8, 0.1
_SEED = 20_181_011
_TEXTS = (LINE, "sentence", "content", "document")
_AS_GIVEN = "splits of running text used as given: not compared with each other"

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


class MaskedLanguageModel(LanguageModel):
    """A text with its splits of ``TextLines``; some of its tokens are predicted from all the others."""

    head = "MaskedLM"
    collator = DataCollatorForTokenClassification
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
            raise DataError(f"blocks of {reference} tokens have no room for text: 3 are the least")
        masking = _Masking(tokenizer)
        blocks = _blocks(self.rows(split).texts, tokenizer, reference)
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


@dataclass(frozen=True)
class CausalLanguageModel(LanguageModel):
    """A text with its splits of ``TextLines``; each token is predicted from those before it.

    Args:
        sentences: No block tears a line.
    """

    sentences: bool = False

    head = "CausalLM"
    objective = Categorical(next_tokens)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split and cut it into blocks of ``reference`` tokens, the last one as long as it is.

        Each line ends in the tokenizer's end-of-text token, or [SEP] where it has none. With ``sentences`` a
        block holds as many whole lines as fit; only a line that is longer than a block is cut. A block is an
        example. Its first token is not predicted; a block of one token is left out.

        Raises:
            DataError: If there is no such split, the tokenizer has no token to end a line with or knows none
                of the text, or the reference length leaves nothing to predict.
        """
        if reference < 2:
            raise DataError(f"in blocks of {reference} tokens nothing is predicted: 2 are the least")
        end = _end_of_line(tokenizer)
        lines = [[*line, end] for line in tokens_of(self.rows(split).texts, tokenizer)]
        blocks = _whole_lines(lines, reference) if self.sentences else _contiguous(lines, reference)
        features = tuple(
            {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids}
            for ids in blocks
            if len(ids) > 1
        )
        if not features:
            raise DataError(f"the tokenizer knows no word of the {split} text")
        return Encoded(features, reference)

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Make batches padded on the right to the longest, or to ``pad_to``; ``labels`` (B, n) with -100."""
        # Many causal tokenizers have no pad token; any token will do.
        own = tokenizer.pad_token_id
        fill = {
            "input_ids": _end_of_line(tokenizer) if own is None else own,
            "attention_mask": 0,
            "labels": -100,
        }

        def batch(features: Sequence[Mapping[str, Any]]) -> Batch:
            width = pad_to or max(len(feature["input_ids"]) for feature in features)
            return {
                name: torch.tensor([[*row[name], *[pad] * (width - len(row[name]))] for row in features])
                for name, pad in fill.items()
            }

        return batch

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Nats summed over a block's predicted tokens, and their number: shape (B, 2)."""
        return summed_nats(logits[:, :-1], batch["labels"][:, 1:])


def load_masked(source: DataSource, known_labels: Sequence[str] | None = None) -> MaskedLanguageModel:
    """Read running text for masked language modelling.

    Where the source has all three splits they are used as they are: lines of running text are no examples of
    their own, headings and turns of phrase recur in every text, and a text without the lines that stand
    elsewhere too would be torn. What is missing is cut by lines that share no text; then, unless a line is a
    document, neighbours of a held-out line are trained on, and its perplexity is a little too good.

    Args:
        source: Text files (``.txt``), one line or document a line, or tables with a text column.
        known_labels: Not used: the outputs are the tokenizer's vocabulary.

    Raises:
        DataError: If data is missing, empty or misshapen, or too small or too alike to be split.
    """
    return MaskedLanguageModel(*_read_text(source, "masked"))


def load_causal(source: DataSource, known_labels: Sequence[str] | None = None) -> CausalLanguageModel:
    """Read running text for causal language modelling, as ``load_masked`` does."""
    return CausalLanguageModel(*_read_text(source, "causal"), sentences=source.sentences)


def _read_text(
    source: DataSource, kind: str
) -> tuple[dict[str, Any], tuple[str, ...], Mapping[str, TextLines], str, str | None]:
    """The fields of a ``Task``."""
    tables = read_tables(source, lines=True)
    column = find_column(tables["train"], source.columns.text, _TEXTS, "text", source.data)
    record = source.record(kind, {"text": column, "pair": None, "label": None})
    splits: Mapping[str, TextLines] = {
        role: _lines(table, column, f"{source.data} ({role})", role) for role, table in tables.items()
    }
    overlap = "" if source.keep_overlap else _AS_GIVEN
    if len(splits) < 3:
        splits, overlap = split_rows(splits, lambda lines: lines.texts, source)
    return record, (), splits, overlap, source.metric


def tokens_of(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The ids of each text that has any, without special tokens around them."""
    # Not verbose: the tokenizer would warn of lines longer than the model reads.
    lines = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [line for line in lines if line]


def _lines(table: pd.DataFrame, column: str, source: str, role: str) -> TextLines:
    find_column(table, column, (), "text", source)
    if missing := sum(not isinstance(text, str) for text in table[column]):
        raise DataError(f"{missing} {role} rows have no text in column {column!r}")
    texts = tuple(text for text in table[column] if text.strip())
    if not texts:
        raise DataError(f"{source} has no text")
    return TextLines(texts)


class _Masking:
    """BERT's masking with a tokenizer's [MASK]; special tokens are neither chosen nor drawn."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.mask_token_id is None:
            raise DataError("masked language modelling needs a tokenizer with [MASK], this one has none")
        self._mask = tokenizer.mask_token_id
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


def _blocks(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, reference: int) -> list[Ids]:
    """Every token of the texts once, in order, in rows of at most ``reference`` tokens."""
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    if first is None or last is None:
        raise DataError("masked language modelling needs a tokenizer with [CLS] and [SEP]")
    lines = tokens_of(texts, tokenizer)
    stream = np.array([token for line in lines for token in (*line, last)][:-1], dtype=np.int64)
    room = reference - 2
    parts = (stream[start : start + room] for start in range(0, len(stream), room))
    return [np.concatenate([[first], part, [last]]) for part in parts]


def _end_of_line(tokenizer: PreTrainedTokenizerBase) -> int:
    for token in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        if token is not None:
            return int(token)
    raise DataError("causal language modelling needs a tokenizer with an end-of-text token or [SEP]")


def _contiguous(lines: Sequence[Sequence[int]], reference: int) -> Iterator[list[int]]:
    """Every token once, in order, in blocks that are full but for the last."""
    stream = [token for line in lines for token in line]
    return (stream[start : start + reference] for start in range(0, len(stream), reference))


def _whole_lines(lines: Sequence[Sequence[int]], reference: int) -> Iterator[list[int]]:
    """Every token once, in order, a new block where the next line does not fit."""
    block: list[int] = []
    for line in lines:
        for part in _contiguous([line], reference):
            if len(block) + len(part) > reference:
                yield block
                block = []
            block = block + part
    yield block
