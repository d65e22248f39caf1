"""Times exported folders in turn with the full model they were cut from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ldsearch.errors import ExportError
from ldsearch.export.folder import load_exported
from ldsearch.export.reader import ONNX_FILE
from ldsearch.latency.clock import Clock, Run, device_facts, synchroniser
from ldsearch.latency.measure import (
    FORWARD,
    Cell,
    Entry,
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
from ldsearch.supernet.folder import load_supernet
from ldsearch.supernet.graph import onnx_session

REPEATS, WARMUP = 5, 2
# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 8
_EXPORTED = "export"


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


def timings(folders: Sequence[Path], job: TimingJob) -> dict[str, Any]:
    """Time exports, each in turn with the full model: call by call, so that a disturbance meets both.

    Args:
        folders: Of exports, all of one format.
        job: What is measured.

    Returns:
        ``machine`` in words, and ``latencies``: for each export, fields of ``MeasuredLatency``.
    """
    supernet = load_supernet(Path(job.supernet))[0].to(job.device).eval()
    device = supernet.model.device
    clock = Clock(REPEATS, WARMUP, synchronise=synchroniser(device))
    probe = generating(TOKENS) if supernet.head.generates else FORWARD
    cells = [random_cell(supernet, *cell, max(probe.written)) for cell in job.cells]
    full = _full(supernet, (folders[0] / ONNX_FILE).is_file())
    latencies: list[list[dict[str, Any]]] = []
    for folder, text in zip(folders, job.subnets, strict=True):
        entries = [*full, Entry(Subnet.from_json(text), _EXPORTED)]
        models = {**full, entries[-1]: _exported(folder, supernet)}
        latencies.append([])
        for cell in cells:
            lines, _ = measure(
                supernet, entries, cell, probe, clock, runs=partial(_runs, models, cell, probe)
            )
            latencies[-1] += [line.to_dict() for line in lines if line.runtime == _EXPORTED]
    facts = device_facts(device, supernet.model.dtype)
    return {"machine": f"{facts['device']}, {facts['threads']} threads", "latencies": latencies}


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
