"""What the commands share: options, progress bars, tables, quiet libraries."""

import contextlib
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldsearch.interruption import Interrupted

if TYPE_CHECKING:
    from rich.progress import Progress

    from ldsearch.bench import Workbench
    from ldsearch.trial import Trial

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
        help="score, or kl: search, without labels, for outputs like the full model's, and measure the "
        "frontier of that by the score. And what is minimised: macs, parameters, "
        "latency@batch=8,length=128, or several joined by +.",
        show_default="score+macs; a budget in ms: score+latency",
    ),
]
LatencyTable = Annotated[
    Path | None,
    typer.Option(
        help="Of `ldsearch profile --table`, where a latency is asked for.",
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
        show_default="the runs' measurements.db",
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
    from ldsearch.bench import Workbench
    from ldsearch.runs import newest_supernet

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

    def step(self) -> None:
        """One step further."""
        self.progress.update(self.bar, advance=1)

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
