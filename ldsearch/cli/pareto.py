"""ldsearch pareto: another budget from what is measured."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import AtLeast, BudgetOption, MostAccurate, Storage
from ldsearch.cli.outcome import describe_choice


def pareto(
    folder: Annotated[
        Path, typer.Argument(help="A search run, or a supernet (its newest run on search rows).")
    ],
    budget: BudgetOption = None,
    at_least: AtLeast = None,
    most_accurate: MostAccurate = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the sub-network here, as --subnet takes it.")
    ] = None,
    storage: Storage = None,
) -> dict[str, Any]:
    """Choose among everything measured on a supernet, by any search; loads no model and runs nothing.

    **Examples**

    - `ldsearch pareto runs/sst2-lengthdrop-evolve --budget 0.5`

    - `ldsearch pareto runs/sst2-lengthdrop --at-least full --save full.json`

    - `ldsearch pareto runs/sst2-lengthdrop-evolve --budget 0.5 --storage journal:/mnt/shared/sst2.log`
    """
    from rich.console import Console
    from rich.table import Table

    from ldsearch.commands.pareto import pareto as ask
    from ldsearch.errors import RunError
    from ldsearch.files import write_json
    from ldsearch.selector import parse_selector

    if save is not None and save.exists():
        raise RunError(f"{save} exists already: choose another --save")
    found = ask(folder, parse_selector(budget, at_least, most_accurate), storage)
    best, full = found.best, found.full
    table = Table(title=f"frontier: {len(found.frontier)} of {len(found.trials)} measured sub-networks")
    for heading in ("MACs share", f"{full.metric}, {full.split}", "sub-network"):
        table.add_column(heading, overflow="fold")
    for trial in found.frontier:
        share = f"{trial.costs['macs'] / full.costs['macs']:.3f}"
        style = "bold" if trial is best else ""
        table.add_row(share, f"{trial.score.value:.4f}", trial.subnet.describe(), style=style)
    Console().print(table)
    print(f"measurements of {found.run}, and of every other search on the same supernet and rows")
    print(f"chosen: {describe_choice(best, full)}")
    if found.nearest:
        print(found.nearest)
    if save is not None:
        try:
            save.parent.mkdir(parents=True, exist_ok=True)
            # With the rows that chose it, so that evaluate reports on others.
            write_json(save, {"subnet": json.loads(best.subnet.to_json()), "split": best.split})
        except OSError as error:
            raise RunError(f"cannot write {save}: {error.strerror or error}") from error
        print(f"written: {save}; next: ldsearch evaluate {folder} --subnet {save}")
    return {"subnet": json.loads(best.subnet.to_json()), "score": best.score.value, "costs": dict(best.costs)}
