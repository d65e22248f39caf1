"""ldsearch health: do inherited scores rank sub-networks as training each on its own would?"""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import MovedData, Name, Runs, Seed, Steps, Supernet, open_bench, resumable


def health(
    context: typer.Context,
    supernet: Supernet = None,
    count: Annotated[int, typer.Option(help="Sub-networks to fine-tune, spread over the cost range.")] = 8,
    steps: Steps = 300,
    space: Annotated[
        str | None,
        typer.Option(help="Shipped search space or YAML file.", show_default="what was trained, 16 levels"),
    ] = None,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> dict[str, Any]:
    """Fine-tune a few sub-networks on their own; Kendall's tau between inherited and fine-tuned scores.

    A search trusts inherited scores to rank sub-networks. Near 1 they do; near 0 choose by a rule, or
    train the supernet longer. Flags that ldsearch does not know go to Hugging Face's TrainingArguments.
    The same command goes on after an interruption.

    **Examples**

    - `ldsearch health`

    - `ldsearch health --supernet runs/sst2-lengthdrop --count 12 --steps 500 --bf16`
    """
    from rich.console import Console
    from rich.table import Table

    from ldsearch.commands.fixed import FixedOptions
    from ldsearch.commands.health import health as run
    from ldsearch.subnet import Subnet

    bench = open_bench(supernet, runs, data)
    options = FixedOptions(steps=steps, loss="label", seed=seed, trainer=tuple(context.args))
    with resumable("run the same command again; finished sub-networks are kept"):
        found = run(
            bench,
            runs / (name or f"{bench.folder.name}-health"),
            count=count,
            space=space,
            options=options,
            announce=lambda text: print(text, file=sys.stderr),
        )
    table = Table(title=f"{len(found.table)} sub-networks, {found.examples} examples")
    for heading in ("MACs share", "inherited", "fine-tuned", "sub-network"):
        table.add_column(heading, overflow="fold")
    for row in found.table.to_dict("records"):
        numbers = (f"{row['macs_share']:.3f}", f"{row['inherited']:.4f}", f"{row['fine_tuned']:.4f}")
        table.add_row(*numbers, Subnet.from_json(row["subnet"]).describe())
    Console().print(table)
    if not math.isnan(found.tau):
        print(f"Kendall's tau {found.tau:.3f} (p = {found.p_value:.3g}, {len(found.table)} sub-networks)")
    else:
        print("Kendall's tau is undefined: all sub-networks score the same")
    print(f"written: {found.folder}/ (health.csv, health.png, health.json)")
    return {"run": str(found.folder), "tau": None if math.isnan(found.tau) else found.tau}
