"""Causal language modelling: running text in blocks, each token told from those before it."""

from collections.abc import Iterator, Mapping, Sequence
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
from ldsearch.tasks.objectives import Categorical, next_tokens, summed_nats
from ldsearch.tasks.running_text import TextLines, read_running_text, tokens_of

KIND = "causal"


@dataclass(frozen=True)
class CausalLanguageModel:
    """A text with its splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that they share no text, in words; empty where nothing was.
        metric_name: A metric of language models; None takes the first, perplexity.
        sentences: No block tears a line.
    """

    source: Mapping[str, Any]
    splits: Mapping[str, TextLines]
    overlap: str = ""
    metric_name: str | None = None
    sentences: bool = False

    labels = ()
    head = "CausalLM"
    head_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    per_token = False
    objective = Categorical(next_tokens)

    @property
    def metric(self) -> Metric:
        """Perplexity."""
        return metric_named("language-model", self.metric_name, 1)

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
        lines = [[*line, end] for line in tokens_of(split_named(self.splits, split).texts, tokenizer)]
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
        """Pads on the right to the longest, or to ``pad_to``; ``labels`` of shape (B, n) with -100."""
        # Many causal tokenizers have no pad token; which one stands there does not matter.
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

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """The batch itself."""
        return batch

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Nats summed over a block's predicted tokens, and their number: shape (B, 2)."""
        return summed_nats(logits[:, :-1], batch["labels"][:, 1:])

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Nats and tokens of each block, shape (examples, 2)."""
        return self.metric.statistics(*np.stack(outputs).astype(np.float64).T)


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


def load_causal(source: DataSource, known_labels: Sequence[str] | None = None) -> CausalLanguageModel:
    """Read running text, its splits as ``read_running_text`` fixes them.

    Args:
        source: The data.
        known_labels: Not used: the outputs are the tokenizer's vocabulary.

    Raises:
        DataError: If data is missing, empty or misshapen, or too small or too alike to be split.
    """
    text = read_running_text(source)
    record = source.record(KIND, text.columns)
    task = CausalLanguageModel(record, text.splits, text.overlap, source.metric, source.sentences)
    _ = task.metric  # refuses an unknown one before anything is trained
    return task
