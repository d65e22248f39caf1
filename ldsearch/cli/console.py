"""What the commands share: options, progress bars, tables, quiet libraries."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ldsearch.trial import Trial
    from ldsearch.workflows.search import OnTrial, RunOutcome
    from ldsearch.workflows.workbench import Workbench

Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")]
Name = Annotated[str | None, typer.Option("--name", help="Folder below --runs to write to.")]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.", min=0)]
Supernet = Annotated[
    Path | None, typer.Option("--supernet", help="Supernet folder.", show_default="the newest in --runs")
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", help="The most it may cost: 0.4 (share of the full model's MACs), 2.1GMACs, 60Mparams."
    ),
]
MovedData = Annotated[
    str | None, typer.Option("--data", help="Where the supernet's data lie now, if they were moved.")
]
SubnetOption = Annotated[
    str | None, typer.Option("--subnet", help="Sub-network as JSON, a file that holds it, or 'full'.")
]


def open_bench(supernet: Path | None, runs: Path, data: str | None = None) -> "Workbench":
    """Load the named supernet, or the newest of the folder, and say which."""
    from ldsearch.runs import newest_supernet
    from ldsearch.workflows.workbench import Workbench

    quiet_libraries()
    folder = supernet or newest_supernet(runs)
    bench = Workbench.open(folder, data=data, runs=runs)
    print(f"supernet {folder}: {len(bench.evaluator.labels)} {bench.evaluator.split} examples")
    for note in bench.notes:
        print(f"note: {note}", file=sys.stderr)
    return bench


def check_budget(text: str | None) -> None:
    """Refuse a budget that cannot be read before anything is loaded."""
    from ldsearch.costs.budget import Budget

    if text is not None:
        Budget.parse(text)


def quiet_libraries() -> None:
    """Progress bars of our own suffice."""
    import logging

    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_warning()
    transformers_logging.disable_progress_bar()
    # Data folders have a README of their own; that it is no dataset card is no news.
    logging.getLogger("huggingface_hub.repocard").setLevel(logging.ERROR)


@contextlib.contextmanager
def resumable(how: str) -> Iterator[None]:
    """Turn Ctrl-C into one line that says how to go on, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\ninterrupted: {how}", file=sys.stderr)
        raise typer.Exit(130) from None


@contextlib.contextmanager
def trial_progress(total: int) -> Iterator["OnTrial"]:
    """A progress bar over trials with the time left; a callback to advance it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), transient=True) as progress:
        bar = progress.add_task("", total=total)

        def on_trial(trial: "Trial") -> None:
            progress.update(bar, advance=1, description=f"{trial.metric} {trial.score.value:.4f}")

        yield on_trial


def print_outcome(outcome: "RunOutcome") -> None:
    """The frontier, the choice, and where the reports lie."""
    from rich.console import Console
    from rich.table import Table

    result, best = outcome.result, outcome.best
    full = result.trials[0]
    table = Table(title=f"frontier: {len(result.frontier)} of {len(result.trials)} trials")
    for heading in ("MACs share", full.metric, "parameters", "sub-network"):
        table.add_column(heading, overflow="fold")
    for trial in result.frontier:
        table.add_row(
            f"{trial.costs['macs'] / full.costs['macs']:.3f}",
            f"{trial.score.value:.4f}",
            f"{trial.costs['parameters']:,.0f}",
            trial.subnet.describe(),
            style="bold" if trial is best else "",
        )
    Console().print(table)
    print(f"stopped: {result.stopped}")
    print(
        f"chosen: {best.metric} {best.score.value:.4f} at {best.costs['macs'] / full.costs['macs']:.3f} of "
        f"the MACs (full model {full.score.value:.4f}); {best.subnet.describe()}"
    )
    print(f"the search chose by these scores, so they are optimistic: ldsearch evaluate {outcome.folder}")
    print(f"written: {outcome.folder}/ (trials.csv, frontier.csv, frontier.png, best.json)")


def print_fields(fields: Mapping[str, str]) -> None:
    """Label and text, aligned."""
    width = max(map(len, fields))
    for label, text in fields.items():
        print(f"{label:<{width}}  {text}")
