"""A supernet on the bench: loaded, its data read again and checked, its costs and evaluator ready."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ldsearch.costs.macs import Cost
from ldsearch.costs.named import added_costs
from ldsearch.costs.workload import Workload
from ldsearch.disk.fingerprint import (
    EXECUTOR_SEMANTICS,
    config_json,
    digest,
    versions,
    weights_fingerprint,
)
from ldsearch.errors import DataError, SupernetError
from ldsearch.evaluation import Evaluator
from ldsearch.evaluation.served import ServedExecutor
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.runs.run import CACHE_FILE
from ldsearch.storage import MeasurementCache
from ldsearch.storage.sidecar import FOLDER, Sidecar
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, load_supernet
from ldsearch.supernet.graph import refuse
from ldsearch.supernet.stages import pinned_until
from ldsearch.tasks import EMBEDDED, DataSource, Encoded, Task, load_task
from ldsearch.tasks.base import Scorer, fingerprints_of, score
from ldsearch.tasks.tables import Columns
from ldsearch.trials.intervals import Interval, Statistics, paired_bootstrap
from ldsearch.trials.trial import Score


@dataclass(frozen=True)
class Bench:
    """Everything a search or an evaluation of one supernet needs.

    Args:
        folder: The supernet's folder.
        supernet: The supernet.
        record: Its ``supernet.json``.
        tokenizer: Its tokenizer.
        task: Its data.
        split: The rows that choices are made by.
        runs: Where measurements are kept.
        storage: Where they are kept instead, to be shared; their per-example statistics stay in ``runs``.
        runtime: Of files, in which all but the full model are scored; None: here, in fp32.
        beside: Whose full model is compared with, on the same rows; None: this one's.
    """

    folder: Path
    supernet: Supernet
    record: SupernetRecord
    tokenizer: PreTrainedTokenizerBase
    task: Task
    split: str
    runs: Path
    storage: str | None = None
    runtime: str | None = None
    beside: "Bench | None" = None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        split: str = "search",
        data: str | None = None,
        runs: Path | None = None,
        task: Task | None = None,
        storage: str | None = None,
    ) -> "Bench":
        """Load a supernet and read its data again.

        Args:
            folder: The supernet's folder.
            split: Which split to measure on.
            data: Read the data from here instead of where training read it (a moved file).
            runs: Where measurements are kept; None: next to the supernet's folder.
            task: The data, where they were read before.
            storage: Where workers share their measurements: a SQLAlchemy URL or ``journal:PATH``; None: the
                SQLite file in ``runs``, which workers of one machine share. Per-example statistics lie in
                ``runs``: workers without that folder in common make those of the frontier again.

        Raises:
            SupernetError: If the folder is not a supernet.
            DataError: If the data is gone, or not the data the supernet was trained with.
            RunError: If the storage cannot be used.
        """
        folder = Path(folder).resolve()
        supernet, record, tokenizer = load_supernet(folder)
        if torch.accelerator.is_available():
            supernet.to(torch.accelerator.current_accelerator())
        task = task or load_recorded_task(record, data)
        return cls(folder, supernet, record, tokenizer, task, split, runs or folder.parent, storage)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Measures sub-networks on the split that choices are made by.

        Raises:
            DataError: If the data have no such split.
        """
        return self.evaluator_of(self.task, self.split)

    @cached_property
    def held_out(self) -> Evaluator | None:
        """Measures on the split that no choice is made by: report, or search where report chose (swap)."""
        other = {"search": "report", "report": "search"}.get(self.split)
        if other is None or other not in self.task.splits:
            return None
        return self.evaluator_of(self.task, other, held_out=True)

    @cached_property
    def served(self) -> ServedExecutor | None:
        """Runs sub-networks in ``runtime``, on every split: it holds the graph.

        Raises:
            LdsearchError: If the runtime is not installed, or no one graph runs the sub-networks.
        """
        if self.runtime is None:
            return None
        graph_runtime(self.runtime).require()
        refuse(self.supernet)
        if self.record.pad_to is not None or self.record.length_mode != "ratio":
            raise SupernetError("only lengths in ratio, of inputs that are not padded, are served")
        # What is executed is counted at lengths alike.
        macs = self.supernet.macs(Workload.padded(self.record.reference))
        return ServedExecutor(self.supernet.eval(), self.runtime, self.record.reference, macs)

    @property
    def macs(self) -> Cost:
        """MACs at the true lengths of the split that choices are made by."""
        return self.cost("macs")

    def cost(self, name: str) -> Cost:
        """The cost of that name: MACs, parameters, a predicted latency, or a registered one."""
        return next(cost for cost in self.evaluator.costs if cost.name == name)

    def score(self, statistics: Statistics) -> Score:
        """The task's score of per-example statistics."""
        return score(self.task.metric, statistics)

    def difference(self, first: Statistics, second: Statistics) -> Interval:
        """The first's score minus the second's on the same examples, paired bootstrap."""
        return paired_bootstrap(first, second, of_means=self.task.metric.of_means)

    def loss_bound(self, subnet: Subnet) -> float:
        """The most by which a sub-network may be worse than the full model, in the direction of better.

        The upper end of a one-sided 95% interval (paired bootstrap) on the examples that choose.
        """
        if subnet not in self._bounds:  # a choice asks again and again
            pair = self.evaluator.statistics(self.whole), self.evaluator.statistics(subnet)
            interval = paired_bootstrap(*pair, of_means=self.task.metric.of_means, level=0.9)
            self._bounds[subnet] = interval.high if self.task.metric.higher_is_better else -interval.low
        return self._bounds[subnet]

    @cached_property
    def _bounds(self) -> dict[Subnet, float]:
        """Known ``loss_bound``."""
        return {}

    def require_supernet(self) -> None:
        """Refuse a model with one sub-network trained on its own: its others are spoilt.

        Raises:
            SupernetError: If it is one.
        """
        if self.record.subnet is not None:
            raise SupernetError(
                f"{self.folder.name} has one sub-network trained on its own and is no supernet any more"
            )

    @property
    def notes(self) -> list[str]:
        """Warnings about held-out scores."""
        arguments = self.record.training.get("arguments", {})
        if self.split == "report" and arguments.get("load_best_model_at_end"):
            return [
                "the search rows chose the checkpoint (load_best_model_at_end): scores on them are optimistic"
            ]
        return []

    @property
    def full(self) -> Subnet:
        """The full model."""
        return self.supernet.full

    @property
    def whole(self) -> Subnet:
        """The full model that sub-networks are compared with: another's, where that was trained from it."""
        return (self.beside or self).full

    def evaluator_of(
        self, task: Scorer, split: str, rows: Sequence[int] | None = None, held_out: bool = False
    ) -> Evaluator:
        """Measures by a task on a split, or on some of its rows; the first cost is the MACs there.

        Raises:
            DataError: If the data have no such split.
        """
        encoded = task.encode(split, self.tokenizer, self.record.reference)
        return self._evaluator(task, encoded if rows is None else encoded.take(rows), split, held_out)

    def share_of(self, evaluator: Evaluator, share: float) -> Evaluator:
        """One of some of an evaluator's examples, always the same; a larger share has them too.

        What it measures is stored as a measurement of those rows, and is none of all of them.
        """
        encoded = evaluator.encoded
        examples = sorted(set(encoded.origins or range(encoded.examples)))
        drawn = np.random.default_rng(0).permutation(len(examples))[: max(1, round(share * len(examples)))]
        rows = sorted(examples[place] for place in drawn)
        evaluator.forget()  # the states of two evaluators would not fit
        own = self._evaluator(evaluator.task, encoded.take(rows), evaluator.split)
        own.costs, own.counts, own.bound = evaluator.costs, evaluator.counts, evaluator.bound
        return own

    def _evaluator(self, task: Scorer, encoded: Encoded, split: str, held_out: bool = False) -> Evaluator:
        record, supernet = self.record, self.supernet
        macs = supernet.macs(encoded.workload)
        padded = supernet.macs(
            Workload.padded(record.reference, writes=bool(encoded.workload.written)),
            name="padded_macs",
            torchprofile=True,
        )
        fingerprint = self._fingerprint(task, encoded)
        return Evaluator(
            supernet,
            task,
            encoded,
            split=split,
            tokenizer=self.tokenizer,
            costs=(macs, padded, supernet.parameters_cost, *added_costs(supernet, encoded.workload)),
            fingerprint=fingerprint,
            cache=MeasurementCache(self.storage or self.runs / CACHE_FILE, fingerprint),
            sidecar=Sidecar(self.runs / FOLDER / fingerprint, task.metric.shape(encoded.examples), digest),
            pad_to=record.pad_to,
            held_out=held_out,
            served=self.served,
            whole=None if self.beside is None else self.beside._evaluator(task, encoded, split, held_out),
        )

    def _fingerprint(self, task: Scorer, encoded: Encoded) -> str:
        """From what is there now, not from what ``supernet.json`` says was there."""
        library, supernet, model = versions(), self.supernet, self.supernet.model
        # Measurements from before there was a choice are those of the identity.
        skipped: list[str] = [] if supernet.skipped == "identity" else [supernet.skipped]
        end = pinned_until(supernet.model.config)
        skipped += [] if end is None else [f"pinned until {end}"]
        return digest(
            [weights_fingerprint(self.folder), supernet.score, supernet.memory, *skipped],
            [task.metric.name, self.runtime or "float32", str(self.record.pad_to)],
            [model.device.type],
            [EXECUTOR_SEMANTICS, library["torch"], library["transformers"]],
            config_json(model.config.to_dict()),
            [sorted(feature.items()) for feature in encoded],
        )


