"""Prints the scores of every depth configuration of an encoder-decoder."""

from dataclasses import replace
from typing import Any

from ldsearch.commands.console import open_bench, progress_bars, resumable
from ldsearch.errors import RunError
from ldsearch.options import Evaluate
from ldsearch.reports.heat_maps import grid_text
from ldsearch.search.grid import load_grid, mean_difference, measure_grid


def all_depths(options: Evaluate) -> dict[str, Any]:
    """Measure every depth configuration and print the grid.

    Raises:
        LdsearchError: One line for a bad folder, metric or option.
    """
    if options.subnet is not None or options.frontier or options.split is not None:
        raise RunError("--all-depths scores every depth on the report rows: no --subnet, --frontier, --split")
    options = replace(options, metric=options.metric or "nats")
    baseline = None if options.baseline is None else load_grid(options.baseline)
    bench = open_bench(options.folder, options.runs, options.data, split="report")
    folder = options.place(f"{bench.folder.name}-grid-{options.metric}")
    with resumable("run the same command again; nothing measured is lost"), progress_bars() as bars:
        result = measure_grid(bench, folder, options, baseline, bars)
    compared = None if baseline is None else baseline.scores
    unit = "nats per token, less is better" if options.metric == "nats" else options.metric
    print(f"{unit}, on the report rows; rows are encoder depths, columns decoder depths")
    print(grid_text(result.scores, compared, 3 if options.metric == "nats" else 2))
    if baseline is not None:
        gap = mean_difference(result, baseline)
        print(f"mean minus the baseline's: {gap.mean:+.4f} (95% interval {gap.low:+.4f} to {gap.high:+.4f})")
    print(f"written: {folder}/grid.csv, grid.png, pruning_ratios.png, statistics.npz")
    return {"run": str(folder), "scores": {f"{m},{n}": score for (m, n), score in result.scores.items()}}
