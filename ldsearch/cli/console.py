"""What the commands share: options, progress bars, tables, quiet libraries."""

import contextlib
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldsearch.interruption import Interrupted

if TYPE_CHECKING:
    from rich.progress import Progress

    from ldsearch.trial import Trial
    from ldsearch.workflows.outcome import RunOutcome
    from ldsearch.workflows.workbench import Workbench

Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")]
Name = Annotated[str | None, typer.Option("--name", help="Folder below --runs to write to.")]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.", min=0)]
Steps = Annotated[int, typer.Option("--steps", help="Optimizer steps of a training.", min=1)]
Supernet = Annotated[
    Path | None, typer.Option("--supernet", help="Supernet folder.", show_default="the newest in --runs")
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        help="The most it may cost: 0.4 (share of the full model's MACs), 2.1GMACs, 60Mparams, "
        "12ms@batch=8,length=128.",
    ),
]
AtLeast = Annotated[
    str | None,
    typer.Option("--at-least", help="The cheapest that scores at least so much: 0.9, or full (the model)."),
]
MostAccurate = Annotated[
    bool, typer.Option("--most-accurate", help="The best score at any cost; the default.")
]
Objective = Annotated[
    str,
    typer.Option(
        help="score; kl: search, without labels, for outputs like the full model's, and measure the frontier "
        "of that by the score."
    ),
]
LatencyTable = Annotated[
    Path | None,
    typer.Option(
        help="Of `ldsearch profile --table`, for a budget in milliseconds.",
        show_default="<supernet>-latency.csv",
    ),
]
Swap = Annotated[
    bool,
    typer.Option("--swap", help="Choose on the report rows and score on the search rows: the other half."),
]
Beams = Annotated[int, typer.Option("--beams", help="Of beam search; 1 is greedy.")]
LengthPenalty = Annotated[
    float,
    typer.Option("--length-penalty", help="A log-probability is divided by the text's length to this power."),
]
NoRepeatNgram = Annotated[
    int, typer.Option("--no-repeat-ngram", help="No run of so many tokens twice in a text; 0: any may.")
]
MinTarget = Annotated[int, typer.Option("--min-target", help="The fewest tokens of a text.")]
MaxTarget = Annotated[int, typer.Option("--max-target", help="The most tokens of a text.")]
MovedData = Annotated[
    str | None, typer.Option("--data", help="Where the supernet's data lie now, if they were moved.")
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        help="Where workers share measurements: journal:PATH, or the SQLAlchemy URL of a database.",
        show_default="measurements.db in --runs",
    ),
]
SubnetOption = Annotated[
    str | None, typer.Option("--subnet", help="Sub-network as JSON, a file that holds it, or 'full'.")
]


def open_bench(
    supernet: Path | None,
    runs: Path,
    data: str | None = None,
    swap: bool = False,
    storage: str | None = None,
) -> "Workbench":
    """Load the named supernet, or the newest of the folder, and say which."""
    from ldsearch.runs import newest_supernet
    from ldsearch.workflows.workbench import Workbench

    quiet_libraries()
    folder = supernet or newest_supernet(runs)
    bench = Workbench.open(folder, "report" if swap else "search", data, runs, storage=storage)
    print(f"supernet {folder}: {bench.evaluator.examples} {bench.evaluator.split} examples")
    print_notes(bench.notes)
    return bench


def print_notes(notes: Iterable[str]) -> None:
    """What the user should know before trusting a number, on stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


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
    """Turn a stop that was asked for into one line that says how to go on, and the shell's exit code."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        print(f"\ninterrupted: {how}", file=sys.stderr)
        signum = stop.signum if isinstance(stop, Interrupted) else signal.SIGINT
        raise typer.Exit(128 + signum) from None


class ProgressWatcher:
    """A progress bar per phase with the time left, and the last score."""

    def __init__(self, progress: "Progress") -> None:
        self.progress = progress
        self.bar = progress.add_task("", total=None, score="")

    def phase(self, name: str, total: int | None) -> None:
        """Start a bar of its own."""
        self.progress.remove_task(self.bar)
        self.bar = self.progress.add_task(name, total=total, score="")

    def trial(self, trial: "Trial") -> None:
        """One step further."""
        self.progress.update(self.bar, advance=1, score=f"{trial.metric} {trial.score.value:.4f}")

    def waiting(self, missing: int) -> None:
        """Say why nothing moves."""
        self.progress.update(self.bar, score="waiting for another worker")


