"""Signals of the learned strategies: one number per block, from training rows."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from ldsearch.bench import Bench
from ldsearch.supernet.signals import BlockInfluence
from ldsearch.supernet.supernet import inference
from ldsearch.tasks.base import Batch
from ldsearch.training.drop_rates import learn_drop_rates

STEPS = 300  # of learning drop rates
BATCH = 32
_INFLUENCE_BATCHES = 16
_RATE = 0.5  # where no number of blocks is asked for

Signal = Callable[[Bench, int | None], NDArray[np.float64]]


def learned_importance(bench: Bench, keep: int | None) -> NDArray[np.float64]:
    """Importance by learned drop rates: those that training learned, else learned on training rows now.

    The mean of the latter is that of keeping ``keep`` blocks. Shape (blocks,); see
    ``ldsearch.training.drop_rates``.
    """
    if bench.record.training.get("layer_drop_schedule") == "learned":
        return 1 - np.array(bench.record.layer_rates)
    blocks = bench.supernet.blocks
    rate = _RATE if keep is None or keep == blocks else 1 - keep / blocks
    objective = bench.task.objective
    batches = track(list(_batches(bench, STEPS)), "learning drop rates", transient=True)
    learned = learn_drop_rates(bench.supernet, batches, objective.loss, rate=rate, steps=STEPS, seed=0)
    return learned.importance()


def influence(bench: Bench, keep: int | None) -> NDArray[np.float64]:
    """The change that each block makes to its input, on training rows and untrained. Shape (blocks,)."""
    observer = BlockInfluence(bench.supernet.blocks)
    for batch in track(list(_batches(bench, _INFLUENCE_BATCHES)), "block influence", transient=True):
        inference(bench.supernet, bench.supernet.inputs(batch), bench.full, observer.observe)
    return observer.values()


SIGNALS: Mapping[str, Signal] = MappingProxyType({"learned": learned_importance, "influence": influence})


def _batches(bench: Bench, count: int) -> Iterator[Batch]:
    """Training rows in a fixed random order, from the start again where there are too few."""
    encoded = bench.task.encode("train", bench.tokenizer, bench.record.reference)
    collate = bench.task.collate(bench.tokenizer, bench.record.pad_to)
    order = np.random.default_rng(0).permutation(len(encoded))
    for index in range(count):
        rows = order.take(np.arange(index * BATCH, (index + 1) * BATCH), mode="wrap")
        yield collate([encoded[int(row)] for row in rows])
