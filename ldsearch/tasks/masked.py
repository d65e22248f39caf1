"""Masked language modelling: running text in blocks, some of whose tokens are to be told from the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Collate, DataSource, Encoded, split_named
from ldsearch.tasks.metrics import Metric, metric_named
from ldsearch.tasks.objectives import Categorical, labelled_tokens, summed_nats
from ldsearch.tasks.rows import pad_tokens
from ldsearch.tasks.running_text import TextLines, read_running_text, tokens_of

KIND = "masked"
# Devlin et al. 2019, Sec. 3.1: this share of the tokens is predicted; of these 80% are replaced with [MASK],
# 10% with a random token, and 10% are kept.
CHOSEN, HIDDEN, KEPT = 0.15, 0.8, 0.1
_SEED = 20_181_011

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class MaskedLanguageModel:
    """A text with its splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that they share no text, in words; empty where nothing was.
        metric_name: A metric of language models; None takes the first, perplexity.
    """

    source: Mapping[str, Any]
    splits: Mapping[str, TextLines]
    overlap: str = ""
    metric_name: str | None = None

    labels = ()
    head = "MaskedLM"
    head_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    per_token = False
    objective = Categorical(labelled_tokens)

    @property
    def metric(self) -> Metric:
        """Perplexity."""
        return metric_named("language-model", self.metric_name, 1)

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
        blocks = _blocks(split_named(self.splits, split).texts, tokenizer, reference)
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

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Pads to the longest, or to ``pad_to``; ``labels`` of shape (B, n)."""
        return pad_tokens(tokenizer, pad_to)

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """The same text masked anew: every epoch predicts other tokens (Liu et al. 2019, Sec. 4.1)."""
        inputs, labels = batch["input_ids"], batch["labels"]
        original = torch.where(labels != -100, labels, inputs)
        masked = _Masking(tokenizer)(original.cpu().numpy(), rng)
        inputs, labels = (torch.from_numpy(ids).to(original.device) for ids in masked)
        return {**batch, "input_ids": inputs, "labels": labels}

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Negative log-likelihood in nats summed over a block's labels, and their number: shape (B, 2)."""
        return summed_nats(logits, batch["labels"])

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Nats and tokens of each block, shape (examples, 2)."""
        return self.metric.statistics(*np.stack(outputs).astype(np.float64).T)


class _Masking:
    """BERT's masking with a tokenizer's [MASK]; special tokens are neither chosen nor drawn."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.mask_token_id is None:
            raise DataError("masked language modelling needs a tokenizer with [MASK], this one has none")
        self._mask = tokenizer.mask_token_id
        self._special = np.array(tokenizer.all_special_ids)
        self._words = np.setdiff1d(np.arange(len(tokenizer)), self._special)

    def choosable(self, ids: Ids) -> NDArray[np.bool_]:
        """Which tokens may be chosen, shape of ``ids``."""
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


def load_masked(source: DataSource, known_labels: Sequence[str] | None = None) -> MaskedLanguageModel:
    """Read running text, its splits as ``read_running_text`` fixes them.

    Args:
        source: The data.
        known_labels: Not used: the outputs are the tokenizer's vocabulary.

    Raises:
        DataError: If data is missing, empty or misshapen, or too small or too alike to be split.
    """
    text = read_running_text(source)
    record = source.record(KIND, text.columns)
    task = MaskedLanguageModel(record, text.splits, text.overlap, source.metric)
    _ = task.metric  # refuses an unknown one before anything is trained
    return task
