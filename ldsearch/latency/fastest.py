"""The full model timed in every installed runtime; the fastest that keeps its answers.

There a sub-network is served, and that time it has to beat.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ldsearch.errors import ExportError, LdsearchError
from ldsearch.latency.clock import Clock, clock_of_models, device_facts
from ldsearch.latency.measure import Cell, forward_run, random_cell
from ldsearch.latency.runtimes import RUNTIMES, Forward, GraphRuntime, candidates, title_of
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import trace
from ldsearch.work.progress import NO_PROGRESS, Progress

AUTO = "auto"
FAR = 4  # times the fastest's time: not timed further, where that would take long


@dataclass(frozen=True)
class FullModel:
    """Times of the full model by runtime.

    Args:
        cells: Batch sizes and lengths.
        milliseconds: Name of a runtime to the median of each cell, the fastest first.
        agreement: To the share of predictions that are the supernet's, of those that were asked.
        least: The least share that will do.
        left_out: To why it could not run.
        facts: Processor, threads and versions.
    """

    cells: tuple[tuple[int, int], ...]
    milliseconds: Mapping[str, tuple[float, ...]]
    agreement: Mapping[str, float]
    least: float
    left_out: Mapping[str, str]
    facts: Mapping[str, Any]

    def fastest(self, *, files: bool = False) -> str:
        """The runtime that is fastest and keeps the answers.

        Args:
            files: Of those alone that serve a file.

        Raises:
            ExportError: If there is none.
        """
        for name in self.milliseconds:
            kept = self.agreement.get(name, 0.0) >= self.least
            if kept and (not files or isinstance(RUNTIMES[name], GraphRuntime)):
                return name
        why = "; ".join(dict.fromkeys(self.left_out.values()))
        which = "no runtime of files" if files else "no runtime"
        raise ExportError(f"{which} keeps this model's answers{why and f': {why}'}")

    def describe(self) -> str:
        """A line for each runtime."""
        cells = [f"batch {batch} of {length} tokens" for batch, length in self.cells]
        lines = [f"what the full model takes here ({self.facts['device']}, {self.facts['threads']} threads):"]
        for name, times in self.milliseconds.items():
            told = ", ".join(f"{ms:.3g} ms at {cell}" for ms, cell in zip(times, cells, strict=True))
            share = self.agreement.get(name)
            kept = "" if share is None else f", {share:.1%} of predictions the same"
            if share is not None and share < self.least:
                kept += f", fewer than {self.least:.0%}: not taken"
            lines.append(f"  {name} ({title_of(name)}): {told}{kept}")
        lines += [f"  {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "FullModel":
        """The inverse of ``to_dict``."""
        cells = tuple((batch, length) for batch, length in fields["cells"])
        times = {name: tuple(own) for name, own in fields["milliseconds"].items()}
        return cls(**{**fields, "cells": cells, "milliseconds": times})

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cells": [list(cell) for cell in self.cells],
            "milliseconds": {name: list(times) for name, times in self.milliseconds.items()},
            "agreement": dict(self.agreement),
            "least": self.least,
            "left_out": dict(self.left_out),
            "facts": dict(self.facts),
        }


def time_full_model(
    supernet: Supernet,
    cells: Sequence[tuple[int, int]],
    agreement: Callable[[Forward], float],
    least: float,
    progress: Progress = NO_PROGRESS,
    asked: str = AUTO,
) -> FullModel:
    """Time the full model in every runtime that ``auto`` tries, all in turn.

    Args:
        supernet: In eval mode, on its device.
        cells: Batch sizes and lengths; runtimes are ordered by the mean of their logarithms.
        agreement: The share of predictions of a forward that are the supernet's. Asked in order of speed,
            until a runtime of files and the fastest of all are known.
        least: The least share that will do.
        progress: A phase "runtimes" with a step after every timed call.
        asked: A runtime that is asked in any case.
    """
    device = supernet.model.device
    forwards: dict[str, Forward] = {}
    left_out = {}
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        for name, runtime in candidates().items():
            try:
                if isinstance(runtime, GraphRuntime):
                    runtime.require()
                    graph = Path(folder) / f"{runtime.multiple}.onnx"  # one for all that read it
                    if not graph.exists():
                        trace(supernet, supernet.full, graph, multiple=runtime.multiple)
                    forwards[name] = runtime.of_graph(graph)
                else:
                    forwards[name] = runtime(supernet, supernet.full)
            except LdsearchError as error:
                left_out[name] = str(error)
        clock = clock_of_models(device)
        left_out |= _drop_slow(forwards, random_cell(supernet, *max(cells, key=math.prod)), clock)
        progress.phase("runtimes", len(cells) * clock.calls(len(forwards)))
        medians = []
        for cell in cells:
            inputs = random_cell(supernet, *cell)
            rounds = clock([forward_run(forward, inputs) for forward in forwards.values()], progress)
            medians.append([1e3 * timing.median for timing in rounds.timings])
        times = np.array(medians)
        order = np.log(times).mean(axis=0).argsort(kind="stable")
        names = [list(forwards)[place] for place in order]
        shares: dict[str, float] = {}
        for name in names:
            shares[name] = agreement(forwards[name])
            if shares[name] >= least and isinstance(RUNTIMES[name], GraphRuntime):
                break
        if asked in forwards and asked not in shares:
            shares[asked] = agreement(forwards[asked])
    milliseconds = {name: tuple(times[:, place].tolist()) for name, place in zip(names, order, strict=True)}
    facts = device_facts(device, supernet.model.dtype)
    libraries = {one.library for one in map(RUNTIMES.get, names) if isinstance(one, GraphRuntime)}
    facts["versions"] |= {name: metadata.version(name) for name in sorted(libraries)}
    return FullModel(tuple(cells), milliseconds, shares, least, left_out, facts)


def _drop_slow(forwards: dict[str, Forward], cell: Cell, clock: Clock) -> dict[str, str]:
    """Take those out that serve no file, are far from the fastest and take long to time; why, by name."""
    once = replace(clock, repeats=1, warmup=1, seconds=0.0)
    timings = once([forward_run(forward, cell) for forward in forwards.values()]).timings
    took = {name: timing.median for name, timing in zip(forwards, timings, strict=True)}
    least = min(took.values(), default=0.0)
    why = {
        name: f"takes about {seconds / least:.0f} times as long as the fastest"
        for name, seconds in took.items()
        if seconds > FAR * least
        and (clock.repeats + clock.warmup) * seconds > clock.seconds
        and not isinstance(RUNTIMES[name], GraphRuntime)
    }
    for name in why:
        del forwards[name]
    return why
