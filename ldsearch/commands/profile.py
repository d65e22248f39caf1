"""Measures latency and memory of sub-networks beside the full model."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ldsearch.bench import Bench
from ldsearch.commands.console import print_notes, progress_bars, quiet_libraries, resumable
from ldsearch.disk.files import read_fields, write_json
from ldsearch.errors import LdsearchError, of_system
from ldsearch.latency.clock import Clock, Noise, crowding, device_facts, load_average, synchroniser, threads
from ldsearch.latency.measure import (
    FORWARD,
    Cell,
    MeasuredLatency,
    Probe,
    data_cell,
    entries_of,
    generating,
    measure,
    random_cell,
)
from ldsearch.latency.runtimes import require_runtime
from ldsearch.latency.table import LatencyTable, SupernetStages, build_table, length_grid, table_beside
from ldsearch.latency.whole import OWN, time_whole
from ldsearch.options import Profile
from ldsearch.reports.latency import FEWEST_POINTS, correlations, draw_latency, prediction_errors
from ldsearch.reports.style import save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs.folder import claim
from ldsearch.runs.run import LATENCY_FILE, RUN_FILE, Run
from ldsearch.runs.target import Target
from ldsearch.search.latencies import JSON_FILE, latency_table
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_supernet, read_record
from ldsearch.work.progress import NO_PROGRESS, Progress

# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 32


def main(options: Profile) -> dict[str, Any]:
    """Time, and print medians, ratios and memory."""
    quiet_libraries()
    if options.table is not None:
        if options.subnet is not None or options.frontier or options.name is not None:
            raise LdsearchError("--table goes with none of --subnet, --frontier and --name")
        return _fill_table(options, options.table)
    with resumable("nothing was written; a latency is of one sitting"), progress_bars("timing") as bars:
        result = profile(options, bars)
    _print(result)
    return {"run": str(result.folder), "rows": result.table.to_dict("records")}


@dataclass(frozen=True)
class ProfileResult:
    """Latencies that were measured.

    Args:
        folder: Where the reports lie.
        table: Of ``latency_table``; the full model's rows first in each cell.
        facts: Device, threads, precision, versions.
        drawn: Whether there were points enough for the figure.
        notes: Warnings about the latency table and the machine.
        steady: Whether the machine was neither noisy nor busy.
    """

    folder: Path
    table: pd.DataFrame
    facts: dict[str, Any]
    drawn: bool
    notes: list[str]
    steady: bool


def profile(options: Profile, progress: Progress = NO_PROGRESS) -> ProfileResult:
    """Time sub-networks beside the full model and write ``latency.csv``, ``latency.json`` and a figure.

    They go into the run's own folder unless ``--name`` gives another, of a supernet into
    ``<supernet>-profile``.

    Args:
        options: See ``Profile``.
        progress: A step after every timed call.

    Raises:
        LdsearchError: One line for a bad folder, sub-network, option, or an output that holds another run.
    """
    load = load_average()
    home, subnets = _named(options)
    supernet = load_resting(home)
    entries = entries_of(supernet, subnets, options.runtime)
    for subnet in subnets:
        supernet.check(subnet)
    probe = generating(TOKENS) if supernet.head.generates else FORWARD
    clock = Clock(options.repeats, synchronise=synchroniser(supernet.model.device))
    lines: list[MeasuredLatency] = []
    noise: dict[str, Noise] = {}
    measured_as = {
        name: getattr(options, name) for name in ("runtime", "batch", "length", "repeats", "threads", "data")
    }
    with threads(options.threads):
        facts = device_facts(supernet.model.device, supernet.model.dtype)
        tabled, notes = _table_of(home, supernet, facts)
        cells = _cells(home, supernet, options, probe)
        place = options.folder
        if options.name is not None or not (place / RUN_FILE).is_file():
            place = options.place(f"{place.resolve().name}-profile")
            pairs = [[entry.subnet.to_json(), entry.runtime] for entry in entries]
            claim(place, JSON_FILE, {"supernet": home.name, **measured_as, "subnets": pairs})
        progress.phase("timing", len(cells) * clock.calls(len(entries) * len(probe.written)))
        for cell in cells:
            measured, noise[f"batch {cell.batch}, length {cell.length}"] = measure(
                supernet, entries, cell, probe, clock, progress
            )
            lines += measured
    table = latency_table(supernet, lines, [_predicted(tabled, line) for line in lines])
    drawn = options.frontier and len(subnets) >= FEWEST_POINTS
    path = place / JSON_FILE
    held = read_fields(path) if path.is_file() else {}
    identity = {"identity": held["identity"]} if "identity" in held else {}
    heard = {name: each.to_dict() for name, each in noise.items()}
    try:
        write_csv(table, place / LATENCY_FILE)
        if drawn:
            shown = table[table["runtime"] == options.runtime]
            save_figure(draw_latency(shown, f"{home.name}, {options.runtime}"), place / "latency.png")
        write_json(path, {**identity, **facts, "load_average": load, "options": measured_as, "noise": heard})
    except OSError as error:
        raise of_system(f"cannot write to {place}", error) from error
    notes += [f"{cell}: {each.describe()}" for cell, each in noise.items() if each.noisy]
    if crowd := crowding(load, os.cpu_count() or 1, facts["threads"]):
        notes.append(crowd)
    steady = not crowd and not any(each.noisy for each in noise.values())
    return ProfileResult(place, table, facts, drawn, notes, steady)


def _named(options: Profile) -> tuple[Path, list[Subnet]]:
    """The supernet's folder and what to measure of it: one sub-network, or a run's frontier."""
    if not options.frontier:
        target = Target.resolve(options.folder, options.subnet)
        return target.supernet, [target.subnet]
    if options.subnet is not None:
        raise LdsearchError("--subnet and --frontier exclude each other")
    run = Run.open(options.folder)
    return run.supernet, run.subnets


def load_resting(home: Path) -> Supernet:
    """A supernet in eval mode, on the accelerator where there is one."""
    supernet, _, _ = load_supernet(home)
    if torch.accelerator.is_available():
        supernet.to(torch.accelerator.current_accelerator())
    return supernet.eval()


def _cells(home: Path, supernet: Supernet, options: Profile, probe: Probe) -> list[Cell]:
    written = max(probe.written)
    cells = []
    for length in options.length or (read_record(home).reference,):
        if isinstance(length, int):
            cells += [random_cell(supernet, batch, length, written) for batch in options.batch]
            continue
        bench = Bench.open(home, data=options.data)
        collate = bench.task.collate(bench.tokenizer, None)
        rows = [dict(feature) for feature in bench.evaluator.encoded]
        cells += [data_cell(supernet, rows, collate, batch) for batch in options.batch]
    return cells


def _table_of(
    home: Path, supernet: Supernet, device: dict[str, Any]
) -> tuple[LatencyTable | None, list[str]]:
    """The latency table beside a supernet; of one that is another's, a note instead."""
    path = table_beside(home)
    if not path.is_file():
        return None, []
    try:
        table = LatencyTable.load(path)
        table.require({**device, "model": SupernetStages(supernet).facts["model"]})
    except LdsearchError as error:
        return None, [f"nothing is predicted: {error}"]
    return table, []


