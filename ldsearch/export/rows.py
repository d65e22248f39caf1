"""The rows that an export is checked on, and how their score is made."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.evaluation.batches import by_feature, collated, length_batches
from ldsearch.export.check import Rows
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord
from ldsearch.tasks import Encoded, Task
from ldsearch.tasks.base import Batch, score
from ldsearch.trials.intervals import Interval, Statistics, paired_bootstrap

# Rows that come first, as they stand, so that lengths mix; the others come by length.
MIXED, TOGETHER, BATCH = 64, 16, 32
# Compared by a runtime before it is taken.
AGREEMENT_ROWS = 200
# Of a batch's logits in a language model, and of all rows'.
MOST_FLOATS, MOST_FLOATS_IN_ALL = 2**26, 2**28
# Of the full model, on all rows of a check: about a minute on two cores.
MOST_MACS = 1e12

Collated = tuple[NDArray[np.int64], Batch]


def split_rows(
    supernet: Supernet,
    record: SupernetRecord,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    split: str,
    recorded: Sequence[float | None],
    limit: int | None = None,
) -> Rows:
    """A split's rows, or its first ones where all would take long; scored where it is all of them.

    Args:
        supernet: What reads them.
        record: Says how long inputs may be.
        tokenizer: The supernet's.
        task: The data.
        split: Its name.
        recorded: A run's score of each export on that split, by the task's metric.
        limit: The most rows; None: as many as take about a minute.
    """
    encoded = task.encode(split, tokenizer, record.reference)
    (macs,) = supernet.macs(encoded.workload)([supernet.full])
    width = supernet.model.config.vocab_size if supernet.head.name.endswith("LM") else 1
    most = min(len(encoded), max(MIXED, int(MOST_MACS / max(macs, 1.0))), limit or len(encoded))
    most = min(most, max(1, MOST_FLOATS_IN_ALL // (record.reference * width)))
    held = max(1, MOST_FLOATS // (record.reference * width))
    mixed = min(MIXED, most)
    step = min(TOGETHER, held)
    index = [np.arange(start, min(start + step, mixed)) for start in range(0, mixed, step)]
    rest = length_batches(encoded.lengths[mixed:most], lambda n: min(BATCH, held), min(BATCH, held))
    index += [mixed + own for own in rest]
    pad_to = record.pad_to
    batches = list(collated(task, encoded, tokenizer, pad_to, index))
    whole = most == len(encoded)
    origin = f"rows of the {split} split"
    if not whole:
        why = "" if most == limit else f" (the first that take {MOST_MACS:.0e} MACs)"
        origin = f"rows of the {split} split's {len(encoded)}{why}"
    read = [_read(supernet, batch) for _, batch in batches]
    likeness = None if task.likeness is None else partial(_likeness, task, encoded, batches)
    if not whole:
        return Rows(read, origin, split, likeness=likeness)
    read_out = partial(_statistics, task, encoded, batches)

    def scored(logits: Sequence[Tensor]) -> float:
        return score(task.metric, read_out(logits)).value

    def difference(first: Sequence[Tensor], second: Sequence[Tensor]) -> Interval:
        return paired_bootstrap(read_out(first), read_out(second), of_means=task.metric.of_means)

    return Rows(read, origin, split, task.metric.name, scored, difference, recorded, likeness)


def _statistics(
    task: Task, encoded: Encoded, batches: Sequence[Collated], logits: Sequence[Tensor]
) -> Statistics:
    """Per-example statistics of a whole split, from the logits of each batch of its features."""
    rows = _by_feature(task, encoded, batches, logits)
    return task.statistics([rows[i] for i in range(len(encoded))], encoded)


def _likeness(
    task: Task,
    encoded: Encoded,
    batches: Sequence[Collated],
    want: Sequence[Tensor],
    got: Sequence[Tensor],
) -> tuple[str, float]:
    """Agreement of a supernet's logits on the first batches with others'."""
    assert task.likeness is not None
    ours, theirs = (_by_feature(task, encoded, batches[: len(side)], side) for side in (want, got))
    order = sorted(ours)
    origins = None if encoded.origins is None else [encoded.origins[row] for row in order]
    sides = [ours[row] for row in order], [theirs[row] for row in order]
    return task.likeness.words, task.likeness.of(*sides, origins)


def _by_feature(
    task: Task, encoded: Encoded, batches: Sequence[Collated], logits: Sequence[Tensor]
) -> dict[int, NDArray[Any]]:
    """Logits of each batch by feature, as the task reads them."""
    rows: dict[int, NDArray[Any]] = {}
    for (index, inputs), outputs in zip(batches, logits, strict=True):
        read = task.read(outputs.float(), inputs).numpy()
        rows.update(by_feature(task, encoded.lengths, index, read))
    return rows


def _read(supernet: Supernet, batch: Batch) -> Batch:
    # A tokenizer may number segments for a model that has none.
    unread = set() if getattr(supernet.model.config, "type_vocab_size", 0) > 1 else {"token_type_ids"}
    names = {"input_ids", "attention_mask", "token_type_ids", "decoder_input_ids"} - unread
    return {name: tensor for name, tensor in supernet.inputs(batch).items() if name in names}
