"""ldsearch profile: latency and memory of sub-networks beside the full model, in the runtime they get."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldsearch.cli.console import (
    MovedData,
    Name,
    Runs,
    SubnetOption,
    print_notes,
    quiet_libraries,
    resumable,
    watching,
)

if TYPE_CHECKING:
    from ldsearch.commands.profile import Profile, ProfileOptions

_CACHES = (
    ("cache_bytes_per_token", "key-value cache {:,.0f} bytes per token"),
    ("cache_bytes_per_source_token", "{:,.0f} bytes per source token"),
)


def profile(
    folder: Annotated[
        Path, typer.Argument(help="A search run, a recovered model, or a supernet with --subnet.")
    ],
    subnet: SubnetOption = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Every sub-network of the run's frontier; draws latency.png.")
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(help="Fill this latency table instead (CSV): each block at each length and batch."),
    ] = None,
    runtime: Annotated[
        str, typer.Option(help="eager, own (the supernet's path), compile, or a registered one.")
    ] = "eager",
    batch: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,8,32",
    length: Annotated[
        str | None,
        typer.Option(
            help="Tokens of each input, separated by commas; data: the search rows.",
            show_default="as it was trained",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed rounds.", min=1)] = 5,
    threads: Annotated[
        int | None, typer.Option(help="Threads of an operation.", show_default="torch's", min=1)
    ] = None,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
) -> dict[str, Any]:
    """Time sub-networks and the full model in turn: median, quartiles, p95, ratio, memory.

    Models that write text are timed to their first token (prefill) and per token after it.

    **Examples**

    - `ldsearch profile runs/sst2-lengthdrop-evolve --length 128,data`

    - `ldsearch profile runs/sst2-lengthdrop-evolve --frontier --batch 8,32`

    - `ldsearch profile runs/sst2-lengthdrop --table latency_table.csv --batch 8 --length 128`
    """
    from ldsearch.commands.profile import DATA, ProfileOptions, parse_counts
    from ldsearch.commands.profile import profile as run
    from ldsearch.errors import LdsearchError

    batches = tuple(int(size) for size in parse_counts(batch, "--batch"))
    lengths = () if length is None else parse_counts(length, "--length", (DATA,))
    options = ProfileOptions(runtime, batches, lengths, repeats, threads, data)
    quiet_libraries()
    if table is not None:
        if subnet is not None or frontier or name is not None:
            raise LdsearchError("--table goes with none of --subnet, --frontier and --name")
        return _tabulate(folder, table, options)
    with resumable("nothing was written; a latency is of one sitting"), watching() as watcher:
        watcher.phase("timing", None)
        found = run(
            folder,
            options,
            subnet=subnet,
            frontier=frontier,
            output=_output(folder, name, runs),
            on_done=lambda done, total: watcher.progress.update(watcher.bar, completed=done, total=total),
        )
    _print(found)
    return {"run": str(found.folder), "rows": found.table.to_dict("records")}


def _output(folder: Path, name: str | None, runs: Path) -> Path | None:
    from ldsearch.runs import RUN_FILE

    if name is not None:
        return runs / name
    return None if (folder / RUN_FILE).is_file() else runs / f"{folder.resolve().name}-profile"


def _tabulate(folder: Path, path: Path, options: "ProfileOptions") -> dict[str, Any]:
    from ldsearch.commands.tabulate import tabulate

    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        watcher.phase("stages", None)
        found, noises = tabulate(
            folder,
            path,
            options,
            lambda done, total: watcher.progress.update(watcher.bar, completed=done, total=total),
        )
    noisy = sum(noise.noisy for noise in noises)
    facts = found.facts
    print(f"{facts['device']}, {facts['threads']} threads, {facts['dtype']}")
    print(f"lengths {' '.join(map(str, facts['lengths']))}; {len(found.cells)} cells in all")
    print(f"groups of cells measured now: {len(noises)}, {noisy} of them on a noisy machine")
    print(f"written: {path}")
    return {"table": str(path), "cells": len(found.cells), "noisy": noisy}


def _print(found: "Profile") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from ldsearch.reports.latency import correlations, prediction_errors

    facts, rows = found.facts, found.table
    names = _names(found)
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
    for line in (*_memory(found), *correlations(rows), *prediction_errors(rows)):
        print(line)
    print_notes([found.untabled] if found.untabled else [])
    print_notes(f"{cell}: {noise.describe()}" for cell, noise in found.noise.items() if noise.noisy)
    if found.crowding:
        print_notes([found.crowding])
    elif not any(noise.noisy for noise in found.noise.values()):
        print("steady machine: the same model timed twice agrees, and so do the repeats")
    figure = ", latency.png" if found.drawn else ""
    print(f"written: {found.folder}/ (latency.csv, latency.json{figure})")


def _names(found: "Profile") -> dict[str, str]:
    """Short ones by a sub-network's JSON: the full model's row is the first."""
    full, *others = found.table["subnet"].unique()
    return {full: "full", **{text: f"#{number}" for number, text in enumerate(others, 1)}}


def _memory(found: "Profile") -> list[str]:
    """Each sub-network in words, its weights and caches, and peak activations where they were measured."""
    from ldsearch.subnet import Subnet

    names, lines = _names(found), []
    for text, rows in found.table.groupby("subnet", sort=False):
        memory = rows.max(numeric_only=True)
        parts = [f"weights {memory['weight_bytes'] / 1e6:.1f} MB"]
        for column, words in _CACHES:
            if memory.get(column, math.nan) >= 0:
                parts.append(words.format(memory[column]))
        peak = memory.get("peak_activation_bytes", math.nan)
        parts.append(f"activations {peak / 1e6:.1f} MB" if peak >= 0 else "activations not measured")
        lines.append(f"{names[str(text)]}: {Subnet.from_json(str(text)).describe()}; {', '.join(parts)}")
    return lines