def _predicted(table: LatencyTable | None, line: MeasuredLatency) -> float:
    """Milliseconds of a batch; NaN where the table does not know."""
    if table is None or line.runtime not in OWN or not isinstance(line.length, int):
        return math.nan
    try:
        return float(table.predict([line.subnet], line.batch, line.length)[0])
    except LdsearchError:  # a batch, length or kind of sub-network that is not in the table
        return math.nan


def _fill_table(options: Profile, path: Path) -> dict[str, Any]:
    """Measure what a latency table lacks; the same command goes on after an interruption."""
    folder = options.folder
    require_runtime(options.runtime)
    numbers = [length for length in options.length if isinstance(length, int)]
    if len(numbers) < len(options.length):
        raise LdsearchError("--table needs lengths in tokens: --length data is none")
    home = folder if not (folder / RUN_FILE).is_file() else Target.resolve(folder).supernet
    supernet = load_resting(home)
    lengths = length_grid(numbers or [read_record(home).reference])
    stages = SupernetStages(supernet)
    if lengths[-1] > supernet.longest:
        raise LdsearchError(f"the model has {supernet.longest} positions, too few for {lengths[-1]} tokens")
    clock = Clock(options.repeats, synchronise=synchroniser(supernet.model.device), lead=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            resumable("run the same command again; nothing measured is lost"),
            progress_bars("stages") as bars,
            threads(options.threads),
        ):
            facts = device_facts(supernet.model.device, supernet.model.dtype)
            table, noises = build_table(stages, facts, lengths, options.batch, path, clock, bars)
            if options.runtime not in OWN:
                cells = [(batch, length) for batch in options.batch for length in numbers or lengths[-1:]]
                with torch.inference_mode():
                    table, added = time_whole(supernet, table, options.runtime, cells, path, clock, bars)
                noises += added
    except OSError as error:
        raise of_system(f"cannot write {path}", error) from error
    noisy = sum(noise.noisy for noise in noises)
    print(f"{facts['device']}, {facts['threads']} threads, {facts['dtype']}")
    print(f"lengths {' '.join(map(str, lengths))}; {len(table.cells)} cells in all")
    print(f"groups of cells measured now: {len(noises)}, {noisy} of them on a noisy machine")
    print(f"written: {path}")
    return {"table": str(path), "cells": len(table.cells), "noisy": noisy}


