"""Measures latency and memory of sub-networks beside the full model."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ldsearch.bench import Bench
from ldsearch.commands.console import print_notes, progress_bars, quiet_libraries, resumable
from ldsearch.commands.options import Profile
from ldsearch.errors import LdsearchError, RunError
from ldsearch.files import write_json
from ldsearch.latency.clock import Clock, Noise, crowding, device_facts, load_average, synchroniser, threads
from ldsearch.latency.measure import (
    FORWARD,
    Cell,
    Entry,
    Line,
    Memory,
    Probe,
    data_cell,
    entries_of,
    generating,
    measure,
    memory_of,
    random_cell,
)
from ldsearch.latency.table import LatencyTable, Predictor, SupernetStages, build_table, length_grid
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.reports.figures import save_figure
from ldsearch.reports.latency import (
    FEWEST_POINTS,
    LATENCY_COLUMNS,
    correlations,
    draw_latency,
    prediction_errors,
)
from ldsearch.reports.tables import write_csv
from ldsearch.runs import RUN_FILE, Run, claim
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_supernet, read_record
from ldsearch.target import Target

CSV_FILE = "latency.csv"
JSON_FILE = "latency.json"
FIGURE_FILE = "latency.png"
# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 32


def main(options: Profile) -> dict[str, Any]:
    """Time, and print medians, ratios and memory."""
    quiet_libraries()
    if options.table is not None:
        if options.subnet is not None or options.frontier or options.name is not None:
            raise LdsearchError("--table goes with none of --subnet, --frontier and --name")
        return _fill_table(options, options.table)
    output = None
    if options.name is not None or not (options.folder / RUN_FILE).is_file():
        output = options.runs / (options.name or f"{options.folder.resolve().name}-profile")
    with resumable("nothing was written; a latency is of one sitting"), progress_bars("timing") as bars:
        result = profile(options, output=output, progress=bars)
    _print(result)
    return {"run": str(result.folder), "rows": result.table.to_dict("records")}


def _fill_table(options: Profile, path: Path) -> dict[str, Any]:
    with resumable("run the same command again; nothing measured is lost"), progress_bars("stages") as bars:
        table, noises = tabulate(options, path, bars)
    noisy = sum(noise.noisy for noise in noises)
    facts = table.facts
    print(f"{facts['device']}, {facts['threads']} threads, {facts['dtype']}")
    print(f"lengths {' '.join(map(str, facts['lengths']))}; {len(table.cells)} cells in all")
    print(f"groups of cells measured now: {len(noises)}, {noisy} of them on a noisy machine")
    print(f"written: {path}")
    return {"table": str(path), "cells": len(table.cells), "noisy": noisy}


@dataclass(frozen=True)
class ProfileResult:
    """Latencies that were measured.

    Args:
        folder: Where the reports lie.
        table: Columns of ``LATENCY_COLUMNS``; the full model's rows first in each cell.
        facts: Device, threads, precision, versions.
        noise: Of each cell, by its name.
        crowding: That others computed too, in words; empty where they did not.
        drawn: Whether there were points enough for the figure.
        untabled: Why the latency table beside the supernet predicts nothing, in words; mostly empty.
    """

    folder: Path
    table: pd.DataFrame
    facts: dict[str, Any]
    noise: dict[str, Noise]
    crowding: str
    drawn: bool
    untabled: str


def subnets_of(folder: Path, subnet: str | None, frontier: bool) -> tuple[Path, list[Subnet]]:
    """The supernet's folder and what to measure of it: one sub-network, or a run's frontier.

    Raises:
        LdsearchError: If the folder is no run or supernet, names none, or has no frontier.
    """
    if not frontier:
        target = Target.resolve(folder, subnet)
        return target.supernet, [target.subnet]
    if subnet is not None:
        raise LdsearchError("--subnet and --frontier exclude each other")
    run = Run.open(folder)
    return run.supernet, run.subnets


def profile(
    options: Profile,
    *,
    output: str | Path | None = None,
    progress: Progress = NO_PROGRESS,
) -> ProfileResult:
    """Time sub-networks beside the full model and write ``latency.csv``, ``latency.json`` and a figure.

    Args:
        options: See ``Profile``.
        output: Where to write; None: into the run's folder, ``<supernet>-profile`` beside a supernet's.
        progress: A step after every timed call.

    Raises:
        LdsearchError: One line for a bad folder, sub-network, option, or an output that holds another run.
    """
    load = load_average()
    folder = options.folder
    home, subnets = subnets_of(folder, options.subnet, options.frontier)
    supernet = load_resting(home)
    entries = entries_of(supernet, subnets, options.runtime)
    for own in subnets:
        supernet.check(own)
    probe = generating(TOKENS) if supernet.head.generates else FORWARD
    clock = Clock(options.repeats, synchronise=synchroniser(supernet.model.device))
    rows: list[dict[str, Any]] = []
    predicted: list[float] = []
    noise: dict[str, Noise] = {}
    with threads(options.threads):
        facts = device_facts(supernet.model.device, supernet.model.dtype)
        predictor = Predictor.beside(home, supernet, facts)
        cells = _cells(home, supernet, options, probe)
        place = _claimed(folder, home, output, entries, options)
        memories = {entry.subnet: memory_of(supernet, entry.subnet) for entry in entries}
        progress.phase("timing", len(cells) * clock.calls(len(entries) * len(probe.written)))
        for cell in cells:
            lines, heard = measure(supernet, entries, cell, probe, clock, progress)
            noise[f"batch {cell.batch}, length {cell.length}"] = heard
            rows += [latency_row(line, cell, heard, memories[line.entry.subnet]) for line in lines]
            predicted += [predictor(line.entry, cell) for line in lines]
    table = pd.DataFrame(rows, columns=list(LATENCY_COLUMNS)).assign(predicted_ms=predicted)
    drawn = options.frontier and len(subnets) >= FEWEST_POINTS
    _write(place, home, table, {**facts, "load_average": load}, noise, options, drawn)
    crowd = crowding(load, os.cpu_count() or 1, facts["threads"])
    return ProfileResult(place, table, facts, noise, crowd, drawn, predictor.why_not)


def load_resting(home: Path) -> Supernet:
    """A supernet in eval mode, on the accelerator where there is one."""
    supernet, _, _ = load_supernet(home)
    if torch.accelerator.is_available():
        supernet.to(torch.accelerator.current_accelerator())
    return supernet.eval()


def trained_length(home: Path) -> int:
    """Tokens of the inputs a supernet was trained on."""
    return read_record(home).reference


def _cells(home: Path, supernet: Supernet, options: Profile, probe: Probe) -> list[Cell]:
    written = max(probe.written)
    cells = []
    for length in options.length or (trained_length(home),):
        if isinstance(length, int):
            cells += [random_cell(supernet, batch, length, written) for batch in options.batch]
            continue
        bench = Bench.open(home, data=options.data)
        collate = bench.task.collate(bench.tokenizer, None)
        rows = [dict(feature) for feature in bench.evaluator.encoded]
        cells += [data_cell(supernet, rows, collate, batch) for batch in options.batch]
    return cells


def _claimed(
    folder: Path, home: Path, output: str | Path | None, entries: Sequence[Entry], options: Profile
) -> Path:
    """A run's own folder, or one that is a profile's."""
    if output is None and (folder / RUN_FILE).is_file():
        return folder
    place = Path(output) if output is not None else home.parent / f"{home.name}-profile"
    subnets = [[entry.subnet.to_json(), entry.runtime] for entry in entries]
    claim(place, JSON_FILE, {"supernet": home.name, **_measured_as(options), "subnets": subnets})
    return place


def _measured_as(options: Profile) -> dict[str, Any]:
    names = ("runtime", "batch", "length", "repeats", "threads", "data")
    return {name: getattr(options, name) for name in names}


def latency_row(line: Line, cell: Cell, noise: Noise, memory: Memory) -> dict[str, Any]:
    """A row of ``LATENCY_COLUMNS``."""
    timing = line.timing
    return {
        "subnet": line.entry.subnet.to_json(),
        "runtime": line.entry.runtime,
        "phase": line.phase,
        "batch": cell.batch,
        "length": cell.length,
        "median_ms": 1e3 * timing.median,
        "low_ms": 1e3 * timing.low,
        "high_ms": 1e3 * timing.high,
        "p95_ms": 1e3 * timing.p95,
        "repeats": timing.repeats,
        "ratio": line.ratio,
        "runtime_ratio": line.runtime_ratio,
        "macs": line.macs,
        "macs_ratio": line.macs_ratio,
        "not_faster": line.not_faster,
        "noisy": noise.noisy,
        **asdict(memory),
        "peak_activation_bytes": line.peak,
    }


def _write(
    place: Path,
    home: Path,
    table: pd.DataFrame,
    facts: dict[str, Any],
    noise: dict[str, Noise],
    options: Profile,
    drawn: bool,
) -> None:
    path = place / JSON_FILE
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    identity = {"identity": held["identity"]} if "identity" in held else {}
    heard = {name: {**asdict(own), "noisy": own.noisy} for name, own in noise.items()}
    try:
        write_csv(table, place / CSV_FILE)
        if drawn:
            own = table[table["runtime"] == options.runtime]
            save_figure(draw_latency(own, f"{home.name}, {options.runtime}"), place / FIGURE_FILE)
        write_json(path, {**identity, **facts, "options": _measured_as(options), "noise": heard})
    except OSError as error:
        raise RunError(f"cannot write to {place}: {error.strerror or error}") from error


def tabulate(
    options: Profile, path: Path, progress: Progress = NO_PROGRESS
) -> tuple[LatencyTable, tuple[Noise, ...]]:
    """Measure what a latency table lacks; the same call goes on after an interruption.

    Args:
        options: The folder is a supernet, or a run of one; batch sizes, lengths, repeats and threads.
        path: The table's file.
        progress: A step after every timed call.

    Returns:
        The table, and the noise of each group measured now.

    Raises:
        LdsearchError: If the model cannot be tabled, or the file is another's.
    """
    folder = options.folder
    if options.runtime != "eager":
        raise LdsearchError("--table times the supernet's own stages: it takes no --runtime")
    numbers = [length for length in options.length if isinstance(length, int)]
    if len(numbers) < len(options.length):
        raise LdsearchError("--table needs lengths in tokens: --length data is none")
    home = folder if not (folder / RUN_FILE).is_file() else Target.resolve(folder).supernet
    supernet = load_resting(home)
    lengths = length_grid(numbers or [trained_length(home)])
    stages = SupernetStages(supernet)
    if lengths[-1] > supernet.longest:
        raise LdsearchError(f"the model has {supernet.longest} positions, too few for {lengths[-1]} tokens")
    clock = Clock(options.repeats, synchronise=synchroniser(supernet.model.device))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with threads(options.threads):
            device = device_facts(supernet.model.device, supernet.model.dtype)
            return build_table(stages, device, lengths, options.batch, path, clock, progress)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


_CACHES = (
    ("cache_bytes_per_token", "key-value cache {:,.0f} bytes per token"),
    ("cache_bytes_per_source_token", "{:,.0f} bytes per source token"),
)


def _print(result: ProfileResult) -> None:
    facts, rows = result.facts, result.table
    names = _names(result)
    phases = rows["phase"].nunique() > 1
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    # What has phases has one runtime.
    distinct = "phase" if phases else "runtime"
    for heading in ("inputs", "sub-net", distinct, "ms", "quartiles", "p95", "ratio", "MACs", ""):
        table.add_column(heading, overflow="fold")
    for row in rows.to_dict("records"):
        cells = [f"{row['batch']} x {row['length']}", names[row["subnet"]]]
        cells += [row[distinct], f"{row['median_ms']:.4g}", f"{row['low_ms']:.4g}-{row['high_ms']:.4g}"]
        cells += [f"{row['p95_ms']:.4g}", f"{row['ratio']:.3f}", f"{row['macs_ratio']:.3f}"]
        table.add_row(*cells, "not faster" if row["not_faster"] else "")
    print(f"{facts['device']}, {facts['threads']} threads, {facts['dtype']}; inputs: batch x length")
    Console().print(table)
    print("ratio: to the full model, the faster of its own path and stock sdpa; MACs: share of the full's")
    for line in (*_memory(result), *correlations(rows), *prediction_errors(rows)):
        print(line)
    print_notes([result.untabled] if result.untabled else [])
    print_notes(f"{cell}: {noise.describe()}" for cell, noise in result.noise.items() if noise.noisy)
    if result.crowding:
        print_notes([result.crowding])
    elif not any(noise.noisy for noise in result.noise.values()):
        print("steady machine: the same model timed twice agrees, and so do the repeats")
    figure = ", latency.png" if result.drawn else ""
    print(f"written: {result.folder}/ (latency.csv, latency.json{figure})")


def _names(result: ProfileResult) -> dict[str, str]:
    """Short ones by a sub-network's JSON: the full model's row is the first."""
    full, *others = result.table["subnet"].unique()
    return {full: "full", **{text: f"#{number}" for number, text in enumerate(others, 1)}}


def _memory(result: ProfileResult) -> list[str]:
    """Each sub-network in words, its weights and caches, and peak activations where they were measured."""
    names, lines = _names(result), []
    for text, rows in result.table.groupby("subnet", sort=False):
        memory = rows.max(numeric_only=True)
        parts = [f"weights {memory['weight_bytes'] / 1e6:.1f} MB"]
        for column, words in _CACHES:
            if memory.get(column, math.nan) >= 0:
                parts.append(words.format(memory[column]))
        peak = memory.get("peak_activation_bytes", math.nan)
        parts.append(f"activations {peak / 1e6:.1f} MB" if peak >= 0 else "activations not measured")
        lines.append(f"{names[str(text)]}: {Subnet.from_json(str(text)).describe()}; {', '.join(parts)}")
    return lines
