"""ldsearch select: choose a sub-network by a rule instead of a search."""

from pathlib import Path
from typing import Annotated

import typer

from ldsearch.cli.console import (
    BudgetOption,
    MovedData,
    Name,
    Runs,
    Supernet,
    check_budget,
    open_bench,
    print_outcome,
    resumable,
    trial_progress,
)


def select(
    strategy: Annotated[str, typer.Option(help="every-other or constant-ratio.")],
    budget: BudgetOption = None,
    keep: Annotated[
        int | None, typer.Option(help="every-other: blocks to keep.", show_default="every depth", min=1)
    ] = None,
    supernet: Supernet = None,
    space: Annotated[
        str | None, typer.Option(help="constant-ratio: shipped search space or YAML file.")
    ] = None,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
) -> None:
    """Every Other keeps evenly spaced blocks; constant ratio keeps the same share of tokens per block.

    **Examples**

    - `ldsearch select --strategy every-other --keep 3`

    - `ldsearch select --strategy constant-ratio --budget 0.5`
    """
    from ldsearch.workflows.search import select as run

    check_budget(budget)
    bench = open_bench(supernet, runs, data)
    most = bench.supernet.blocks + 1 if strategy == "every-other" else 23
    with resumable("run the same command again; nothing measured is lost"), trial_progress(most) as tick:
        outcome = run(
            bench,
            runs / (name or f"{bench.folder.name}-{strategy}"),
            strategy=strategy,
            budget=budget,
            keep=keep,
            space=space,
            on_trial=tick,
        )
    print_outcome(outcome)
