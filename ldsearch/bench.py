"""A supernet on the bench: loaded, its data read again and checked, its costs and evaluator ready."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ldsearch.costs.macs import Cost
from ldsearch.costs.named import added_costs
from ldsearch.errors import DataError, SupernetError
from ldsearch.evaluation import Evaluator
from ldsearch.fingerprint import (
    EXECUTOR_SEMANTICS,
    config_json,
    digest,
    versions,
    weights_fingerprint,
)
from ldsearch.intervals import Interval, Statistics, paired_bootstrap
from ldsearch.runs import CACHE_FILE
from ldsearch.storage import MeasurementCache
from ldsearch.storage.sidecar import FOLDER, Sidecar
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, load_supernet
from ldsearch.tasks import EMBEDDED, DataSource, Encoded, Task, load_task
from ldsearch.tasks.base import Scorer, fingerprints_of, score
from ldsearch.tasks.tables import Columns
from ldsearch.trial import Score
from ldsearch.workload import Workload


@dataclass(frozen=True)
class Bench:
    """Everything a search or an evaluation of one supernet needs.

    Args:
        folder: The supernet's folder.
        supernet: The supernet.
        record: Its ``supernet.json``.
        tokenizer: Its tokenizer.
        task: Its data.
        evaluator: Measures sub-networks on the split that choices are made by.
        macs: MACs at that split's true lengths.
        runs: Where measurements are kept.
        storage: Where they are kept instead, to be shared; their per-example statistics stay in ``runs``.
    """

    folder: Path
    supernet: Supernet
    record: SupernetRecord
    tokenizer: PreTrainedTokenizerBase
    task: Task
    evaluator: Evaluator
    macs: Cost
    runs: Path
    storage: str | None = None

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
        runs = runs or folder.parent
        parts = (folder, supernet, record, tokenizer, task)
        evaluator, macs = split_evaluator(*parts, split, runs, storage=storage)
        return cls(*parts, evaluator, macs, runs, storage)

    @cached_property
    def held_out(self) -> Evaluator | None:
        """Measures on the split that no choice is made by: report, or search where report chose (swap)."""
        other = {"search": "report", "report": "search"}.get(self.evaluator.split)
        if other is None or other not in self.task.splits:
            return None
        parts = (self.folder, self.supernet, self.record, self.tokenizer, self.task)
        return split_evaluator(*parts, other, self.runs, held_out=True, storage=self.storage)[0]

    def cost(self, name: str) -> Cost:
        """The cost of that name: MACs, parameters, a predicted latency, or a registered one."""
        return next(cost for cost in self.evaluator.costs if cost.name == name)

    def score(self, statistics: Statistics) -> Score:
        """The task's score of per-example statistics."""
        return score(self.task.metric, statistics)

    def difference(self, first: Statistics, second: Statistics) -> Interval:
        """The first's score minus the second's on the same examples, paired bootstrap."""
        return paired_bootstrap(first, second, of_means=self.task.metric.of_means)

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
        if self.evaluator.split == "report" and arguments.get("load_best_model_at_end"):
            return [
                "the search rows chose the checkpoint (load_best_model_at_end): scores on them are optimistic"
            ]
        return []

    @property
    def full(self) -> Subnet:
        """The full model."""
        return self.supernet.full


def split_evaluator(
    folder: Path,
    supernet: Supernet,
    record: SupernetRecord,
    tokenizer: PreTrainedTokenizerBase,
    task: Scorer,
    split: str,
    runs: Path,
    held_out: bool = False,
    rows: Sequence[int] | None = None,
    storage: str | None = None,
) -> tuple[Evaluator, Cost]:
    """Measures on a split, or on some of its rows, and the MACs at their true lengths."""
    encoded = task.encode(split, tokenizer, record.reference)
    if rows is not None:
        encoded = encoded.take(rows)
    macs = supernet.macs(encoded.workload)
    padded = supernet.macs(
        Workload.padded(record.reference, writes=bool(encoded.workload.written)),
        name="padded_macs",
        torchprofile=True,
    )
    pad_to = record.pad_to
    fingerprint = _fingerprint(folder, supernet, task, encoded, pad_to)
    evaluator = Evaluator(
        supernet,
        task,
        encoded,
        split=split,
        tokenizer=tokenizer,
        costs=(macs, padded, supernet.parameters_cost, *added_costs(supernet, encoded.workload)),
        fingerprint=fingerprint,
        cache=MeasurementCache(storage or runs / CACHE_FILE, fingerprint),
        sidecar=Sidecar(runs / FOLDER / fingerprint, task.metric.shape(encoded.examples), digest),
        pad_to=pad_to,
        held_out=held_out,
    )
    return evaluator, macs


def _fingerprint(folder: Path, supernet: Supernet, task: Scorer, encoded: Encoded, pad_to: int | None) -> str:
    """From the files as they are now, not from ``supernet.json``."""
    library = versions()
    return digest(
        [weights_fingerprint(folder), supernet.score, supernet.memory],
        [task.metric.name, "float32", str(pad_to)],
        [supernet.model.device.type],
        [EXECUTOR_SEMANTICS, library["torch"], library["transformers"]],
        config_json(supernet.model.config.to_dict()),
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
