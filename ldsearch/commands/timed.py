"""Latencies that a search measured: the table that ``ldsearch profile`` writes too, and a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.latencies import Latencies
from ldsearch.commands.profile import CSV_FILE, JSON_FILE, latency_row
from ldsearch.files import write_json
from ldsearch.latency.measure import memory_of
from ldsearch.reports.figures import save_figure
from ldsearch.reports.latency import LATENCY_COLUMNS, TimedPoint, draw_tradeoff
from ldsearch.reports.tables import write_csv
from ldsearch.trial import Trial

FIGURE_FILE = "tradeoff.png"


def write_latencies(
    bench: Bench,
    folder: Path,
    latencies: Latencies,
    fronts: Mapping[str, Sequence[Trial]],
    full: Trial,
) -> None:
    """``latency.csv``, ``latency.json``, and score against latency and MACs of some frontiers.

    Args:
        bench: The supernet.
        folder: The run's.
        latencies: Of everything on the frontiers and of the full model.
        fronts: By name, cheapest first.
        full: The full model.
    """
    cell, noise = latencies.cell, latencies.noise
    rows = [
        latency_row(line, cell, noise, memory_of(bench.supernet, subnet))
        for subnet, line in latencies.lines.items()
    ]
    table = pd.DataFrame(rows, columns=list(LATENCY_COLUMNS))
    table["predicted_ms"] = [latencies.predicted[subnet] for subnet in latencies.lines]
    write_csv(table, folder / CSV_FILE)
    heard = {f"batch {cell.batch}, length {cell.length}": {**asdict(noise), "noisy": noise.noisy}}
    write_json(folder / JSON_FILE, {**latencies.facts, "noise": heard})
    held = bench.held_out
    split = full.split if held is None else held.split
    examples = full.examples if held is None else held.examples
    figure = draw_tradeoff(
        {name: [_point(bench, latencies, trial, full) for trial in front] for name, front in fronts.items()},
        _point(bench, latencies, full, full),
        f"{full.metric} on {examples} {split} examples" + (", which chose" if held is None else ""),
        f"ms for a batch of {cell.batch} x {cell.length} tokens",
    )
    figure.suptitle(
        f"{bench.folder.name} on {latencies.facts['device']}, {latencies.facts['threads']} threads"
    )
    save_figure(figure, folder / FIGURE_FILE)


def _point(bench: Bench, latencies: Latencies, trial: Trial, full: Trial) -> TimedPoint:
    """Scored on the rows that chose nothing, where there are some."""
    timing = latencies.lines[trial.subnet].timing
    score, interval = trial.score.value, None
    if bench.held_out is not None:
        own, whole = (bench.held_out.statistics(subnet) for subnet in (trial.subnet, full.subnet))
        score = bench.score(own).value
        if trial.subnet != full.subnet:
            difference = bench.difference(own, whole)
            interval = (score - difference.mean + difference.low, score - difference.mean + difference.high)
    return TimedPoint(
        share=trial.costs["macs"] / full.costs["macs"],
        milliseconds=1e3 * timing.median,
        quartiles=(1e3 * timing.low, 1e3 * timing.high),
        score=score,
        interval=interval,
    )
