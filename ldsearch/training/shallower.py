"""Chooses the blocks of a shallower model: those that the full one would miss most, nothing being trained."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ldsearch.space import DepthGenes
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.processor import bf16_is_fast
from ldsearch.supernet.supernet import evaluating
from ldsearch.tasks.base import Batch, Encoded, Task
from ldsearch.training.saliency import ROWS
from ldsearch.work.progress import NO_PROGRESS, Progress

TOKENS = 16_384  # that are compared, of whole examples


def most_missed(
    supernet: Supernet,
    task: Task,
    rows: Encoded,
    tokenizer: PreTrainedTokenizerBase,
    keep: int,
    seed: int = 0,
    progress: Progress = NO_PROGRESS,
) -> tuple[int, ...]:
    """Blocks (0-based, ascending) that are left when one after the other is taken out of an encoder.

    Greedy backward elimination: out goes the block without which the distillation loss to the full model
    is least, nothing being trained. Takes about (blocks - keep) (blocks + keep) / 2 passes.

    Args:
        supernet: The full model.
        task: Makes batches and the loss (``Objective.divergence``).
        rows: Of which the seed draws as many examples as have 16,384 tokens, or all.
        tokenizer: Pads batches.
        keep: How many blocks are left.
        seed: Draws the examples.
        progress: Receives a step for each pass.

    Raises:
        SpaceError: If ``keep`` is not in 1..blocks, or below the number of blocks that must stay.
    """
    depth = DepthGenes("encoder", supernet.blocks, (keep,), supernet.pinned_of("encoder"))
    batches = _batches(task, rows, tokenizer, seed)
    with torch.inference_mode():
        targets = [_logits(supernet, batch, supernet.full) for batch in batches]

    def missed(blocks: Sequence[int]) -> float:
        progress.step()
        answers = (_logits(supernet, batch, Subnet.of_encoder(blocks)) for batch in batches)
        pairs = zip(targets, answers, batches, strict=True)
        losses = [float(task.objective.divergence(*pair)) * len(pair[0]) for pair in pairs]
        return sum(losses)

    kept = tuple(range(depth.blocks))
    free = depth.blocks - len(depth.pinned)
    progress.phase("choosing blocks", sum(range(free, free - (depth.blocks - keep), -1)))
    while len(kept) > keep:
        out = [block for block in kept if block not in depth.pinned]
        kept = min((tuple(own for own in kept if own != block) for block in out), key=missed)
    return kept


def _batches(task: Task, rows: Encoded, tokenizer: PreTrainedTokenizerBase, seed: int) -> list[Batch]:
    """Of drawn examples, whose features stand together: margins are between the documents of a query."""
    rng = np.random.default_rng(seed)
    origins = np.arange(len(rows)) if rows.origins is None else np.array(rows.origins)
    examples, places = np.unique(origins, return_inverse=True)
    tokens = np.bincount(places, weights=rows.lengths)
    order = rng.permutation(len(examples))
    drawn = order[: int(np.searchsorted(tokens[order].cumsum(), TOKENS)) + 1]
    taken = rows.take(examples[np.sort(drawn)].tolist())
    collate = task.collate(tokenizer, None)
    parts = [[*taken][start : start + ROWS] for start in range(0, len(taken), ROWS)]
    return [task.prepare(collate(part), tokenizer, rng) for part in parts]


def _logits(supernet: Supernet, batch: Batch, subnet: Subnet) -> torch.Tensor:
    with (
        torch.autocast("cpu", enabled=bf16_is_fast()),
        evaluating(supernet, supernet.inputs(batch)) as inputs,
    ):
        return logits_of(supernet(inputs, subnet)).float().cpu()
