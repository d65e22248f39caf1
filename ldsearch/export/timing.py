"""Times exported folders in turn with the full model they were cut from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from ldsearch.export.loading import OnnxModel, load_exported, open_exported
from ldsearch.latency.clock import Run, clock_of_models, device_facts
from ldsearch.latency.int8 import int8_instructions
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
from ldsearch.latency.runtimes import RUNTIMES, graph_runtime, in_session
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.cutting import copy_sharing
from ldsearch.supernet.folder import RECORD, load_supernet
from ldsearch.supernet.graph import KEEP

# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 8


@dataclass(frozen=True)
class TimingJob:
    """The latencies of exports that are measured.

    Args:
        supernet: Folder of the supernet.
        subnets: The sub-network of each export, as JSON.
        cells: (rows, tokens of each) of the inputs.
        runtimes: What runs each export's graph; empty: a Hugging Face folder.
        rival: The runtime in which the full model is fastest; empty: not known.
        device: Where torch runs; graphs run on the CPU.
        whole: Folder of the full model; empty: the supernet's.
    """

    supernet: str
    subnets: Sequence[str]
    cells: Sequence[tuple[int, int]]
    runtimes: Sequence[str]
    rival: str = ""
    device: str = "cpu"
    whole: str = ""


def timings(folders: Sequence[Path], job: TimingJob, keeps: Sequence[Sequence[int]] = ()) -> dict[str, Any]:
    """Time exports, each in turn with the full model: call by call, so that a disturbance meets both.

    The rows of one elastic graph take turns with each other too.

    The full model runs in the export's runtime and where it is fastest; of a Hugging Face folder in stock
    classes and by its own path.

    Args:
        folders: Of exports.
        job: What is measured.
        keeps: The lengths that each elastic graph is fed, as of ``Written``; none: all run their own.

    Returns:
        ``machine`` in words, and ``latencies``: for each export, fields of ``MeasuredLatency``.
    """
    supernet = _opened(Path(job.supernet)).to(job.device).eval()
    whole = _opened(Path(job.whole)).to(job.device).eval() if job.whole else supernet
    device = supernet.model.device
    clock = clock_of_models(device)
    probe = generating(TOKENS) if supernet.head.generates else FORWARD
    cells = [random_cell(supernet, *cell, max(probe.written)) for cell in job.cells]
    full: dict[Entry, Any] = {}
    latencies: list[list[dict[str, Any]]] = []
    exports = zip(folders, job.subnets, job.runtimes, keeps or [()] * len(folders), strict=True)
    for (folder, runtime), group in groupby(exports, key=lambda one: (one[0], one[2])):
        wanted = [Entry(supernet.full, name) for name in dict.fromkeys([job.rival, runtime]) if name]
        wanted = wanted if runtime else entries_of(supernet, [], "eager", job.rival or None)
        full |= {entry: _full(whole, entry) for entry in wanted if entry not in full}
        model = _exported(folder, supernet)
        own = {
            Entry(Subnet.from_json(text), runtime or "eager", exported=True): _fed(model, keep)
            for _, text, _, keep in group
        }
        models = {**{entry: full[entry] for entry in wanted}, **own}
        of_group: dict[Entry, list[dict[str, Any]]] = {entry: [] for entry in own}
        for cell in cells:
            lines, _ = measure(
                supernet, list(models), cell, probe, clock, runs=partial(_runs, models, cell, probe)
            )
            for line, entry in zip(lines, list(models) * len(probe.phases), strict=True):
                if entry.exported and whole.full != supernet.full:
                    (macs,) = whole.macs(cell.workload(0, causal=False))([whole.full])
                    line = replace(line, macs_ratio=line.macs / float(macs))
                if entry.exported:
                    of_group[entry].append(line.to_dict())
        latencies += of_group.values()
    facts = device_facts(device, supernet.model.dtype)
    machine = f"{facts['device']}, {facts['threads']} threads"
    if any(graph_runtime(name).quantised for name in job.runtimes if name):
        known = int8_instructions()
        machine += f", int8 by {', '.join(known) or 'no instruction of its own'}" if known is not None else ""
    return {"machine": machine, "latencies": latencies}


def _opened(folder: Path) -> Supernet:
    """A supernet, or a model without a record as one."""
    return load_supernet(folder)[0] if (folder / RECORD).is_file() else open_exported(folder)[0]


def _full(supernet: Supernet, entry: Entry) -> Any:
    """The full model: one that generates, or a forward."""
    if supernet.head.generates:
        return supernet.materialise(supernet.full)
    return RUNTIMES[entry.runtime](supernet, supernet.full)


def _exported(folder: Path, supernet: Supernet) -> Any:
    """An export's model where it generates, else its forward."""
    model: Any = load_exported(folder)
    if isinstance(model, OnnxModel):
        return in_session(model.session)
    torch.nn.Module.to(model, supernet.model.device)
    return model if supernet.head.generates else lambda inputs: model(**inputs)


def _fed(model: Any, keep: Sequence[int]) -> Any:
    """A model, or a graph that is fed these lengths."""
    if not keep:
        return model
    lengths = torch.tensor([keep])
    return lambda inputs: model({**inputs, KEEP: lengths})


def _runs(models: Mapping[Entry, Any], cell: Cell, probe: Probe, entry: Entry) -> list[Run]:
    """The probe's runs of a model that generates, or of a forward."""
    if probe is FORWARD:
        return [forward_run(models[entry], cell)]
    # A model for each run, since a run sets how much is generated; the weights are shared.
    return [generate_run(copy_sharing(models[entry]), cell, written) for written in probe.written]