def load_recorded_task(record: SupernetRecord, data: str | None) -> Task:
    """The task that ``supernet.json`` names.

    Args:
        record: Contents of ``supernet.json``.
        data: Read the data from here instead (a moved file).

    Raises:
        DataError: If the data is gone, or not the data the supernet was trained with.
    """
    source: dict[str, Any] = record.source
    validation = source.get("validation")
    if validation is not None and data is not None:
        with_data = Path(data).parent / Path(validation).name
        if not Path(validation).is_file() and with_data.is_file() and with_data != Path(data):
            validation = str(with_data)  # moved with the data
    where = DataSource(
        data=data or source["data"],
        config=source.get("config"),
        validation=validation,
        columns=Columns(**source.get("columns", {})),
        keep_overlap=bool(source.get("keep_overlap", False)),
        # Supernets of before this was recorded halved their validation rows; the embedded data have splits.
        search_rows=source.get("search_rows", "auto" if source["data"] == EMBEDDED else "half"),
        metric=source.get("metric"),
        stride=source.get("stride", DataSource.stride),
        sentences=bool(source.get("sentences", False)),
    )
    try:
        task = load_task(source.get("task", "classification"), where, record.labels or None)
    except DataError as error:
        raise DataError(f"{error} (if the data moved, say where with --data)") from error
    for split, recorded in record.splits.items():
        if fingerprints_of(task).get(split) != recorded["fingerprint"]:
            raise DataError(
                f"the {split} rows of {where.data} are not those the supernet was trained with; "
                "a comparison would mean nothing"
            )
    return task
