"""A supernet on the bench: loaded, its data read again and checked, its costs and evaluator ready."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ldsearch.costs.macs import Macs
from ldsearch.errors import DataError, SpaceError
from ldsearch.evaluation import Evaluator
from ldsearch.fingerprint import EXECUTOR_SEMANTICS, digest, versions, weights_fingerprint
from ldsearch.length_drop import default_bound
from ldsearch.runs import CACHE_FILE
from ldsearch.space import LengthSpace, load_space
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, load_supernet
from ldsearch.tasks import TextClassification
from ldsearch.tasks.classification import Encoded
from ldsearch.tasks.tables import Columns
from ldsearch.workflows.options import TrainOptions, load_task
from ldsearch.workload import Workload


@dataclass(frozen=True)
class Workbench:
    """Everything a search or an evaluation of one supernet needs.

    Args:
        folder: The supernet's folder.
        supernet: The supernet.
        record: Its ``supernet.json``.
        tokenizer: Its tokenizer.
        task: Its data.
        evaluator: Measures sub-networks on the chosen split.
        macs: MACs at the split's true lengths.
        notes: What the user should know before trusting a number.
    """

    folder: Path
    supernet: Supernet
    record: SupernetRecord
    tokenizer: PreTrainedTokenizerBase
    task: TextClassification
    evaluator: Evaluator
    macs: Macs
    notes: tuple[str, ...] = ()

    @classmethod
    def open(
        cls, folder: str | Path, split: str = "search", data: str | None = None, runs: Path | None = None
    ) -> "Workbench":
        """Load a supernet and read its data again.

        Args:
            folder: The supernet's folder.
            split: Which split to measure on.
            data: Read the data from here instead of where training read it (a moved file).
            runs: Where measurements are kept; None: beside the supernet's folder.

        Raises:
            SupernetError: If the folder is not a supernet.
            DataError: If the data is gone, or not the data the supernet was trained with.
        """
        folder = Path(folder).resolve()
        supernet, record, tokenizer = load_supernet(folder)
        if torch.accelerator.is_available():
            supernet.to(torch.accelerator.current_accelerator())
        task = _load_recorded_task(record, data)
        encoded = task.encode(split, tokenizer, record.reference)
        macs = Macs(supernet.shape, encoded.workload)
        padded = Macs(
            supernet.shape, Workload.padded(record.reference), name="padded_macs", torchprofile=True
        )
        fingerprint = _fingerprint(folder, supernet, task, encoded)
        evaluator = Evaluator(
            supernet,
            task,
            encoded,
            split=split,
            tokenizer=tokenizer,
            costs=(macs, padded, supernet.parameters_cost),
            fingerprint=fingerprint,
            cache=MeasurementCache((runs or folder.parent) / CACHE_FILE, fingerprint),
            pad_to=record.reference if record.parity else None,
        )
        return cls(folder, supernet, record, tokenizer, task, evaluator, macs, _notes(record))

    @property
    def full(self) -> Subnet:
        """The full model."""
        return Subnet.full(self.supernet.blocks)

    def length_space(self, name: str | None, parity: bool) -> LengthSpace:
        """The search space of length configurations: the named one, or the supernet's own.

        Args:
            name: A shipped space or a YAML file; None: the range that was trained.
            parity: Without a name, every length instead of 16 levels, and no pinned last length.

        Raises:
            SpaceError: If the space is of another depth or kind of lengths, or names no lengths.
        """
        if name is None:
            return LengthSpace.build(
                self.record.blocks,
                self.record.reference,
                self.record.drop_bound or default_bound(self.record.blocks),
                levels=None if parity else 16,
                mode="absolute" if self.record.length_mode == "absolute" else "ratio",
                pin_last=not parity,
            )
        space = load_space(name)
        if not isinstance(space, LengthSpace):
            raise SpaceError(f"the search space {space.name} chooses depths; evolve searches lengths")
        if space.blocks != self.record.blocks:
            raise SpaceError(
                f"the search space {space.name} is for {space.blocks} blocks, the supernet has "
                f"{self.record.blocks}"
            )
        if space.reference != self.record.reference:
            raise SpaceError(
                f"the search space {space.name} refers to {space.reference} tokens, the supernet was "
                f"trained at {self.record.reference}"
            )
        if space.mode != self.record.length_mode:
            raise SpaceError(
                f"the search space {space.name} has {space.mode} lengths, the supernet was trained with "
                f"{self.record.length_mode} ones"
            )
        return space


def _load_recorded_task(record: SupernetRecord, data: str | None) -> TextClassification:
    source: dict[str, Any] = record.source
    options = TrainOptions(
        data=data or source["data"],
        config=source.get("config"),
        validation=_moved(source.get("validation"), data),
        columns=Columns(**source.get("columns", {})),
        seed=int(source.get("seed", 0)),
    )
    try:
        task = load_task(options, record.labels)
    except DataError as error:
        raise DataError(f"{error} (if the data moved, say where with --data)") from error
    for split, recorded in record.splits.items():
        if task.fingerprints.get(split) != recorded["fingerprint"]:
            raise DataError(
                f"the {split} rows of {options.data} are not those the supernet was trained with; "
                "a comparison would mean nothing"
            )
    return task


def _moved(validation: str | None, data: str | None) -> str | None:
    """The recorded validation file, or where it lies beside the moved data."""
    if validation is None or data is None:
        return validation
    beside = Path(data).parent / Path(validation).name
    return str(beside) if beside.is_file() else validation


def _fingerprint(folder: Path, supernet: Supernet, task: TextClassification, encoded: Encoded) -> str:
    """From what is there now, not from what ``supernet.json`` says was there."""
    library = versions()
    config = supernet.model.config.to_dict()
    return digest(
        [weights_fingerprint(folder), supernet.score, task.metric, "float32"],
        [EXECUTOR_SEMANTICS, library["torch"], library["transformers"]],
        json.dumps({k: v for k, v in config.items() if not k.startswith("_")}, sort_keys=True, default=str),
        [sorted(feature.items()) for feature in encoded],
    )


def _notes(record: SupernetRecord) -> tuple[str, ...]:
    if record.drop_bound is None:
        return (f"lengths were not trained ({record.strategy}): scores of shortened inputs will suffer",)
    return ()
