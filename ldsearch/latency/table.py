"""Latency as a cost: a table of stages timed once per device, added up, linear between measured lengths.

Cells are (stage, batch, entering length, leaving length). Where as many tokens leave as enter, a block runs
the stock layer; where fewer do, it computes the scores too: two functions, interpolated apart. The second is
measured where a length of the grid enters and one less than a length of the grid leaves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ldsearch.costs.macs import EncoderShape
from ldsearch.disk.files import write_atomic
from ldsearch.errors import LdsearchError, RunError, SubnetError, SupernetError, of_system
from ldsearch.latency.clock import Clock, Noise, Run
from ldsearch.latency.measure import random_tokens
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.stages import embedded, kept_of_rows, run_stages
from ldsearch.supernet.tokens import State, put_back
from ldsearch.work.progress import NO_PROGRESS, Progress

Key = tuple[str, int, int, int]
COLUMNS = ("stage", "batch", "enter", "leave", "milliseconds", "low", "high", "repeats")
VERSION = 2  # of the file: which cells, timed behind which
SHORTEST = 2
_STEPS = 8
_DEFAULTS = {known.name: known.default for known in fields(EncoderShape) if known.default is not MISSING}


def length_grid(lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths to measure at: those named, the eighths of the longest, and the shortest, 2.

    Raises:
        LdsearchError: If the longest is no longer than the shortest.
    """
    longest = max(lengths)
    if min(lengths) < SHORTEST or longest == SHORTEST:
        raise LdsearchError(f"a latency table needs lengths above {SHORTEST} tokens, not {min(lengths)}")
    eighths = (round(longest * step / _STEPS) for step in range(1, _STEPS))
    return tuple(sorted({SHORTEST, *lengths, *(length for length in eighths if length > SHORTEST)}))


def block_stage(block: int) -> str:
    """Name of a block's stage."""
    return f"block {block}"


