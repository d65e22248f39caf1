"""Times exported folders in turn with the full model they were cut from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ldsearch.errors import ExportError
from ldsearch.export.card import Timed
from ldsearch.export.folder import load_exported
from ldsearch.export.reader import ONNX_FILE
from ldsearch.latency.clock import Clock, Run, Timing, device_facts, synchroniser
from ldsearch.latency.measure import FORWARD, Cell, Probe, forward_run, generate_run, generating, random_cell
from ldsearch.latency.runtimes import RUNTIMES, Forward, in_session
from ldsearch.supernet import Supernet
from ldsearch.supernet.cutting import copy_sharing
from ldsearch.supernet.folder import load_supernet
from ldsearch.supernet.graph import onnx_session

REPEATS, WARMUP = 5, 2
# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 8
# How the full model runs, by the runtime's name.
PATHS = {"eager": "stock sdpa", "own": "its own path", "onnx": "its graph in ONNX Runtime"}


@dataclass(frozen=True)
class TimingJob:
    """Which latencies of exports are measured.

    Args:
        supernet: Folder of the supernet, which holds the full model.
        cells: (rows, tokens of each) of the inputs.
        macs_ratios: MACs of each export over the full model's, at the workload's lengths.
        device: Where torch runs; ONNX Runtime runs on the CPU.
    """

    supernet: str
    cells: Sequence[tuple[int, int]]
    macs_ratios: Sequence[float]
    device: str = "cpu"


def timings(folders: Sequence[Path], job: TimingJob) -> Iterator[list[Timed]]:
    """Time exports, each in turn with the full model: call by call, so that a disturbance meets both.

    Args:
        folders: Of exports, all of one format.
        job: What is measured.
    """
    supernet, _, _ = load_supernet(Path(job.supernet))
    supernet.to(job.device)
    probe = generating(TOKENS) if supernet.head.generates else FORWARD
    cells = [random_cell(supernet, *cell, max(probe.written)) for cell in job.cells]
    full = _full(supernet, (folders[0] / ONNX_FILE).is_file())
    for folder, ratio in zip(folders, job.macs_ratios, strict=True):
        model, forward = _export(folder, supernet)
        yield [
            timed for cell in cells for timed in _timed(supernet, full, (model, forward), cell, probe, ratio)
        ]


def _full(supernet: Supernet, onnx: bool) -> Mapping[str, tuple[Any, Forward]]:
    """The full model by the name of a runtime: a stock model that generates, and its forward."""
    names = ("eager",) if supernet.head.generates else ("eager", "own")
    if onnx:
        try:
            return {"onnx": (None, RUNTIMES["onnx"](supernet, supernet.full))}
        except ExportError:
            pass  # too large for a file of its own: every number names what it is compared with
    model = supernet.materialise(supernet.full)
    return {name: (model, RUNTIMES[name](supernet, supernet.full)) for name in names}


def _export(folder: Path, supernet: Supernet) -> tuple[Any, Forward]:
    if not (folder / ONNX_FILE).is_file():
        model: Any = load_exported(folder)
        torch.nn.Module.to(model, supernet.model.device)
        return model, lambda inputs: model(**inputs)
    return None, in_session(onnx_session(folder / ONNX_FILE, torch.get_num_threads()))


def _timed(
    supernet: Supernet,
    full: Mapping[str, tuple[Any, Forward]],
    export: tuple[Any, Forward],
    cell: Cell,
    probe: Probe,
    macs_ratio: float,
) -> Iterator[Timed]:
    device = supernet.model.device
    clock = Clock(REPEATS, WARMUP, synchronise=synchroniser(device))
    runs = [_runs(model, forward, cell, probe) for model, forward in (*full.values(), export)]
    rounds = clock([run for own in runs for run in own])
    seconds = rounds.seconds.reshape(len(runs), len(probe.written), -1)
    facts = device_facts(device, supernet.model.dtype)
    for phase, weights in probe.phases.items():
        *others, own = (Timing.of(1e3 * np.array(weights) @ each) for each in seconds)
        best = min(zip(others, full, strict=True), key=lambda pair: pair[0].median)
        yield Timed(
            phase=phase,
            batch=cell.batch,
            length=int(cell.length),
            ms=own.median,
            low_ms=own.low,
            high_ms=own.high,
            full_ms=best[0].median,
            full_path=PATHS[best[1]],
            ratio=own.median / best[0].median,
            macs_ratio=macs_ratio,
            repeats=own.repeats,
            noisy=rounds.noise.noisy,
            device=facts["device"],
            threads=facts["threads"],
        )


def _runs(model: Any, forward: Forward, cell: Cell, probe: Probe) -> Sequence[Run]:
    """The probe's runs of a model, or of a forward where it does not generate."""
    if probe is FORWARD:
        return [forward_run(forward, cell)]
    # A model for each run, since a run sets how much is generated; the weights are shared.
    return [generate_run(copy_sharing(model), cell, written) for written in probe.written]
