"""Measures sub-networks on a split: runs what the cache does not know, counts what it ran."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from ldsearch.costs.macs import Cost
from ldsearch.intervals import Statistics, standard_error
from ldsearch.sidecar import Sidecar
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.tasks.base import Batch, Encoded, Task, model_inputs, score, trimmed
from ldsearch.trial import Trial


@dataclass
class Counts:
    """What an evaluator did, for reports.

    Args:
        measured: Sub-networks that were run.
        cached: Sub-networks whose measurement was known.
        executed_macs: MACs of the runs at true lengths, all examples.
        seconds: Wall-clock time of the runs.
    """

    measured: int = 0
    cached: int = 0
    executed_macs: float = 0.0
    seconds: float = 0.0


class Evaluator:
    """Scores sub-networks in fp32, one at a time, in batches of like length.

    Args:
        supernet: What the sub-networks belong to.
        task: Makes batches, and turns logits into a score.
        encoded: The tokenised split.
        split: Its name.
        tokenizer: Pads batches.
        costs: What is recorded beside the score; ``macs`` must be among them.
        fingerprint: What the measurements belong to.
        cache: Where they are kept; None keeps nothing.
        sidecar: Where their per-example statistics are kept; None keeps none.
        batch_size: Examples per batch; it does not change a score.
        pad_to: Pad every input to this length; for the reference code's token score, which counts pads.
        held_out: Whether it scores what other rows have chosen; recorded with the measurements.
    """

    def __init__(
        self,
        supernet: Supernet,
        task: Task,
        encoded: Encoded,
        *,
        split: str,
        tokenizer: PreTrainedTokenizerBase,
        costs: Sequence[Cost],
        fingerprint: str,
        cache: MeasurementCache | None = None,
        sidecar: Sidecar | None = None,
        batch_size: int = 64,
        pad_to: int | None = None,
        held_out: bool = False,
    ) -> None:
        self.supernet = supernet
        self.task = task
        self.split = split
        self.costs = costs
        self.fingerprint = fingerprint
        self.cache = cache
        self.sidecar = sidecar
        self.held_out = held_out
        self.counts = Counts()
        self._runs = 0
        self.encoded = encoded
        self._batches = list(_length_sorted_batches(task, encoded, tokenizer, batch_size, pad_to))

    def __call__(
        self, subnets: Sequence[Subnet], generation: int = 0, on_trial: Callable[[Trial], None] | None = None
    ) -> list[Trial]:
        """One trial per sub-network, in order; each is stored before the next is run.

        Args:
            subnets: What to measure.
            generation: Recorded in the trials.
            on_trial: Called after each trial (progress bars).
        """
        costs = self.costs_of(subnets)
        trials = []
        for subnet, cost in zip(subnets, costs, strict=True):
            known = self.cache.get(subnet) if self.cache is not None else None
            if known is not None:
                # Costs are computed, not measured: today's workload speaks, not the stored one.
                trial = replace(known, costs=cost, generation=generation)
                self.counts.cached += 1
            else:
                trial = self._measure(subnet, cost, generation)
            trials.append(trial)
            if on_trial is not None:
                on_trial(trial)
        return trials

    def costs_of(self, subnets: Sequence[Subnet]) -> list[dict[str, float]]:
        """Every cost of every sub-network, by name; runs nothing."""
        columns = {cost.name: cost(subnets) for cost in self.costs}
        return [{name: float(column[i]) for name, column in columns.items()} for i in range(len(subnets))]

    @property
    def examples(self) -> int:
        """Examples of the split."""
        return self.encoded.examples

    def outputs(self, subnet: Subnet) -> list[NDArray[np.float32]]:
        """What the task reads of each feature's logits, in the split's own order."""
        rows: dict[int, NDArray[np.float32]] = {}
        lengths = self.encoded.lengths
        for index, batch in self._batches:
            logits = inference(self.supernet, model_inputs(batch), subnet).float()
            on_device = {name: tensor.to(logits.device) for name, tensor in batch.items()}
            read = self.task.read(logits, on_device).cpu().numpy()
            rows.update(
                zip(index.tolist(), trimmed(read, lengths[index].tolist(), self.task.per_token), strict=True)
            )
        return [rows[feature] for feature in range(len(lengths))]

    def statistics(self, subnet: Subnet) -> Statistics:
        """Per example: what intervals are made of; run only if not known."""
        known = self.sidecar.get(subnet) if self.sidecar is not None else None
        if known is not None:
            return known
        statistics = self.task.statistics(self.outputs(subnet), self.encoded)
        self._runs += 1
        if self.sidecar is not None:
            self.sidecar.put(subnet, statistics)
        return statistics

    def seconds_per_full_pass(self) -> float:
        """How long the full model takes on the split, measured on its middle batch."""
        full = Subnet.full(self.supernet.blocks)
        index, batch = self._batches[len(self._batches) // 2]
        inference(self.supernet, model_inputs(batch), full)
        start = time.perf_counter()
        inference(self.supernet, model_inputs(batch), full)
        return (time.perf_counter() - start) * len(self.encoded) / len(index)

    def _measure(self, subnet: Subnet, costs: dict[str, float], generation: int) -> Trial:
        start, runs = time.perf_counter(), self._runs
        statistics = self.statistics(subnet)
        seconds = time.perf_counter() - start
        trial = Trial(
            subnet=subnet,
            metric=self.task.metric.name,
            score=score(self.task.metric, statistics),
            costs=costs,
            examples=len(statistics),
            split=self.split,
            seconds=seconds,
            fingerprint=self.fingerprint,
            generation=generation,
            standard_error=standard_error(statistics, self.task.metric.of_means),
        )
        if self.cache is not None:
            self.cache.put(trial, self.held_out)
        if self._runs == runs:
            self.counts.cached += 1  # killed between its statistics and its trial
            return trial
        self.counts.measured += 1
        self.counts.seconds += seconds
        self.counts.executed_macs += costs["macs"] * len(self.encoded)
        return trial


def _length_sorted_batches(
    task: Task, encoded: Encoded, tokenizer: PreTrainedTokenizerBase, batch_size: int, pad_to: int | None
) -> Iterable[tuple[NDArray[np.int64], Batch]]:
    collate = task.collate(tokenizer, pad_to)
    order = np.argsort(encoded.lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        index = order[start : start + batch_size]
        yield index, collate([encoded[int(i)] for i in index])
