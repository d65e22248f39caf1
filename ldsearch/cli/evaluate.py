"""ldsearch evaluate: score a sub-network beside the full model, by its task's score or by what it writes."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldsearch.cli.console import (
    Beams,
    LengthPenalty,
    MaxTarget,
    MinTarget,
    MovedData,
    NoRepeatNgram,
    SubnetOption,
    print_fields,
    quiet_libraries,
    resumable,
    watching,
)

if TYPE_CHECKING:
    from ldsearch.commands.evaluate import Evaluation, Rescored


def evaluate(
    folder: Annotated[
        Path, typer.Argument(help="A search run, a recovered model, or a supernet with --subnet.")
    ],
    subnet: SubnetOption = None,
    split: Annotated[
        str | None, typer.Option(help="search or report.", show_default="the one that did not choose")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Decode, and score the texts: bleu, rouge1, rouge2 or rougeL.", show_default="the task's"
        ),
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="With --metric: every sub-network of the run's frontier.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="Decode only the first so many examples.", show_default="all", min=1)
    ] = None,
    beams: Beams = 1,
    length_penalty: LengthPenalty = 1.0,
    no_repeat_ngram: NoRepeatNgram = 0,
    min_target: MinTarget = 0,
    max_target: MaxTarget = 128,
    data: MovedData = None,
) -> dict[str, Any]:
    """Score a sub-network and the full model on the same examples, with an interval of the difference.

    **Examples**

    - `ldsearch evaluate runs/docstrings-lengthdrop-evolve`

    - `ldsearch evaluate runs/docstrings-lengthdrop --subnet full --split report`

    - `ldsearch evaluate runs/multi30k-evolve --frontier --metric bleu --beams 4 --limit 200`
    """
    from ldsearch.commands.evaluate import evaluate as run
    from ldsearch.commands.evaluate import evaluate_frontier
    from ldsearch.commands.generation import TextTest, text_metric
    from ldsearch.decoding import Decoding
    from ldsearch.errors import RunError

    quiet_libraries()
    decoding = Decoding(beams, length_penalty, min_target, max_target, no_repeat_ngram)
    if metric is None:
        if frontier or limit is not None or decoding != Decoding():
            raise RunError("--frontier, --limit and the options of decoding are for a --metric of texts")
        scored = run(folder, subnet=subnet, split=split, data=data)
        _print(scored)
        return _fields(scored)
    if frontier and subnet is not None:
        raise RunError("--frontier scores the sub-networks of a run: it takes no --subnet")
    texts = TextTest(text_metric(metric), decoding, limit)
    with resumable("run the same command again; nothing decoded is lost"), watching() as watcher:
        watcher.phase("decoding", None)

        def on_done(done: int, total: int) -> None:
            watcher.progress.update(watcher.bar, completed=done, total=total)

        found = (
            evaluate_frontier(folder, texts, split=split, data=data, on_done=on_done)
            if frontier
            else run(folder, subnet=subnet, split=split, data=data, texts=texts, on_done=on_done)
        )
    _print(found)
    return _fields(found)


def _fields(found: "Evaluation | Rescored") -> dict[str, Any]:
    """For ``--json``."""
    from dataclasses import asdict

    from ldsearch.commands.evaluate import Rescored

    if isinstance(found, Rescored):
        return {"written": str(found.path), "full_score": found.full_score}
    return {
        "subnet": json.loads(found.subnet.to_json()),
        "metric": found.metric,
        "split": found.split,
        "score": found.score.value,
        "full_score": found.full_score.value,
        "difference": asdict(found.difference),
        "costs": found.costs,
        "full_costs": found.full_costs,
    }


def _print(found: "Evaluation | Rescored") -> None:
    from ldsearch.commands.evaluate import Rescored

    if isinstance(found, Rescored):
        _print_frontier(found)
    else:
        _print_one(found)


def _print_one(found: "Evaluation") -> None:
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
            **({"decoded": found.how} if found.how else {}),
            "MACs": f"{found.costs['macs']:,.0f} per example, {share:.3f} of the full model's",
            "padded MACs": f"{padded:.3f} of the full model's, the length-adaptive paper's protocol",
            "parameters": f"{found.costs['parameters']:,.0f}",
        }
    )


def _print_frontier(found: "Rescored") -> None:
    from rich.console import Console
    from rich.table import Table

    from ldsearch.subnet import Subnet

    metric = found.table["metric"].iloc[0]
    table = Table(title=f"frontier, {metric} on {found.examples} {found.split} examples")
    for heading in ("MACs share", "search score", metric, "minus full, 95%", "sub-network"):
        table.add_column(heading, overflow="fold")
    for row in found.table.to_dict("records"):
        table.add_row(
            f"{row['macs_share']:.3f}",
            f"{row['search_score']:.4f}",
            f"{row['generated_score']:.4f}",
            f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}",
            Subnet.from_json(row["subnet"]).describe(),
        )
    Console().print(table)
    print_fields(
        {
            "full model": f"{found.full_score:.4f}",
            "decoded": found.how,
            "written": str(found.path),
        }
    )
