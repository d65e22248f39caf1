"""What is run on: batch x length cells of random tokens, or of a split's own rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ldsearch.errors import DataError, LdsearchError
from ldsearch.latency.runtimes import Inputs
from ldsearch.supernet import Supernet
from ldsearch.workload import Workload

# Batches of a split that stand for it: evenly spread over its lengths.
DATA_BATCHES = 8


@dataclass(frozen=True)
class Cell:
    """Inputs of one batch size.

    Args:
        batch: Rows of each batch.
        length: Tokens of each row, or ``"data"`` for rows of a split.
        batches: The inputs; a latency is their mean.
        lengths: True length of every row.
    """

    batch: int
    length: int | str
    batches: tuple[Inputs, ...]
    lengths: tuple[int, ...]

    def workload(self, written: int, *, causal: bool) -> Workload:
        """The lengths that MACs count: what is read, and so many tokens written; 0 where nothing is.

        A causal model reads what it writes, but for the last token.
        """
        if causal:
            grown = [n + max(written - 1, 0) for n in self.lengths]
            return Workload.from_lengths(grown, max(grown))
        texts = [written] * len(self.lengths) if written else None
        return Workload.from_lengths(self.lengths, max(self.lengths), texts)


def random_cell(supernet: Supernet, batch: int, length: int, written: int = 0) -> Cell:
    """Rows of random tokens, none of them padding; the same ones every time.

    Args:
        supernet: Whose vocabulary and device.
        batch: Rows.
        length: Tokens of each.
        written: Tokens that will be generated.

    Raises:
        LdsearchError: If the model has no positions for so many tokens.
    """
    both = len(supernet.stacks) > 1
    longest = max(length, written) if both else length + written
    if batch < 1 or length < 1:
        raise LdsearchError(f"a batch has 1 row or more of 1 token or more, not {batch} of {length}")
    if longest > supernet.longest:
        raise LdsearchError(f"the model has {supernet.longest} positions, too few for {longest} tokens")
    ids = random_tokens(supernet, batch, length)
    # As a tokenizer gives it: stock code looks for padding too.
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Cell(batch, length, (inputs,), (length,))


def random_tokens(supernet: Supernet, batch: int, length: int) -> Tensor:
    """Shape (batch, length), on the supernet's device, without the padding token."""
    config: Any = supernet.model.config
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, config.vocab_size, (batch, length), generator=generator)
    if config.pad_token_id is not None:
        # Never the id itself: some models count positions by what is not padding.
        ids = (ids + config.pad_token_id) % config.vocab_size
    return ids.to(supernet.model.device)


def data_cell(
    supernet: Supernet,
    features: Sequence[dict[str, Any]],
    collate: Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]],
    batch: int,
) -> Cell:
    """Batches of a split's rows, sorted by length and padded within a batch.

    Args:
        supernet: What will read them.
        features: The split's, each with ``input_ids``.
        collate: Pads some of them to one batch.
        batch: Rows of each batch.

    Raises:
        DataError: If the split is smaller than a batch.
        LdsearchError: If the model is a decoder on its own, whose data are one text cut evenly.
    """
    if supernet.head.causal:
        raise LdsearchError("--length data: a causal model's rows are one running text; name lengths instead")
    if len(features) < batch:
        raise DataError(f"a batch of {batch} needs as many rows; the split has {len(features)}")
    order = np.argsort([len(feature["input_ids"]) for feature in features], kind="stable")
    whole = len(order) // batch
    chosen = np.unique(np.linspace(0, whole - 1, min(whole, DATA_BATCHES)).round().astype(int))
    rows = [[features[row] for row in order[at * batch : (at + 1) * batch]] for at in chosen]
    batches = tuple(_inputs(supernet, collate(own)) for own in rows)
    return Cell(batch, "data", batches, tuple(len(f["input_ids"]) for own in rows for f in own))


def _inputs(supernet: Supernet, batch: dict[str, Tensor]) -> Inputs:
    read = {name: tensor for name, tensor in batch.items() if name != "labels"}
    return {name: tensor.to(supernet.model.device) for name, tensor in read.items()}