@contextlib.contextmanager
def watching() -> Iterator[ProgressWatcher]:
    """Progress bars on the terminal while the block runs."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[score]}"), transient=True) as progress:
        yield ProgressWatcher(progress)


def print_outcome(outcome: "RunOutcome") -> dict[str, Any]:
    """The frontier, what held-out rows say of it, the choice, and where the reports lie.

    Returns:
        For ``--json``: the run's folder, and what ``best.json`` says.
    """
    from rich.console import Console
    from rich.table import Table

    from ldsearch.runs import BEST_FILE, read_json

    result, best, held = outcome.result, outcome.best, outcome.held_out
    full = result.trials[0]
    table = Table(title=f"frontier: {len(result.frontier)} of {len(result.trials)} trials")
    for heading in ("MACs share", f"{full.metric}, {full.split}"):
        table.add_column(heading)
    held_rows = {row.trial.subnet: row for row in held.rows} if held else {}
    if held:
        table.add_column(held.split)
        table.add_column("minus full, 95%")
    # Lengths change no parameters: a column that says so in every row is noise.
    parameters = len({trial.costs["parameters"] for trial in result.frontier}) > 1
    if parameters:
        table.add_column("parameters")
    table.add_column("sub-network", overflow="fold")
    for trial in result.frontier:
        cells = [f"{trial.costs['macs'] / full.costs['macs']:.3f}", f"{trial.score.value:.4f}"]
        if held:
            row = held_rows[trial.subnet]
            cells += [f"{row.score:.4f}", f"{row.difference.low:+.4f} to {row.difference.high:+.4f}"]
        if parameters:
            cells.append(f"{trial.costs['parameters']:,.0f}")
        table.add_row(*cells, trial.subnet.describe(), style="bold" if trial is best else "")
    Console().print(table)
    print(f"stopped: {result.stopped}")
    for name, control in outcome.controls.items():
        print(f"control {name}: {len(control.trials)} trials of the search's {len(result.trials)}")
    print(f"cost, controls included: {outcome.counts.describe()}")
    for sentence in held.describe() if held else ():
        print(sentence)
    _print_choice(outcome)
    controls = " controls.csv," if outcome.controls else ""
    print(f"written: {outcome.folder}/ (trials.csv,{controls} frontier.csv, frontier.png, best.json)")
    return {"run": str(outcome.folder), **read_json(outcome.folder / BEST_FILE)}


def _print_choice(outcome: "RunOutcome") -> None:
    best, held = outcome.best, outcome.held_out
    print(f"chosen ({outcome.selector.text}): {describe_choice(best, outcome.result.trials[0])}")
    if outcome.latency:
        print(outcome.latency.describe())
    if held:
        chosen = next(row for row in held.rows if row.trial.subnet == best.subnet)
        print(
            f"on {chosen.difference.examples} {held.split} examples, which chose nothing: "
            f"{chosen.score:.4f}, {chosen.difference.mean:+.4f} to the full model (95% interval "
            f"{chosen.difference.low:+.4f} to {chosen.difference.high:+.4f})"
        )
    else:
        print("the search chose by these scores, and there are no other rows: they are optimistic")


def describe_choice(best: "Trial", full: "Trial") -> str:
    """Score, cost and sub-network in one line."""
    return (
        f"{best.metric} {best.score.value:.4f} at {best.costs['macs'] / full.costs['macs']:.3f} of the MACs "
        f"(full model {full.score.value:.4f}); {best.subnet.describe()}"
    )


def numbers(text: str | None) -> tuple[int, ...] | None:
    """``"4,2"`` as (4, 2).

    Raises:
        RunError: If it is anything else.
    """
    from ldsearch.errors import RunError

    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise RunError(f"{text!r} names no numbers of blocks: 4, or 4,2 for an encoder and a decoder")
    return tuple(int(part) for part in parts)


def print_fields(fields: Mapping[str, str]) -> None:
    """Label and text, aligned."""
    width = max(map(len, fields))
    for label, text in fields.items():
        print(f"{label:<{width}}  {text}")
