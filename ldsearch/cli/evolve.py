"""ldsearch evolve: search the supernet for the lengths that fit a budget."""

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
    open_bench,
    print_notes,
    resumable,
    watching,
)
from ldsearch.cli.outcome import print_outcome


def evolve(
    budget: BudgetOption = None,
    at_least: AtLeast = None,
    most_accurate: MostAccurate = False,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="surrogate: measures the children that a Gaussian process thinks most of; nsga: all; "
            "greedy: goes down step by step, for --objective kl; random; lat: the paper's code.",
            show_default="surrogate; nsga with --parity",
        ),
    ] = None,
    objective: Objective = "score",
    supernet: Supernet = None,
    space: Annotated[
        str | None,
        typer.Option(help="Shipped search space or YAML file.", show_default="what was trained, 16 levels"),
    ] = None,
    genes: Annotated[
        str | None,
        typer.Option(
            help="What is searched: lengths, depth, ffn, head, sublayer, or several joined by +.",
            show_default="lengths; depth where no tokens can be dropped",
        ),
    ] = None,
    evaluations: Annotated[
        int | None,
        typer.Option(
            help="The most sub-networks to measure, the full model included.",
            show_default="150; greedy 1000, lat 1823",
            min=2,
        ),
    ] = None,
    parity: Annotated[
        bool,
        typer.Option("--parity", help="The papers' numbers of children and, without --space, every length."),
    ] = False,
    cache: Annotated[
        float, typer.Option(help="GiB of memory for what later generations have in common.", min=0)
    ] = 4,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how large the search is and how long it takes; run nothing."),
    ] = False,
    swap: Swap = False,
    latency_table: LatencyTable = None,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    storage: Storage = None,
    seed: Seed = 0,
) -> dict[str, Any]:
    """Evolve lengths, depths, groups: score against cost, the frontier, the sub-network asked for.

    Beside it, with at most as many evaluations: random search and regular configurations. Every frontier is
    scored once more on the report rows, which chose nothing. Every measurement is stored at once: the same
    command goes on after an interruption, and another `--budget` is answered from what is known. Started
    several times, on one machine or with one `--storage` on many, it divides the work and ends the same.

    **Examples**

    - `ldsearch evolve --budget 0.4`

    - `ldsearch evolve --at-least full`

    - `ldsearch evolve --supernet runs/sst2 --budget 0.5 --evaluations 300 --seed 1 --name sst2-seed1`

    - `ldsearch evolve --strategy greedy --objective kl --budget 0.4`

    - `ldsearch evolve --genes depth+lengths --budget 0.4`

    - `ldsearch evolve --objective latency --budget 12ms@batch=8,length=128`

    - `ldsearch evolve --dry-run`
    """
    from dataclasses import asdict

    from ldsearch.selector import parse_selector

    selector = parse_selector(budget, at_least, most_accurate)  # before anything is loaded
    from ldsearch.commands.evolve import evolve as run
    from ldsearch.commands.evolve import objective_of, plan_evolve
    from ldsearch.workflows.searching.spaces import search_space

    bench = open_bench(supernet, runs, data, swap, storage)
    bench.evaluator.cache_budget = int(cache * 2**30)
    print_notes(bench.untrained(search_space(bench, space, genes, parity).smallest()))
    if dry_run:
        plan = plan_evolve(
            bench,
            selector=selector,
            strategy=strategy,
            space=space,
            evaluations=evaluations,
            parity=parity,
            objective=objective,
            genes=genes,
            latency_table=latency_table,
        )
        print(f"search space {plan.space}: up to {plan.size:,} sub-networks")
        print(f"cheapest {plan.cheapest:.3f}, dearest {plan.dearest:.3f} of the full model's MACs")
        print(f"at most {plan.evaluations} evaluations and controls, at most some {plan.minutes:.1f} minutes")
        return asdict(plan)
    words = objective_of(objective, selector).words
    kind = "-".join([strategy or "evolve", *([genes] if genes else []), *words])
    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        outcome = run(
            bench,
            runs / (name or f"{bench.folder.name}-{kind}{'-swap' if swap else ''}"),
            selector=selector,
            strategy=strategy,
            objective=objective,
            space=space,
            evaluations=evaluations,
            seed=seed,
            parity=parity,
            genes=genes,
            latency_table=latency_table,
            watcher=watcher,
        )
    return print_outcome(outcome)
