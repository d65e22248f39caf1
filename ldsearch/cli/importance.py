"""ldsearch importance: what leaving each block out costs over random sub-networks."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import MovedData, Name, Runs, Seed, open_bench, resumable, watching


def importance(
    folder: Annotated[
        Path | None,
        typer.Argument(help="A supernet or a search run.", show_default="the newest supernet in --runs"),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="Blocks of a sub-network that lacks the block.", show_default="half", min=1),
    ] = None,
    subsets: Annotated[int, typer.Option(help="Random sub-networks for each block.", min=1)] = 20,
    stack: Annotated[
        str | None, typer.Option(help="encoder or decoder.", show_default="the only one")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="score, or kl: how far outputs are from the full model's.")
    ] = "score",
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> dict[str, Any]:
    """Which blocks matter: random sub-networks without a block, beside the same with it.

    An encoder-decoder is looked at stack by stack, the other one whole. The same command goes on after an
    interruption.

    **Examples**

    - `ldsearch importance`

    - `ldsearch importance runs/wikitext-layerdrop --keep 8`

    - `ldsearch importance runs/multi30k-flexible-depth --stack decoder --subsets 10`
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from ldsearch.commands.importance import block_importance, stack_of
    from ldsearch.target import Target

    supernet = None if folder is None else Target.resolve(folder, "full").supernet
    bench = open_bench(supernet, runs, data)
    chosen = stack_of(bench, stack)
    suffix = f"-{chosen}" if len(bench.supernet.depths) > 1 else ""
    with resumable("run the same command again; nothing measured is lost"), watching() as watcher:
        found = block_importance(
            bench,
            runs / (name or f"{bench.folder.name}-importance{suffix}"),
            keep=keep,
            subsets=subsets,
            stack=stack,
            objective=objective,
            seed=seed,
            watcher=watcher,
        )
    first = found.blocks[0]
    drawn = "all" if first.subsets == first.possible else f"{first.subsets} of {first.possible:,}"
    table = Table(
        title=f"{drawn} sub-networks of {found.keep} {found.stack} blocks that lack the block; "
        f"{found.metric} on {found.examples} {found.split} examples"
    )
    for heading in ("block", "loss without it", "standard error", "without", "with"):
        table.add_column(heading, justify="right")
    for row in found.blocks:
        numbers = (
            f"{row.loss:+.4f}",
            f"{row.standard_error:.4f}",
            f"{row.without:.4f}",
            f"{row.restored:.4f}",
        )
        table.add_row(str(row.block), *numbers)
    Console().print(table)
    if found.pinned:
        print(f"blocks {', '.join(map(str, found.pinned))} must stay in this model: not left out")
    print(f"cost: {found.counts.describe()}")
    print(f"written: {found.folder}/ (importance.csv, importance.png, importance.json)")
    return {"run": str(found.folder), "blocks": [asdict(row) for row in found.blocks]}
