"""ldsearch select: choose a sub-network by a rule instead of a search."""

from pathlib import Path
from typing import Annotated

import typer

from ldsearch.cli.console import (
    AtLeast,
    BudgetOption,
    MostAccurate,
    MovedData,
    Name,
    Runs,
    Supernet,
    Swap,
    open_bench,
    print_notes,
    print_outcome,
    resumable,
    watching,
)


def select(
    strategy: Annotated[
        str, typer.Option(help="every-other, validation, beam, learned, influence or constant-ratio.")
    ],
    budget: BudgetOption = None,
    at_least: AtLeast = None,
    most_accurate: MostAccurate = False,
    keep: Annotated[
        int | None, typer.Option(help="Blocks to keep.", show_default="every depth", min=1)
    ] = None,
    supernet: Supernet = None,
    space: Annotated[
        str | None, typer.Option(help="constant-ratio: shipped search space or YAML file.")
    ] = None,
    swap: Swap = False,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
) -> None:
    """Every Other keeps evenly spaced blocks; constant ratio keeps the same share of tokens per block.

    Validation measures every choice of blocks; beam, for deep models, leaves blocks out one by one and goes
    on from the best few of each depth. Learned keeps the blocks with the lowest learned drop rates;
    influence those that change their input most.

    **Examples**

    - `ldsearch select --strategy every-other --keep 3`

    - `ldsearch select --strategy learned --keep 3`

    - `ldsearch select --strategy beam --keep 12`

    - `ldsearch select --strategy constant-ratio --budget 0.5`

    - `ldsearch select --strategy every-other --at-least 0.85`
    """
    from ldsearch.selector import parse_selector

    selector = parse_selector(budget, at_least, most_accurate)  # before anything is loaded
    from ldsearch.workflows.search import select as run
    from ldsearch.workflows.search import untrained

    bench = open_bench(supernet, runs, data, swap)
    print_notes(untrained(bench, strategy, keep, space))
    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        outcome = run(
            bench,
            runs / (name or f"{bench.folder.name}-{strategy}{'-swap' if swap else ''}"),
            strategy=strategy,
            selector=selector,
            keep=keep,
            space=space,
            watcher=watcher,
        )
    print_outcome(outcome)
