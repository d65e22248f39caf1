"""The terminal: progress bars, tables, notes, quiet libraries, and what an interruption says."""

import contextlib
import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from ldsearch.interruption import Interrupted
from ldsearch.progress import Progress
from ldsearch.runs import newest_supernet
from ldsearch.trial import Trial

if TYPE_CHECKING:
    from ldsearch.bench import Bench


def open_bench(
    supernet: Path | None,
    runs: Path,
    data: str | None = None,
    *,
    split: str = "search",
    storage: str | None = None,
) -> "Bench":
    """Load the named supernet, or the newest of the folder, and say which."""
    from ldsearch.bench import Bench

    quiet_libraries()
    folder = supernet or newest_supernet(runs)
    bench = Bench.open(folder, split, data, runs, storage=storage)
    print(f"supernet {folder}: {bench.evaluator.examples} {bench.evaluator.split} examples")
    print_notes(bench.notes)
    return bench


def print_notes(notes: Iterable[str]) -> None:
    """Print warnings to stderr, a line each."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def print_fields(fields: Mapping[str, str]) -> None:
    """Label and text, aligned."""
    width = max(map(len, fields))
    for label, text in fields.items():
        print(f"{label:<{width}}  {text}")


def print_table(
    title: str | None, headings: Sequence[str], rows: Iterable[Sequence[str]], bold: int | None = None
) -> None:
    """A table; long cells are folded.

    Args:
        title: Above it.
        headings: One for each column.
        rows: Their cells.
        bold: Index of the row that stands out.
    """
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*row, style="bold" if index == bold else "")
    Console().print(table)


def quiet_libraries() -> None:
    """Progress bars of our own suffice."""
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


class ProgressBars(Progress):
    """A progress bar per phase with the time left, and the last score."""

    def __init__(self, progress: rich_progress.Progress) -> None:
        self.progress = progress
        self.bar = progress.add_task("", total=None, score="")

    def phase(self, name: str, total: int | None) -> None:
        """Start a bar of its own."""
        self.progress.remove_task(self.bar)
        self.bar = self.progress.add_task(name, total=total, score="")

    def trial(self, trial: Trial) -> None:
        """One step further."""
        self.progress.update(self.bar, advance=1, score=f"{trial.metric} {trial.score.value:.4f}")

    def step(self) -> None:
        """One step further."""
        self.progress.update(self.bar, advance=1)

    def waiting(self, missing: int) -> None:
        """Say why nothing moves."""
        self.progress.update(self.bar, score="waiting for another worker")


@contextlib.contextmanager
def progress_bars(phase: str | None = None) -> Iterator[ProgressBars]:
    """Progress bars on the terminal while the block runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with rich_progress.Progress(*columns, TextColumn("{task.fields[score]}"), transient=True) as progress:
        bars = ProgressBars(progress)
        if phase is not None:
            bars.phase(phase, None)
        yield bars


def describe_choice(best: Trial, full: Trial) -> str:
    """Score, cost and sub-network in one line."""
    return (
        f"{best.metric} {best.score.value:.4f} at {best.costs['macs'] / full.costs['macs']:.3f} of the MACs "
        f"(full model {full.score.value:.4f}); {best.subnet.describe()}"
    )
