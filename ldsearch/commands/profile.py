"""Measures latency and memory of sub-networks beside the full model."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ldsearch.bench import Workbench
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
from ldsearch.latency.table import Predictor
from ldsearch.reports.figures import save_figure
from ldsearch.reports.latency import FEWEST_POINTS, LATENCY_COLUMNS, draw_latency
from ldsearch.reports.tables import write_csv
from ldsearch.runs import RUN_FILE, claim
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_supernet, read_record
from ldsearch.target import Target

CSV_FILE = "latency.csv"
JSON_FILE = "latency.json"
FIGURE_FILE = "latency.png"
FRONTIER_FILE = "frontier.csv"
DATA = "data"
# Tokens written after the first, over which the latency of one is averaged.
TOKENS = 32

OnDone = Callable[[int, int], None]


@dataclass(frozen=True)
class ProfileOptions:
    """What is measured, and how.

    Args:
        runtime: A name in ``RUNTIMES``.
        batches: Batch sizes.
        lengths: Tokens of each input; ``"data"``: the search split's own rows. Empty: as it was trained.
        repeats: How often each is timed.
        threads: Inside an operation; None: as torch has it.
        data: Where the supernet's data lie now, if they were moved.
    """

    runtime: str = "eager"
    batches: tuple[int, ...] = (1, 8, 32)
    lengths: tuple[int | str, ...] = ()
    repeats: int = 5
    threads: int | None = None
    data: str | None = None


@dataclass(frozen=True)
class Profile:
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


def parse_counts(text: str, option: str, words: Sequence[str] = ()) -> tuple[int | str, ...]:
    """``1,8,32`` as numbers above 0, distinct and in order; some words may stand among them.

    Raises:
        LdsearchError: If it is anything else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part in words or (part.isascii() and part.isdigit() and int(part) > 0) for part in parts):
        allowed = " or ".join(["whole numbers above 0", *words])
        raise LdsearchError(f"cannot read {option} {text!r}: give {allowed}, separated by commas")
    return tuple(dict.fromkeys(part if part in words else int(part) for part in parts))


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
    path = folder / FRONTIER_FILE
    if not path.is_file():
        raise RunError(f"{folder} has no {FRONTIER_FILE}: --frontier needs a finished search run")
    home = Target.resolve(folder).supernet
    try:
        return home, [Subnet.from_json(text) for text in pd.read_csv(path)["subnet"]]
    except (KeyError, ValueError) as error:
        raise RunError(f"{path} is damaged: it holds no sub-networks") from error


def profile(
    folder: str | Path,
    options: ProfileOptions,
    *,
    subnet: str | None = None,
    frontier: bool = False,
    output: str | Path | None = None,
    on_done: OnDone = lambda done, total: None,
) -> Profile:
    """Time sub-networks beside the full model and write ``latency.csv``, ``latency.json`` and a figure.

    Args:
        folder: A search run, a recovered model, or a supernet together with ``subnet``.
        options: What is measured.
        subnet: JSON, a file that holds it, or ``"full"``; None takes the run's best.
        frontier: Every sub-network of the run's frontier instead.
        output: Where to write; None: into the run's folder, ``<supernet>-profile`` beside a supernet's.
        on_done: Called with timed calls done and all.

    Raises:
        LdsearchError: One line for a bad folder, sub-network, option, or an output that holds another run.
    """
    load = load_average()
    folder = Path(folder)
    home, subnets = subnets_of(folder, subnet, frontier)
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
        done, total = count(1), len(cells) * clock.calls(len(entries) * len(probe.written))
        for cell in cells:
            lines, heard = measure(supernet, entries, cell, probe, clock, lambda: on_done(next(done), total))
            noise[f"batch {cell.batch}, length {cell.length}"] = heard
            rows += [latency_row(line, cell, heard, memories[line.entry.subnet]) for line in lines]
            predicted += [predictor(line.entry, cell) for line in lines]
    table = pd.DataFrame(rows, columns=list(LATENCY_COLUMNS)).assign(predicted_ms=predicted)
    drawn = frontier and len(subnets) >= FEWEST_POINTS
    _write(place, home, table, {**facts, "load_average": load}, noise, options, drawn)
    crowd = crowding(load, os.cpu_count() or 1, facts["threads"])
    return Profile(place, table, facts, noise, crowd, drawn, predictor.why_not)


def load_resting(home: Path) -> Supernet:
    """A supernet in eval mode, on the accelerator where there is one."""
    supernet, _, _ = load_supernet(home)
    if torch.accelerator.is_available():
        supernet.to(torch.accelerator.current_accelerator())
    return supernet.eval()


def trained_length(home: Path) -> int:
    """Tokens of the inputs a supernet was trained on."""
    return read_record(home).reference


def _cells(home: Path, supernet: Supernet, options: ProfileOptions, probe: Probe) -> list[Cell]:
    written = max(probe.written)
    cells = []
    for length in options.lengths or (trained_length(home),):
        if isinstance(length, int):
            cells += [random_cell(supernet, batch, length, written) for batch in options.batches]
            continue
        bench = Workbench.open(home, data=options.data)
        collate = bench.task.collate(bench.tokenizer, None)
        rows = [dict(feature) for feature in bench.evaluator.encoded]
        cells += [data_cell(supernet, rows, collate, batch) for batch in options.batches]
    return cells


def _claimed(
    folder: Path, home: Path, output: str | Path | None, entries: Sequence[Entry], options: ProfileOptions
) -> Path:
    """A run's own folder, or one that is a profile's."""
    if output is None and (folder / RUN_FILE).is_file():
        return folder
    place = Path(output) if output is not None else home.parent / f"{home.name}-profile"
    asked = {**asdict(options), "subnets": [[entry.subnet.to_json(), entry.runtime] for entry in entries]}
    claim(place, JSON_FILE, {"supernet": home.name, **asked})
    return place


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
    options: ProfileOptions,
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
        write_json(path, {**identity, **facts, "options": asdict(options), "noise": heard})
    except OSError as error:
        raise RunError(f"cannot write to {place}: {error.strerror or error}") from error
