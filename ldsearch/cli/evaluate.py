"""ldsearch evaluate: score a sub-network beside the full model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ldsearch.cli.console import MovedData, SubnetOption, print_fields, quiet_libraries


def evaluate(
    folder: Annotated[
        Path, typer.Argument(help="A search run, a recovered model, or a supernet with --subnet.")
    ],
    subnet: SubnetOption = None,
    split: Annotated[
        str | None, typer.Option(help="search or report.", show_default="the one that did not choose")
    ] = None,
    data: MovedData = None,
) -> None:
    """Score a sub-network and the full model on the same examples, with an interval of the difference.

    **Examples**

    - `ldsearch evaluate runs/docstrings-lengthdrop-evolve`

    - `ldsearch evaluate runs/docstrings-lengthdrop --subnet full --split report`
    """
    from ldsearch.workflows.deliver import evaluate as run

    quiet_libraries()
    found = run(folder, subnet=subnet, split=split, data=data)
    difference = found.difference
    share, padded = (found.costs[name] / found.full_costs[name] for name in ("macs", "padded_macs"))
    if found.chosen_on:
        print("note: the search chose by these very examples, so the score is optimistic", file=sys.stderr)
    print_fields(
        {
            "sub-network": found.subnet.describe(),
            found.metric: f"{found.score.value:.4f} on {difference.examples} {found.split} examples",
            "full model": f"{found.full_score.value:.4f}",
            "difference": f"{difference.mean:+.4f}, 95% interval {difference.low:+.4f} to "
            f"{difference.high:+.4f} (paired bootstrap)",
            "MACs": f"{found.costs['macs']:,.0f} per example, {share:.3f} of the full model's",
            "padded MACs": f"{padded:.3f} of the full model's, the length-adaptive paper's protocol",
            "parameters": f"{found.costs['parameters']:,.0f}",
        }
    )
