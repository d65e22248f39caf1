"""Times exported folders in turn with the full model they were cut from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ldsearch.errors import ExportError
from ldsearch.export.folder import is_int8
from ldsearch.export.loading import load_exported, open_exported
from ldsearch.export.reader import ONNX_FILE
from ldsearch.latency.clock import Clock, Run, device_facts, synchroniser
from ldsearch.latency.int8 import int8_instructions
from ldsearch.latency.measure import (
    FORWARD,
    Cell,
    Entry,
    MeasuredLatency,
    Probe,
    entries_of,
    forward_run,
    generate_run,
    generating,
    measure,
    random_cell,
)
from ldsearch.latency.runtimes import RUNTIMES, in_session
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.cutting import copy_sharing
from ldsearch.supernet.folder import RECORD, load_supernet
from ldsearch.supernet.graph import onnx_session

REPEATS, WARMUP, SECONDS = 5, 2, 3.0  # rounds at least; of a cell in all
# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 8
# Entries: the export, the same sub-network in fp32, and the full model in int8.
_EXPORTED, _FP32, _INT8 = "export", "fp32", "onnx-int8"


@dataclass(frozen=True)
class TimingJob:
    """Which latencies of exports are measured.

    Args:
        supernet: Folder of the supernet, which holds the full model.
        subnets: The sub-network of each export, as JSON.
        cells: (rows, tokens of each) of the inputs.
        device: Where torch runs; ONNX Runtime runs on the CPU.
    """

    supernet: str
    subnets: Sequence[str]
    cells: Sequence[tuple[int, int]]
    device: str = "cpu"


@dataclass(frozen=True)
class Int8Latency(MeasuredLatency):
    """Latency of an int8 export, whose ``full_ms`` is the full model's in int8 too.

    Args:
        fp32_ms: Median of the same sub-network in fp32.
        fp32_full_ms: Median of the full model in fp32.
    """

    fp32_ms: float = 0.0
    fp32_full_ms: float = 0.0

    def describe(self) -> str:
        """Describe the latency in a sentence."""
        slower = "; int8 is not faster here" if self.median_ms >= self.fp32_ms else ""
        return (
            f"{super().describe()}; {self.median_ms / self.fp32_full_ms:.2f} of the full model's "
            f"{self.fp32_full_ms:.3g} in fp32, {self.median_ms / self.fp32_ms:.2f} of its own "
            f"{self.fp32_ms:.3g}{slower}"
        )


def latency_of(fields: Mapping[str, Any]) -> MeasuredLatency:
    """A latency of ``timings``."""
    return (Int8Latency if "fp32_ms" in fields else MeasuredLatency).from_dict(fields)


def timings(folders: Sequence[Path], job: TimingJob) -> dict[str, Any]:
    """Time exports, each in turn with the full model: call by call, so that a disturbance meets both.

    Args:
        folders: Of exports; ONNX files and folders of Hugging Face are not mixed, fp32 and int8 may be.
        job: What is measured.

    Returns:
        ``machine`` in words, and ``latencies``: for each export, fields of ``MeasuredLatency``.
    """
    supernet = _opened(Path(job.supernet)).to(job.device).eval()
    device = supernet.model.device
    clock = Clock(REPEATS, WARMUP, synchronise=synchroniser(device), seconds=SECONDS)
    probe = generating(TOKENS) if supernet.head.generates else FORWARD
    cells = [random_cell(supernet, *cell, max(probe.written)) for cell in job.cells]
    full = _full(supernet, (folders[0] / ONNX_FILE).is_file())
    full_int8 = {}
    if any(map(is_int8, folders)):
        full_int8 = {Entry(supernet.full, _INT8): RUNTIMES[_INT8](supernet, supernet.full)}
    latencies: list[list[dict[str, Any]]] = []
    for folder, text in zip(folders, job.subnets, strict=True):
        own = Entry(Subnet.from_json(text), _EXPORTED)
        models = {**full, own: _exported(folder, supernet)}
        if is_int8(folder):
            fp32 = Entry(own.subnet, _FP32)
            models = {**full_int8, **full, fp32: RUNTIMES["onnx"](supernet, own.subnet), **models}
        entries = list(models)
        latencies.append([])
        for cell in cells:
            lines, _ = measure(
                supernet, entries, cell, probe, clock, runs=partial(_runs, models, cell, probe)
            )
            latencies[-1] += [line.to_dict() for line in _of_export(lines)]
    facts = device_facts(device, supernet.model.dtype)
    machine = f"{facts['device']}, {facts['threads']} threads"
    if full_int8 and (known := int8_instructions()) is not None:
        machine += f", int8 by {', '.join(known) or 'no instruction of its own'}"
    return {"machine": machine, "latencies": latencies}


def _opened(folder: Path) -> Supernet:
    """A supernet, or a model without a record as one."""
    return load_supernet(folder)[0] if (folder / RECORD).is_file() else open_exported(folder)[0]


def _of_export(lines: Sequence[MeasuredLatency]) -> list[MeasuredLatency]:
    """The export's lines; of an int8 one with the medians in fp32 beside them."""
    found = [line for line in lines if line.runtime == _EXPORTED]
    beside = {line.runtime: line.median_ms for line in lines}
    if _FP32 not in beside:
        return found
    return [Int8Latency(**vars(line), fp32_ms=beside[_FP32], fp32_full_ms=beside["onnx"]) for line in found]


def _full(supernet: Supernet, onnx: bool) -> dict[Entry, Any]:
    """The full model in the runtimes to compare with: a model that generates, or forwards."""
    if onnx:
        try:
            return {Entry(supernet.full, "onnx"): RUNTIMES["onnx"](supernet, supernet.full)}
        except ExportError:
            pass  # too large for a file of its own: every number names what it is compared with
    entries = entries_of(supernet, [], "eager")
    if supernet.head.generates:
        return {entries[0]: supernet.materialise(supernet.full)}
    return {entry: RUNTIMES[entry.runtime](supernet, supernet.full) for entry in entries}


def _exported(folder: Path, supernet: Supernet) -> Any:
    """An export's model where it generates, else its forward."""
    if (folder / ONNX_FILE).is_file():
        return in_session(onnx_session(folder / ONNX_FILE, torch.get_num_threads()))
    model: Any = load_exported(folder)
    torch.nn.Module.to(model, supernet.model.device)
    return model if supernet.head.generates else lambda inputs: model(**inputs)


def _runs(models: Mapping[Entry, Any], cell: Cell, probe: Probe, entry: Entry) -> list[Run]:
    """The probe's runs of a model that generates, or of a forward."""
    if probe is FORWARD:
        return [forward_run(models[entry], cell)]
    # A model for each run, since a run sets how much is generated; the weights are shared.
    return [generate_run(copy_sharing(models[entry]), cell, written) for written in probe.written]