@dataclass(frozen=True)
class LatencyTable:
    """Milliseconds of the stages of one model on one device.

    Args:
        facts: The file's header: ``version``, ``device``, ``threads``, ``dtype``, ``versions``, ``model``
            (its dimensions), ``lengths`` (the grid), ``blocks`` and whether the model ``restores`` what it
            dropped.
        cells: (stage, batch, enter, leave) to median, quartiles and repeats, as in ``COLUMNS``.
    """

    facts: Mapping[str, Any]
    cells: Mapping[Key, tuple[float, float, float, int]] = field(default_factory=dict)

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """The measured lengths, ascending."""
        return np.array(self.facts["lengths"], dtype=np.float64)

    def wanted(self, batch: int) -> Iterator[list[Key]]:
        """Every cell of a batch size, in groups that are timed in turn.

        A group is an entering length, its stages behind one another as in a forward: a stage timed again and
        again finds its weights in the cache and its memory with the allocator, and is too fast.
        """
        blocks = [block_stage(block) for block in range(self.facts["blocks"])]
        grid = [int(n) for n in self.grid]
        for n in grid:
            dropping = [k - 1 for k in grid if k <= n]
            group = [(block, batch, n, leave) for leave in (n, *dropping) for block in blocks]
            group += [("embed", batch, n, n), ("head", batch, n, n)]
            group += [("restore", batch, n, leave) for leave in dropping if self.facts["restores"]]
            yield group

    def finished(self, batch: int) -> bool:
        """Whether every cell of a batch size is measured."""
        return all(key in self.cells for group in self.wanted(batch) for key in group)

    def save(self, path: Path) -> None:
        """Atomic CSV below one line of JSON, the facts."""
        rows = [(*key, *values) for key, values in self.cells.items()]
        csv = pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(index=False, float_format="%.6g")
        write_atomic(path, f"# {json.dumps(self.facts)}\n{csv}")

    @classmethod
    def load(cls, path: Path) -> "LatencyTable":
        """Read what ``save`` wrote, here or on another device.

        Raises:
            RunError: If it is missing or no such table.
        """
        try:
            header, _, csv = path.read_text(encoding="utf-8").partition("\n")
            facts, table = json.loads(header.removeprefix("# ")), pd.read_csv(StringIO(csv))
            rows = table[list(COLUMNS)].itertuples(index=False, name=None)
            cells = {
                (str(stage), int(batch), int(enter), int(leave)): (float(a), float(b), float(c), int(repeats))
                for stage, batch, enter, leave, a, b, c, repeats in rows
            }
            _ = facts["lengths"], facts["blocks"], facts["restores"], {**facts["model"]}
            version = facts.get("version")
        except OSError as error:
            raise of_system(f"cannot read {path}", error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is no latency table of 'ldsearch profile --table'") from error
        if version != VERSION:
            raise RunError(
                f"{path} is a latency table of another version of ldsearch: remove it and measure again, by "
                f"ldsearch profile SUPERNET --table {path}"
            )
        return cls(facts, cells)

    def require(self, facts: Mapping[str, Any]) -> None:
        """Refuse the table where these facts are not its own.

        Args:
            facts: All of a table's to go on measuring; ``model`` alone to predict, also for another device.

        Raises:
            RunError: Naming what differs.
        """
        expected, own = _named(json.loads(json.dumps(dict(facts)))), _named(self.facts)  # as it reads back
        if different := [name for name, value in expected.items() if own.get(name) != value]:
            sizes = [name.removeprefix("model.") for name in different if name.startswith("model.")]
            others = [name for name in different if not name.startswith("model.")]
            named = [*([f"model ({', '.join(sizes)})"] if sizes else []), *others]
            raise RunError(
                f"the latency table is of another {', '.join(named)}: choose another file, measured by "
                "ldsearch profile SUPERNET --table FILE"
            )

    def predict(self, subnets: Sequence[Subnet], batch: int, length: int) -> NDArray[np.float64]:
        """Milliseconds of a batch of unpadded inputs, shape (subnets,).

        Args:
            subnets: Of an encoder: whole blocks, with or without lengths.
            batch: One that was measured.
            length: Tokens of each input, no more than the longest measured.

        Raises:
            LdsearchError: If the table does not know batch or length.
            SubnetError: If a sub-network is no encoder's, or parts of its blocks are off.
        """
        if not self.finished(batch):
            raise LdsearchError(f"the latency table has no batch {batch}, or not all of it: measure it first")
        if not 1 <= length <= self.grid[-1]:
            raise LdsearchError(f"the latency table ends at {self.grid[-1]:.0f} tokens, before {length}")
        milliseconds = np.zeros(len(subnets))
        visits: dict[str, list[tuple[int, int, int]]] = {}
        for index, subnet in enumerate(subnets):
            for stage, enter, leave in self._visits(subnet, length):
                visits.setdefault(stage, []).append((index, enter, leave))
        for stage, rows in visits.items():
            owners, enters, leaves = np.array(rows).T
            np.add.at(milliseconds, owners, self._times(stage, batch, enters, leaves))
        return milliseconds

    def _visits(self, subnet: Subnet, length: int) -> list[tuple[str, int, int]]:
        """Stage, entering and leaving length of everything that runs, in order."""
        stack = subnet.encoder
        if stack is None or subnet.decoder is not None or stack.structured:
            raise SubnetError("a latency table predicts encoders of whole blocks, with or without lengths")
        if stack.blocks and stack.blocks[-1] >= self.facts["blocks"]:
            raise SubnetError(
                f"block {stack.blocks[-1]} of a model of {self.facts['blocks']} blocks (0-based)"
            )
        visits = [("embed", length, length)]

        def run(block: int, enter: int, keep: tuple[int, ...] | None) -> int:
            leave = enter if keep is None else keep[0]
            visits.append((block_stage(block), enter, leave))
            return leave

        def restore(whole: int, tokens: int) -> int:
            visits.append(("restore", whole, tokens))
            return whole

        keeps = kept_of_rows(stack, [length])
        restores = self.facts["restores"]
        left = run_stages(stack.blocks, keeps, length, run, restore=restore if restores else None)
        return [*visits, ("head", left, left)]

    def _times(
        self, stage: str, batch: int, enters: NDArray[np.int64], leaves: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Shape of ``enters``. An input of one token takes as long as one of two."""
        times = np.zeros(len(enters))
        drops = leaves < enters
        if not drops.all():
            points = [self.cells[stage, batch, int(n), int(n)][0] for n in self.grid]
            times[~drops] = np.interp(enters[~drops], self.grid, points)
        if drops.any():
            surface = np.full((len(self.grid), len(self.grid)), np.nan)
            for i, n in enumerate(self.grid):
                for j, k in enumerate(self.grid[: i + 1]):
                    surface[i, j] = self.cells[stage, batch, int(n), int(k) - 1][0]
            times[drops] = on_triangles(self.grid, surface, enters[drops], leaves[drops] + 1)
        return times


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A table's facts, its model's one by one; what an older file lacks is as it is by default."""
    model = {**_DEFAULTS, **facts["model"]}
    model["attention"] = model["attention"] or model.get("hidden")
    others = {name: value for name, value in facts.items() if name != "model"}
    return {**others, **{f"model.{name}": value for name, value in model.items()}}


def on_triangles(
    grid: NDArray[np.float64],
    values: NDArray[np.float64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Linear interpolation in two lengths; each square of the grid is cut along its rising diagonal.

    Args:
        grid: Shape (g,), ascending.
        values: Shape (g, g), of (first, second); those with second above first are never read.
        first: Within the grid, shape (points,).
        second: At most ``first``, shape (points,).
    """
    i, u = _place(grid, first)
    j, v = _place(grid, second)
    # The corner beside the diagonal on the point's side of it.
    below = v <= u
    corner = np.where(below, values[i + 1, j], values[i, np.minimum(j + 1, len(grid) - 1)])
    steps = np.where(below, u, v), np.where(below, v, u)
    start = values[i, j]
    return np.asarray(start + steps[0] * (corner - start) + steps[1] * (values[i + 1, j + 1] - corner))


def _place(grid: NDArray[np.float64], at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The interval of the grid, and how far into it, from 0 to 1."""
    index = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 2)
    return index, (at - grid[index]) / (grid[index + 1] - grid[index])


class SupernetStages:
    """The stages of a supernet's own path.

    Args:
        supernet: Of a registered family of encoders.

    Raises:
        SupernetError: If it cannot be timed block by block.
    """

    def __init__(self, supernet: Supernet) -> None:
        if supernet.pipeline is None or len(supernet.stacks) > 1:
            why = supernet.why_depth_only or "it has two stacks"
            raise SupernetError(f"only registered encoders are tabled block by block: {why}")
        self.supernet, self.pipeline = supernet, supernet.pipeline
        how = supernet.pipeline.family, supernet.model
        self._first = partial(embedded, *how, corrects=supernet.pipeline.corrects)
        # The state of the latest group alone: as many as there are cells would not fit in memory.
        self._embedded = lru_cache(maxsize=1)(self._embed)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The dimensions that time depends on; not the weights."""
        supernet = self.supernet
        named = {"type": supernet.model.config.model_type, "head": supernet.head.name}
        sizes = asdict(supernet.shape)
        del sizes["correcting"]  # once a text: no time that could be told
        return {
            "model": {**named, "score": supernet.score, **sizes},
            "blocks": supernet.blocks,
            "restores": self.pipeline.restores,
        }

    def run(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        """One stage on random unpadded inputs, ``leave`` of ``enter`` tokens leaving it; no gradients."""
        pipeline, state = self.pipeline, self._embedded(batch, enter)
        if stage == "embed":
            ids = random_tokens(self.supernet, batch, enter)
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            timed: Run = partial(self._first, inputs)
        elif stage == "head":
            timed = partial(pipeline.head, state, state.real)
        elif stage == "restore":
            left = self._embed(batch, leave)

            def timed() -> object:
                return put_back(pipeline.blocks[0].left_behind(state).hidden, left)

        else:
            named = {block_stage(index): block for index, block in enumerate(pipeline.blocks)}
            named[stage].layer.eval()
            timed = partial(named[stage], state, None if leave == enter else (leave,) * batch)
        return torch.inference_mode()(timed)

    def _embed(self, batch: int, length: int) -> State:
        """A state as a block leaves it that dropped tokens."""
        ids = random_tokens(self.supernet, batch, length)
        with torch.inference_mode():
            state = self._first({"input_ids": ids})
        positions = torch.arange(length, device=ids.device).expand(batch, -1)
        return replace(state, positions=positions, padded=False)


def build_table(
    stages: SupernetStages,
    device: Mapping[str, Any],
    lengths: Sequence[int],
    batches: Sequence[int],
    path: Path,
    clock: Clock,
    progress: Progress = NO_PROGRESS,
) -> tuple[LatencyTable, tuple[Noise, ...]]:
    """Measure what a table lacks of these batch sizes; every group of cells is written when it is known.

    Args:
        stages: What is timed.
        device: ``device_facts``.
        lengths: The grid (``length_grid``).
        batches: Batch sizes; others that the file has stay.
        path: The table's file, maybe of an earlier call.
        clock: How.
        progress: A phase "stages" with a step after every timed call.

    Returns:
        The table, and the noise of each group that was measured now.

    Raises:
        RunError: If the file is of another device, model or grid.
    """
    facts = {"version": VERSION, **device, **stages.facts, "lengths": list(lengths)}
    table = LatencyTable(facts)
    if path.exists():
        table = LatencyTable.load(path)
        table.require(facts)
    groups = [group for batch in batches for group in table.wanted(batch)]
    missing = [group for group in groups if not all(key in table.cells for key in group)]
    progress.phase("stages", sum(clock.calls(len(group)) for group in missing))
    noises = []
    for group in missing:
        rounds = clock([stages.run(*key) for key in group], progress)
        noises.append(rounds.noise)
        measured = {
            key: (1e3 * timing.median, 1e3 * timing.low, 1e3 * timing.high, timing.repeats)
            for key, timing in zip(group, rounds.timings, strict=True)
        }
        table = replace(table, cells={**table.cells, **measured})
        table.save(path)
    return table, tuple(noises)


def table_beside(home: Path) -> Path:
    """Default path of a supernet's latency table."""
    return home.parent / f"{home.name}-latency.csv"
