"""ldsearch grid: the scores of every depth configuration of an encoder-decoder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import (
    Beams,
    LengthPenalty,
    MaxTarget,
    MinTarget,
    MovedData,
    Name,
    NoRepeatNgram,
    Runs,
    Supernet,
    open_bench,
    resumable,
    watching,
)


def grid(
    metric: Annotated[
        str,
        typer.Option(help="nats or perplexity (teacher-forced); bleu, rouge1, rouge2 or rougeL (decoded)."),
    ] = "nats",
    assignment: Annotated[
        str | None,
        typer.Option(help="Blocks of a depth: head, seq, left, ...", show_default="as trained, or optimal"),
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Another grid's folder, to compare with.")] = None,
    beams: Beams = 1,
    length_penalty: LengthPenalty = 1.0,
    no_repeat_ngram: NoRepeatNgram = 0,
    min_target: MinTarget = 0,
    max_target: MaxTarget = 128,
    limit: Annotated[
        int | None, typer.Option(help="Decode only the first so many examples.", show_default="all")
    ] = None,
    supernet: Supernet = None,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
) -> dict[str, Any]:
    """Measure every pair of encoder and decoder depths on the report rows, which chose nothing.

    **Examples**

    - `ldsearch grid --supernet runs/multi30k-flexible-depth`

    - `ldsearch grid --metric bleu --beams 4 --baseline runs/multi30k-layerdrop-grid-bleu`
    """
    from ldsearch.commands.grid import GridOptions, load_grid, mean_difference, measure_grid
    from ldsearch.decoding import Decoding
    from ldsearch.reports.heat_maps import grid_text

    options = GridOptions(
        metric,
        assignment,
        Decoding(beams, length_penalty, min_target, max_target, no_repeat_ngram),
        limit,
    )
    other = None if baseline is None else load_grid(baseline)
    bench = open_bench(supernet, runs, data, swap=True)
    folder = runs / (name or f"{bench.folder.name}-grid-{metric}")
    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        watcher.phase("depths", None)
        found = measure_grid(
            bench,
            folder,
            options,
            other,
            lambda done, total: watcher.progress.update(watcher.bar, completed=done, total=total),
        )
    print(grid_text(found.scores, None if other is None else other.scores, 3 if metric == "nats" else 2))
    if other is not None:
        gap = mean_difference(found, other)
        print(f"mean minus the baseline's: {gap.mean:+.4f} (95% interval {gap.low:+.4f} to {gap.high:+.4f})")
    print(f"written: {folder}/grid.csv, grid.png, pruning_ratios.png, statistics.npz")
    return {"run": str(folder), "scores": {f"{m},{n}": score for (m, n), score in found.scores.items()}}
