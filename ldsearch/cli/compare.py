"""ldsearch compare: strategies, supernets and finished runs side by side, on rows that chose nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldsearch.cli.console import MovedData, Name, Runs, quiet_libraries, resumable, watching

if TYPE_CHECKING:
    from rich.table import Table

    from ldsearch.commands.comparison import Cell


def compare(
    finished: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Finished search runs.")
    ] = None,
    supernet: Annotated[
        list[Path] | None,
        typer.Option(
            help="May be given several times.", show_default="those of the runs; without runs the newest"
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="A search of evolve's, with its genes if wanted (surrogate:depth+lengths), or a rule of "
            "select's; may be given several times.",
            show_default="surrogate, every-other; of runs alone none",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Shares of the full model's MACs.")] = "0.4,0.55,0.7",
    evaluations: Annotated[int, typer.Option(help="The most of each search.", min=2)] = 150,
    seeds: Annotated[int, typer.Option(help="Searches of each strategy that draws.", min=1)] = 3,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
) -> dict[str, Any]:
    """What does each strategy, or each finished run, find for a budget, and is it better than random search?

    Random search of the same genes runs beside each strategy; a run has its own. All searches have equally
    many evaluations, of runs the first ones, as many as the shortest run made; a second table has equally
    much spent, counted in multiply-accumulates, across supernets on the same rows. Scores are of rows that
    chose nothing, means over the seeds. The same command goes on after an interruption.

    **Examples**

    - `ldsearch compare`

    - `ldsearch compare --strategy every-other --strategy chunk-middle --strategy learned --budget 0.5,0.75`

    - `ldsearch compare --supernet runs/a --supernet runs/b --strategy surrogate:depth+lengths --seeds 1`

    - `ldsearch compare runs/bert-evolve runs/distilbert-evolve`

    - `ldsearch compare runs/a-evolve --strategy every-other`
    """
    from dataclasses import asdict

    from ldsearch.commands.compare import compare as run
    from ldsearch.commands.comparison import Comparison, Entry
    from ldsearch.commands.finished import FinishedRun
    from ldsearch.runs import newest_supernet

    names = strategy or ([] if finished and not supernet else ["surrogate", "every-other"])
    entries = tuple(Entry.parse(text) for text in names)
    asked = Comparison(entries, _shares(budget), evaluations, seeds, tuple(map(str, finished or ())))
    quiet_libraries()
    searched = supernet or list(dict.fromkeys(FinishedRun.read(one).supernet for one in finished or ()))
    searched = (searched or [newest_supernet(runs)]) if entries else []
    shown = [one.resolve().name for one in (*searched, *(finished or ()))]
    folder = runs / (name or f"{'-'.join(shown)}-compare")
    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        cells = run(searched, folder, asked, data=data, runs=runs, watcher=watcher)
    _print_tables(cells)
    print(f"written: {folder}/ (compare.csv, compare.png, compare.json)")
    return {"run": str(folder), "cells": [asdict(cell) for cell in cells]}


def _print_tables(cells: "Sequence[Cell]") -> None:
    """For each supernet, its rows and each limit a table."""
    from rich.console import Console

    limits = {"evaluations": "equally many evaluations", "passes": "as much spent"}
    for where in dict.fromkeys((cell.supernet, cell.metric, cell.split) for cell in cells):
        for limit, words in limits.items():
            own = [c for c in cells if (c.supernet, c.metric, c.split) == where and c.limit == limit]
            title = f"{where[0]}: {where[1]} on {own[0].examples} {where[2]} examples, {words}"
            Console().print(_table(title, own))
    if any(cell.split == cell.chosen_on for cell in cells):
        print("there are no rows that chose nothing: these scores are optimistic")
    print("a dash: nothing that cheap was found. gain: to random search of the same genes, 95% interval")


def _shares(text: str) -> tuple[float, ...]:
    """``"0.4,0.55"`` as (0.4, 0.55).

    Raises:
        BudgetError: If one is no number.
    """
    from ldsearch.errors import BudgetError

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BudgetError(f"cannot read the budgets {text!r}: give shares such as 0.4,0.55") from error


def _table(title: str, cells: "Sequence[Cell]") -> "Table":
    """One row per strategy: what it spent, then at each budget its score and its gain over random search."""
    from rich.table import Table

    budgets = sorted({cell.budget for cell in cells})
    table = Table(title=title)
    for heading in ("strategy", "evaluations", "F", *(f"{budget:g}" for budget in budgets)):
        table.add_column(heading)
    for strategy in dict.fromkeys(cell.strategy for cell in cells):
        row = {cell.budget: cell for cell in cells if cell.strategy == strategy}
        first = row[budgets[0]]
        found = [_words(row[budget]) for budget in budgets]
        table.add_row(strategy, f"{first.evaluations:.0f}", f"{first.passes:.1f}", *found)
    return table


def _words(cell: "Cell") -> str:
    if not cell.seeds:
        return "-"
    gain = (
        "" if cell.gain != cell.gain else f" {cell.gain:+.4f} ({cell.gain_low:+.4f} to {cell.gain_high:+.4f})"
    )
    return f"{cell.score:.4f}{gain}"
