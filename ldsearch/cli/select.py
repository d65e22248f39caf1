"""ldsearch select: choose a sub-network by a rule instead of a search."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import (
    AtLeast,
    BudgetOption,
    LatencyTable,
    MostAccurate,
    MovedData,
    Name,
    Objective,
    Runs,
    Seed,
    Storage,
    Supernet,
    Swap,
    numbers,
    open_bench,
    print_notes,
    resumable,
    watching,
)
from ldsearch.cli.outcome import print_outcome


def select(
    strategy: Annotated[
        str,
        typer.Option(
            help="every-other, every-other-literal, chunk-first, chunk-middle, chunk-last, assignment, "
            "validation, beam, swaps, learned, influence or constant-ratio; or a search of evolve's."
        ),
    ],
    budget: BudgetOption = None,
    at_least: AtLeast = None,
    most_accurate: MostAccurate = False,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Blocks to keep; of an encoder-decoder two numbers: 4,2.", show_default="every depth"
        ),
    ] = None,
    supernet: Supernet = None,
    space: Annotated[
        str | None, typer.Option(help="constant-ratio: shipped search space or YAML file.")
    ] = None,
    objective: Objective = "score",
    swap: Swap = False,
    latency_table: LatencyTable = None,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    storage: Storage = None,
    seed: Seed = 0,
) -> dict[str, Any]:
    """Every Other keeps evenly spaced blocks; constant ratio keeps the same share of tokens per block.

    Validation measures every choice of blocks; beam, for deep models, leaves blocks out one by one and goes
    on from the best few of each depth; swaps exchanges blocks of the best of a sample. Learned keeps the
    blocks with the lowest learned drop rates; influence those that change their input most. Assignment has
    the depths that `--strategy flexible-depth` trained. Chunks leave consecutive blocks out, which hurts.

    **Examples**

    - `ldsearch select --strategy every-other --keep 3`

    - `ldsearch select --strategy learned --keep 3`

    - `ldsearch select --strategy beam --keep 12 --objective kl`

    - `ldsearch select --strategy validation --keep 4,2`

    - `ldsearch select --strategy constant-ratio --budget 0.5`

    - `ldsearch select --strategy every-other --at-least 0.85`
    """
    from ldsearch.selector import parse_selector

    selector = parse_selector(budget, at_least, most_accurate)  # before anything is loaded
    from ldsearch.commands.evolve import objective_of
    from ldsearch.commands.rules import rule_named
    from ldsearch.commands.rules import select as run

    kept = numbers(keep)
    bench = open_bench(supernet, runs, data, swap, storage)
    print_notes(bench.untrained(rule_named(bench, strategy, kept, space, seed).cheapest))
    kind = "-".join([strategy, *objective_of(objective, selector).words])
    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        outcome = run(
            bench,
            runs / (name or f"{bench.folder.name}-{kind}{'-swap' if swap else ''}"),
            strategy=strategy,
            selector=selector,
            keep=kept,
            space=space,
            objective=objective,
            seed=seed,
            latency_table=latency_table,
            watcher=watcher,
        )
    return print_outcome(outcome)
