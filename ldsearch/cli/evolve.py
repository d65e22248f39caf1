"""ldsearch evolve: search the supernet for the lengths that fit a budget."""

from pathlib import Path
from typing import Annotated

import typer

from ldsearch.cli.console import (
    BudgetOption,
    MovedData,
    Name,
    Runs,
    Seed,
    Supernet,
    check_budget,
    open_bench,
    print_outcome,
    resumable,
    trial_progress,
)


def evolve(
    budget: BudgetOption = None,
    supernet: Supernet = None,
    space: Annotated[
        str | None,
        typer.Option(help="Shipped search space or YAML file.", show_default="what was trained, 16 levels"),
    ] = None,
    evaluations: Annotated[
        int, typer.Option(help="The most sub-networks to measure, the full model included.", min=1)
    ] = 150,
    parity: Annotated[
        bool,
        typer.Option("--parity", help="The papers' numbers of children and, without --space, every length."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how large the search is and how long it takes; run nothing."),
    ] = False,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> None:
    """Evolve length configurations: score against MACs, the frontier, the best within a budget.

    Every measurement is stored at once. The same command goes on after an interruption; another
    `--budget` is answered from what is known.

    **Examples**

    - `ldsearch evolve --budget 0.4`

    - `ldsearch evolve --supernet runs/sst2 --budget 0.5 --evaluations 300 --seed 1 --name sst2-seed1`

    - `ldsearch evolve --dry-run`
    """
    from ldsearch.workflows.search import evolve as run
    from ldsearch.workflows.search import plan_evolve

    check_budget(budget)
    bench = open_bench(supernet, runs, data)
    if dry_run:
        plan = plan_evolve(bench, budget=budget, space=space, evaluations=evaluations, parity=parity)
        print(f"search space {plan.space}: {plan.size:,} sub-networks")
        print(f"cheapest {plan.cheapest:.3f}, dearest {plan.dearest:.3f} of the full model's MACs")
        print(f"at most {plan.evaluations} evaluations, about {plan.minutes:.1f} minutes")
        return
    with (
        resumable("run the same command again; nothing measured is lost"),
        trial_progress(evaluations) as tick,
    ):
        outcome = run(
            bench,
            runs / (name or f"{bench.folder.name}-evolve"),
            budget=budget,
            space=space,
            evaluations=evaluations,
            seed=seed,
            parity=parity,
            on_trial=tick,
        )
    print_outcome(outcome)
