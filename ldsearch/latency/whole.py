"""Whole models timed in a runtime, which put a latency table's sums on that runtime's scale.

A table adds up stages of the supernet's own path. In another runtime, int8 in ONNX Runtime say, everything is
faster, and what a call costs without any block is another share. Two whole sub-networks timed there give
both, a slope and an intercept. A search needs no more, since it ranks; what it found is timed there before it
is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import LdsearchError
from ldsearch.latency.clock import Clock, Noise
from ldsearch.latency.measure import FORWARD, Entry, measure, random_cell
from ldsearch.latency.table import Key, LatencyTable
from ldsearch.space.blocks import evenly_spaced
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.work.progress import NO_PROGRESS, Progress

# In which the table's sums are milliseconds as they are.
OWN = ("eager", "own")


def whole_models(blocks: int) -> tuple[Subnet, Subnet]:
    """The full model, and every other block of it."""
    return Subnet.full(encoder=blocks), Subnet.of_encoder(evenly_spaced(blocks, max(1, blocks // 2)))


def whole_keys(runtime: str, batch: int, length: int) -> tuple[Key, ...]:
    """Their cells in a table."""
    return tuple((f"{name} in {runtime}", batch, length, length) for name in ("full", "half"))


def time_whole(
    supernet: Supernet,
    table: LatencyTable,
    runtime: str,
    cells: Sequence[tuple[int, int]],
    path: Path,
    clock: Clock,
    progress: Progress = NO_PROGRESS,
) -> tuple[LatencyTable, tuple[Noise, ...]]:
    """Time both models where a table does not know them, and save it after each cell.

    Args:
        supernet: In eval mode, of an encoder.
        table: Of its stages.
        runtime: Name of a runtime.
        cells: Batch sizes and lengths.
        path: The table's file.
        clock: How.
        progress: A phase "whole models" with a step after every timed call.

    Raises:
        LdsearchError: If the runtime cannot run the model.
    """
    missing = [cell for cell in cells if any(key not in table.cells for key in whole_keys(runtime, *cell))]
    progress.phase("whole models", len(missing) * clock.calls(2))
    noises = []
    for batch, length in missing:
        entries = [Entry(subnet, runtime) for subnet in whole_models(supernet.blocks)]
        lines, noise = measure(
            supernet, entries, random_cell(supernet, batch, length), FORWARD, clock, progress
        )
        found = {
            key: (line.median_ms, line.low_ms, line.high_ms, line.repeats)
            for key, line in zip(whole_keys(runtime, batch, length), lines, strict=True)
        }
        table = replace(table, cells={**table.cells, **found})
        table.save(path)
        noises.append(noise)
    return table, tuple(noises)


@dataclass(frozen=True)
class PredictedLatency:
    """Predicted latency as a cost (``ldsearch.costs.macs.Cost``).

    Args:
        table: The device's.
        batch: Inputs at once.
        length: Tokens of each.
        runtime: Where the sub-networks run.
    """

    table: LatencyTable
    batch: int
    length: int
    runtime: str = OWN[0]
    name: str = field(default="latency", init=False)

    def __call__(self, subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        """Milliseconds of a batch, shape (subnets,).

        Raises:
            LdsearchError: If the table does not know the batch, the length or the runtime.
        """
        added = self.table.predict(subnets, self.batch, self.length)
        if self.runtime in OWN:
            return added
        keys = whole_keys(self.runtime, self.batch, self.length)
        if any(key not in self.table.cells for key in keys):
            raise LdsearchError(
                f"the latency table has no times of whole models in {self.runtime} at batch {self.batch}, "
                f"length {self.length}"
            )
        whole = whole_models(self.table.facts["blocks"])
        full, half = self.table.predict(whole, self.batch, self.length)
        full_ms, half_ms = (self.table.cells[key][0] for key in keys)
        slope = (full_ms - half_ms) / (full - half)
        # Noise may turn the line around or let it start below nothing: then one factor.
        if slope <= 0 or full_ms - slope * full < 0:
            return np.asarray(added * (full_ms / full))
        return np.asarray(full_ms + slope * (added - full))
