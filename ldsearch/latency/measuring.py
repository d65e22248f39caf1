"""Times sub-networks beside the full model on one cell of a workload, and compares time with MACs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ldsearch.latency.clock import Clock, Noise, Timing
from ldsearch.latency.inputs import Cell
from ldsearch.latency.memory import peak_activation_bytes
from ldsearch.latency.probes import Probe, runs_of
from ldsearch.latency.runtimes import RUNTIMES, runtime_named
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet

# MACs that fell by more than a tenth should be seen in time: 0.97 is the smallest gain that is one.
FEWER_MACS = 0.9
FASTER = 0.97


@dataclass(frozen=True)
class Entry:
    """A sub-network in a runtime."""

    subnet: Subnet
    runtime: str


@dataclass(frozen=True)
class Line:
    """One phase of an entry on a cell.

    Args:
        entry: What ran.
        phase: ``forward``, ``prefill`` or ``per token``.
        timing: Seconds of a batch.
        macs: Per example.
        macs_ratio: ``macs`` over the full model's.
        ratio: Median over that of the full model, the faster of the supernet's own path and stock sdpa.
        runtime_ratio: Median over the full model's in the same runtime.
        peak: The most bytes that a call allocates; None where that is not measured.
    """

    entry: Entry
    phase: str
    timing: Timing
    macs: float
    macs_ratio: float
    ratio: float
    runtime_ratio: float
    peak: int | None

    @property
    def not_faster(self) -> bool:
        """Whether MACs fell by more than 10% and latency did not, in its own runtime or beside the best."""
        return self.macs_ratio < FEWER_MACS and max(self.ratio, self.runtime_ratio) > FASTER


def entries_of(supernet: Supernet, subnets: Sequence[Subnet], runtime: str) -> list[Entry]:
    """The full model's first, in every runtime that latency is compared with, then the sub-networks'.

    Raises:
        LdsearchError: If there is no such runtime.
    """
    runtime_named(runtime)
    beside = ("eager",) if supernet.head.generates else ("eager", "own")
    full = [Entry(supernet.full, name) for name in (*beside, runtime)]
    return list(dict.fromkeys([*full, *(Entry(subnet, runtime) for subnet in subnets)]))


def measure(
    supernet: Supernet,
    entries: Sequence[Entry],
    cell: Cell,
    probe: Probe,
    clock: Clock,
    on_call: Callable[[], None] = lambda: None,
) -> tuple[list[Line], Noise]:
    """Time every entry on a cell, in turn.

    Args:
        supernet: In eval mode, on its device.
        entries: Of ``entries_of``.
        cell: The inputs.
        probe: What is timed of each.
        clock: How.
        on_call: After every call.

    Raises:
        LdsearchError: If a runtime cannot run a sub-network.
    """
    runs = [runs_of(probe, RUNTIMES[entry.runtime], supernet, entry.subnet, cell) for entry in entries]
    rounds = clock([run for own in runs for run in own], on_call)
    seconds = rounds.seconds.reshape(len(entries), len(probe.written), -1) / len(cell.batches)
    workloads = [cell.workload(written, causal=supernet.head.causal) for written in probe.written]
    macs = np.stack([supernet.macs(each)([entry.subnet for entry in entries]) for each in workloads])
    peaks = [peak_activation_bytes(own[0], supernet.model.device) for own in runs]
    lines = []
    for phase, weights in probe.phases.items():
        timings = [Timing.of(np.array(weights) @ own) for own in seconds]
        counts = np.array(weights) @ macs
        full = {
            entry.runtime: timing.median
            for entry, timing in zip(entries, timings, strict=True)
            if entry.subnet == supernet.full
        }
        best = min(full[name] for name in ("eager", "own") if name in full)
        lines += [
            Line(
                entry=entry,
                phase=phase,
                timing=timing,
                macs=float(count),
                macs_ratio=float(count / counts[0]),
                ratio=timing.median / best,
                runtime_ratio=timing.median / full[entry.runtime],
                peak=peak,
            )
            for entry, timing, count, peak in zip(entries, timings, counts, peaks, strict=True)
        ]
    return lines, rounds.noise