def _print(result: ProfileResult) -> None:
    facts, table = result.facts, result.table
    # The full model's row is the first.
    names = {text: f"#{number}" if number else "full" for number, text in enumerate(table["subnet"].unique())}
    # What has phases has one runtime.
    distinct = "phase" if table["phase"].nunique() > 1 else "runtime"
    rows = [
        [
            f"{row['batch']} x {row['length']}",
            names[row["subnet"]],
            row[distinct],
            f"{row['median_ms']:.4g}",
            f"{row['low_ms']:.4g}-{row['high_ms']:.4g}",
            f"{row['p95_ms']:.4g}",
            f"{row['ratio']:.3f}",
            f"{row['macs_ratio']:.3f}",
            "not faster" if row["not_faster"] else "",
        ]
        for row in table.to_dict("records")
    ]
    print(f"{facts['device']}, {facts['threads']} threads, {facts['dtype']}; inputs: batch x length")
    headings = ["inputs", "sub-net", distinct, "ms", "quartiles", "p95", "ratio", "MACs", ""]
    print(pd.DataFrame(rows, columns=headings).to_string(index=False))
    print("ratio: to the full model, the faster of its own path and stock sdpa; MACs: share of the full's")
    for text, lines in table.groupby("subnet", sort=False):
        described = Subnet.from_json(str(text)).describe()
        print(f"{names[text]}: {described}; {_memory(lines.max(numeric_only=True))}")
    for line in (*correlations(table), *prediction_errors(table)):
        print(line)
    print_notes(result.notes)
    if result.steady:
        print("steady machine: the same model timed twice agrees, and so do the repeats")
    figure = ", latency.png" if result.drawn else ""
    print(f"written: {result.folder}/ (latency.csv, latency.json{figure})")


def _memory(largest: "pd.Series[Any]") -> str:
    """Weights and caches, and peak activations where they were measured."""
    words = {
        "weight_bytes": "weights {:,.0f} bytes",
        "cache_bytes_per_token": "key-value cache {:,.0f} bytes per token",
        "cache_bytes_per_source_token": "{:,.0f} bytes per source token",
        "peak_activation_bytes": "activations {:,.0f} bytes",
    }
    known = [text.format(largest[name]) for name, text in words.items() if largest.get(name, math.nan) >= 0]
    return ", ".join(known if "peak_activation_bytes" in largest else [*known, "activations not measured"])
