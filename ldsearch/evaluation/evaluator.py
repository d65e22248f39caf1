"""Measures sub-networks on a split: runs what the cache does not know, counts what it ran."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.costs.macs import Cost
from ldsearch.costs.workload import Workload
from ldsearch.evaluation.batches import by_feature, collated, length_batches
from ldsearch.evaluation.counts import Counts
from ldsearch.evaluation.executor import Executor, shares_prefixes
from ldsearch.evaluation.memory import RESERVE, Memory, release, resident, taken
from ldsearch.evaluation.prefixes import PrefixCache, path_of
from ldsearch.evaluation.served import ServedExecutor
from ldsearch.evaluation.stock import StockExecutor
from ldsearch.storage import MeasurementCache
from ldsearch.storage.claims import name_of
from ldsearch.storage.sidecar import Sidecar
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.tasks.base import Batch, Encoded, Scorer, score
from ldsearch.trials.intervals import Statistics, standard_error
from ldsearch.trials.trial import Trial

Outputs = list[NDArray[np.float32]]

# Rows that are enough for a batch of one length: below, products are too small to be fast.
LEAST = 8
# Sub-networks that are run together: they are stored when all of them are through.
TOGETHER = 512


_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.2  # seconds between two looks at what others have stored


def _ignore(event: object) -> None:
    pass


def parts_of(
    cache: MeasurementCache | None, subnets: Sequence[Subnet], on_wait: Callable[[int], None]
) -> Generator[tuple[list[Subnet], int], None, None]:
    """Parts for this worker to measure and store, until every sub-network is stored, by whomever.

    Close the iterator where storing fails: what is claimed is given back then.

    Args:
        cache: The storage; without one this worker is alone.
        subnets: Unmeasured sub-networks; those with common prefixes are neighbours.
        on_wait: Called with the number of missing sub-networks while others measure them.

    Yields:
        A part, and how many of it another worker had claimed and did not store in time.

    Raises:
        RunError: If the storage fails.
    """
    if cache is None or not subnets:
        if subnets:
            yield list(subnets), 0
        return
    names = {name_of(subnet.to_json()): subnet for subnet in subnets}
    pause = _FIRST_PAUSE
    with cache.claims.renewing():
        while names:
            held, again = cache.claims.take(list(names))
            # Whoever held it before may have stored it after the last look.
            cache.refresh()
            part = {name: names[name] for name in held if cache.get(names[name]) is None}
            if part:
                yield list(part.values()), len(again & part.keys())
                cache.refresh()
                pause = _FIRST_PAUSE
            names = {name: subnet for name, subnet in names.items() if cache.get(subnet) is None}
            if names and not part:
                on_wait(len(names))
                time.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE)


class Evaluator:
    """Scores sub-networks in fp32, in batches of like length: many together where they share prefixes.

    A single one, and one on inputs of a fixed padded length (whose score may read pads), runs by itself.

    Args:
        supernet: What the sub-networks belong to.
        task: Makes batches, and turns logits into a score.
        encoded: The tokenised split.
        tokenizer: Pads batches.
        split: Its name.
        costs: Recorded with the score; ``macs`` must be among them. None: MACs at true lengths, parameters.
        fingerprint: What the measurements belong to.
        cache: Where they are kept; None keeps nothing.
        sidecar: Where their per-example statistics are kept; None keeps none.
        batch_size: The most examples per batch; it does not change a score.
        cache_budget: Bytes for states that later generations may need; None: what the memory leaves.
        pad_to: Pad every input to this length; for the reference code's token score, which counts pads.
        held_out: Whether it scores what other rows have chosen; recorded with the measurements.
        served: Runs all but the full model in the runtime that will serve them; None: all run here.
        whole: Measures the full model that is compared with, where that is another's; None: it is this one's.
    """

    def __init__(
        self,
        supernet: Supernet,
        task: Scorer,
        encoded: Encoded,
        *,
        tokenizer: PreTrainedTokenizerBase,
        split: str = "search",
        costs: Sequence[Cost] | None = None,
        fingerprint: str = "",
        cache: MeasurementCache | None = None,
        sidecar: Sidecar | None = None,
        batch_size: int = 64,
        cache_budget: int | None = None,
        pad_to: int | None = None,
        held_out: bool = False,
        served: ServedExecutor | None = None,
        whole: "Evaluator | None" = None,
    ) -> None:
        self.supernet = supernet
        self.task = task
        self.split = split
        self.costs = costs or (supernet.macs(encoded.workload), supernet.parameters_cost)
        self.fingerprint = fingerprint
        self.cache = cache
        self.sidecar = sidecar
        self.held_out = held_out
        self.encoded = encoded
        self._whole = whole
        self._macs = next(cost for cost in self.costs if cost.name == "macs")
        self.counts = Counts(float(self._macs([supernet.full])[0]) * len(encoded))
        self._lengths = encoded.lengths
        self._longest = int(pad_to or self._lengths.max(initial=1))
        self._served = served
        self._executor: Executor | StockExecutor | ServedExecutor
        if served is not None:
            self._executor = served
        elif shares_prefixes(supernet):
            self._executor = Executor(supernet)
        else:
            self._executor = StockExecutor(supernet, self._macs)
        self._pad_to = pad_to
        self._batch_size = batch_size
        self._collated = partial(collated, task, encoded, tokenizer, pad_to)
        self._apart = partial(by_feature, task, self._lengths)
        # What others have chosen is scored in one go: no generation follows.
        self._cache_budget = 0 if held_out else cache_budget
        self.bound: float | None = None  # bytes that all may take; None: the default

    @property
    def executor(self) -> Executor | StockExecutor | ServedExecutor | None:
        """Runs sub-networks together; None where padding may change a score."""
        return None if self._pad_to else self._executor

    @cached_property
    def memory(self) -> Memory:
        """Bytes for batches and kept states, within ``bound`` and what is loaded now."""
        device = self.supernet.model.device
        return Memory(taken(device), self._executor.row_bytes(self._longest), self.bound)

    def forget(self) -> None:
        """Drop the states kept for later generations; what comes next divides the memory anew."""
        for name in ("memory", "_batches", "_alike", "_prefixes"):
            self.__dict__.pop(name, None)
        release()

    def expected_peak(self, evaluations: int) -> int:
        """Bytes that a search of so many evaluations takes at most, those of model and data among them."""
        work = max(
            len(index) * self._executor.row_bytes(int(self._pad_to or self._lengths[index].max()))
            for index in self._alike
        )
        tokens = sum(map(self._executor.state_bytes, self._lengths.tolist()))
        states = evaluations * sum(self.supernet.depths.values()) * tokens
        return self.memory.loaded + RESERVE + work + min(self.memory.cache, states)

    def __call__(
        self,
        subnets: Sequence[Subnet],
        generation: int = 0,
        on_trial: Callable[[Trial], None] = _ignore,
        on_wait: Callable[[int], None] = _ignore,
    ) -> list[Trial]:
        """One trial per sub-network, in order; each is stored as soon as it is known.

        Workers that share the cache divide what is not known, and each gets all of it.

        Args:
            subnets: What to measure.
            generation: Recorded in the trials.
            on_trial: Called after each trial (progress bars), known ones first.
            on_wait: Called with how many are missing, again and again, while other workers measure them.
        """
        costs = dict(zip(subnets, self.costs_of(subnets), strict=True))
        trials: dict[Subnet, Trial] = {}
        if (whole := self._whole_of(subnets)) is not None:
            (trials[whole.full],) = whole([whole.full], generation, on_trial, on_wait)

        def look(missing: int = 0) -> None:
            for subnet in [subnet for subnet in costs if subnet not in trials]:
                known = self.cache.get(subnet) if self.cache is not None else None
                if known is not None:
                    # Costs are computed, not measured: today's workload speaks, not the stored one.
                    trials[subnet] = replace(known, costs=costs[subnet], generation=generation)
                    self.counts.cached += 1
                    on_trial(trials[subnet])
            if missing:
                on_wait(missing)

        look()
        # In this order sub-networks with long prefixes in common come together.
        unknown = sorted((subnet for subnet in costs if subnet not in trials), key=path_of)
        with closing(parts_of(self.cache, unknown, look)) as parts:
            for part, redone in parts:
                self.counts.redone += redone
                for trial in self._trials(part, costs, generation):
                    trials[trial.subnet] = trial
                    on_trial(trial)
        look()
        return [
            trials[subnet] if whole is not None and subnet == whole.full else self._as_stored(trials[subnet])
            for subnet in subnets
        ]

    def _trials(
        self, part: Sequence[Subnet], costs: Mapping[Subnet, dict[str, float]], generation: int
    ) -> Iterator[Trial]:
        """Trials of a part that this worker measures and stores; not those another worker took over."""
        before, stored = self.counts.measured, 0
        for subnet, statistics, seconds in self._measure(part):
            trial = Trial(
                subnet=subnet,
                metric=self.task.metric.name,
                score=score(self.task.metric, statistics),
                costs=costs[subnet],
                examples=len(statistics),
                split=self.split,
                seconds=seconds,
                fingerprint=self.fingerprint,
                generation=generation,
                standard_error=standard_error(statistics, self.task.metric.of_means),
            )
            if self.cache is None or self.cache.put(trial, self.held_out):
                stored += 1
                yield trial
        # Some were killed between their statistics and their trial.
        self.counts.cached += max(0, stored - (self.counts.measured - before))

    def _as_stored(self, trial: Trial) -> Trial:
        """Every worker goes on from the same numbers."""
        stored = self.cache.get(trial.subnet) if self.cache is not None else None
        return replace(trial, score=stored.score) if stored else trial

    def costs_of(self, subnets: Sequence[Subnet]) -> list[dict[str, float]]:
        """Every cost of every sub-network, by name; runs nothing."""
        if (whole := self._whole_of(subnets)) is not None:
            own = [subnet for subnet in subnets if subnet != whole.full]
            known = dict(zip(own, self.costs_of(own), strict=True))
            known[whole.full] = whole.costs_of([whole.full])[0]
            return [known[subnet] for subnet in subnets]
        columns = {cost.name: cost(subnets) for cost in self.costs}
        return [{name: float(column[i]) for name, column in columns.items()} for i in range(len(subnets))]

    @property
    def full(self) -> Subnet:
        """The full model that sub-networks are compared with."""
        return self.supernet.full if self._whole is None else self._whole.full

    def _whole_of(self, subnets: Sequence[Subnet]) -> "Evaluator | None":
        """Another's evaluator, if the full model that it measures is among the sub-networks."""
        return self._whole if self._whole is not None and self._whole.full in subnets else None

    @cached_property
    def _padded(self) -> Cost:
        writes = bool(self.encoded.workload.written)
        return self.supernet.macs(Workload.padded(self.encoded.reference, writes=writes))

    @property
    def examples(self) -> int:
        """Examples of the split."""
        return self.encoded.examples

    def outputs(self, subnet: Subnet) -> Outputs:
        """The task's reading of each feature's logits, in the order of the split; here, and in fp32."""
        rows: dict[int, NDArray[np.float32]] = {}
        for index, batch in self._collated(self._batches):
            logits = inference(self.supernet, self.supernet.inputs(batch), subnet)
            rows.update(self._apart(index, self._read(batch, logits)))
        return [rows[feature] for feature in range(len(self.encoded))]

    def statistics(self, subnet: Subnet) -> Statistics:
        """Per example: what intervals are made of; run only if not known."""
        if (whole := self._whole_of([subnet])) is not None:
            return whole.statistics(subnet)
        ((_, statistics, _),) = self._measure([subnet])
        return statistics

    def seconds_per_full_pass(self) -> float:
        """Estimated seconds of the full model on the split, from its middle batch."""
        full = self.supernet.full
        ((index, batch),) = self._collated([self._batches[len(self._batches) // 2]])
        inference(self.supernet, self.supernet.inputs(batch), full)
        start = time.perf_counter()
        inference(self.supernet, self.supernet.inputs(batch), full)
        return (time.perf_counter() - start) * len(self.encoded) / len(index)

    def _measure(self, subnets: Sequence[Subnet]) -> Iterator[tuple[Subnet, Statistics, float]]:
        """Sub-networks, their statistics and the seconds of their runs; what is not known is run and kept."""
        unknown = []
        for subnet in subnets:
            known = self.sidecar.get(subnet) if self.sidecar is not None else None
            if known is None:
                unknown.append(subnet)
            else:
                yield subnet, known, 0.0
        for subnet, outputs, seconds in self._run(unknown):
            statistics = self.task.statistics(outputs, self.encoded)
            if self.sidecar is not None:
                self.sidecar.put(subnet, statistics)
            self.counts.measured += 1
            self.counts.seconds += seconds
            yield subnet, statistics, seconds

    def _run(self, subnets: Sequence[Subnet]) -> Iterator[tuple[Subnet, Outputs, float]]:
        alone, padded = (
            [float(macs) * len(self.encoded) for macs in cost(subnets)] for cost in (self._macs, self._padded)
        )
        self.counts.alone_macs += sum(alone)
        self.counts.padded_macs += sum(padded)
        if self.executor is None or (len(subnets) < 2 and self._served is None):
            for subnet, macs in zip(subnets, alone, strict=True):
                start = time.perf_counter()
                outputs = self.outputs(subnet)
                self.counts.executed_macs += macs
                yield subnet, outputs, time.perf_counter() - start
            return
        most = max(1, min(TOGETHER, self.memory.outputs // self._output_bytes))
        for first in range(0, len(subnets), most):
            chunk, start = subnets[first : first + most], time.perf_counter()
            parts = self._together(self.executor, chunk)
            seconds = (time.perf_counter() - start) / len(chunk)
            for place, subnet in enumerate(chunk):
                rows: dict[int, NDArray[np.float32]] = {}
                for index, read in zip(self._alike, parts[place], strict=True):
                    rows.update(self._apart(index, read))
                parts[place] = []
                yield subnet, [rows[feature] for feature in range(len(self.encoded))], seconds

    def _together(
        self, executor: Executor | StockExecutor | ServedExecutor, subnets: Sequence[Subnet]
    ) -> list[list[NDArray[np.float32]]]:
        """For each sub-network the task's reading of each batch; what acts alike shares one array."""
        parts: list[list[NDArray[np.float32]]] = [[] for _ in subnets]
        before = replace(executor.work)
        device = self.supernet.model.device
        for (_, cut), prefixes in zip(self._collated(self._alike), self._prefixes, strict=True):
            batch = {name: tensor.to(device) for name, tensor in cut.items()}

            def keep(ends: Sequence[int], logits: Tensor, batch: Batch = batch) -> None:
                read = self._read(batch, logits)
                for end in ends:
                    parts[end].append(read)

            executor.run(self.supernet.inputs(batch), subnets, keep, prefixes)
            kept = sum(one.bytes for one in self._prefixes if one is not None)
            if resident() - self.memory.loaded - kept > RESERVE // 2:
                release()
        self.counts.executed_macs += executor.work.macs - before.macs
        self.counts.evaluations += executor.work.evaluations - before.evaluations
        self.counts.hits += executor.work.hits - before.hits
        return parts

    @cached_property
    def _output_bytes(self) -> int:
        """Bytes of one sub-network's outputs on the split, by those of the shortest row."""
        shortest = int(self._lengths.argmin())
        ((_, batch),) = self._collated([np.array([shortest])])
        logits = inference(self.supernet, self.supernet.inputs(batch), self.supernet.full)
        units = self._lengths if self.task.per_token else np.ones_like(self._lengths)
        return max(1, self._read(batch, logits).nbytes * int(units.sum()) // int(units[shortest]))

    def _batches_of(self, least: int) -> list[NDArray[np.int64]]:
        executor = self._executor
        executor.budget = self.memory.work

        def most(length: int) -> int:
            return min(self._batch_size, executor.rows(self._pad_to or length))

        return length_batches(self._lengths, most, least)

    @cached_property
    def _batches(self) -> list[NDArray[np.int64]]:
        return self._batches_of(len(self.encoded))

    @cached_property
    def _alike(self) -> list[NDArray[np.int64]]:
        """Batches of one length each, where that makes enough rows."""
        return self._batches_of(LEAST)

    @cached_property
    def _prefixes(self) -> list[PrefixCache | None]:
        """One cache for each batch, of its share of the bytes: a sweep over the batches evicts nothing."""
        most = self.memory.cache if self._cache_budget is None else self._cache_budget
        if self._pad_to or not (most and self._executor.state_bytes(1)):
            return [None] * len(self._alike)
        tokens = [float(self._lengths[index].sum()) for index in self._alike]
        return [PrefixCache(int(most * share / sum(tokens))) for share in tokens]

    def _read(self, batch: Batch, logits: Tensor) -> NDArray[np.float32]:
        """The task's reading of a batch's logits, row by row."""
        on_device = {name: tensor.to(logits.device) for name, tensor in batch.items()}
        read: NDArray[np.float32] = self.task.read(logits.float(), on_device).cpu().numpy()
        return read
