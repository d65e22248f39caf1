"""The terminal: progress bars, tables, notes, quiet libraries, and what an interruption says."""

import contextlib
import logging
import signal
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ldsearch.errors import BudgetError
from ldsearch.runs.compressed import Compressed
from ldsearch.runs.run import newest_supernet
from ldsearch.runs.summary import Summary
from ldsearch.trials.goal import Goal, MostAccurate, NoWorse
from ldsearch.trials.trial import Trial
from ldsearch.work.interruption import Interrupted
from ldsearch.work.progress import NO_PROGRESS, Best, Counted, Lines, Progress

if TYPE_CHECKING:
    from ldsearch.bench import Bench

WIDTH = 80  # columns of a terminal
_FREE = 12  # a last column that is wider holds text, which begins on the left


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
    with lines_without_terminal():
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


def print_summary(done: Summary) -> None:
    """The table that tells what came out, its sentences, and how to use the file, where there is one."""
    print_columns([*done.table.columns], done.table.to_numpy().tolist(), 1)
    for sentence in done.words:
        print_paragraph(sentence)
    if not isinstance(done, Compressed):
        return
    cheapest = min(point["macs"] for point in done.points)
    place = str(done.folder / "model")
    print(f'use it: ldsearch.load({place!r}), or the cheapest of its rows with budget="{cheapest:.2f}"')


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


def print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]], bold: int | None = None) -> None:
    """Aligned text without a frame, numbers to the right; the last column is free, and no line is wrapped.

    Args:
        headings: One for each column.
        rows: Their cells.
        bold: Index of the row that stands out.
    """
    widths = [max(len(line[at]) for line in [headings, *rows]) for at in range(len(headings))]
    console = Console(highlight=False, soft_wrap=True)
    for index, line in enumerate([headings, *rows]):
        *cells, last = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        text = "  ".join([*cells, line[-1] if widths[-1] > _FREE else last])
        console.print(Text(text.rstrip()), style="bold" if bold is not None and index == bold + 1 else "")


def print_paragraph(text: str) -> None:
    """Text in lines of at most 80 columns; those after the first are indented."""
    print(textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


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


class ProgressBars(Counted):
    """A progress bar per phase with the time left, and the best so far."""

    def __init__(self, progress: rich_progress.Progress, best: Best | None = None) -> None:
        super().__init__(best)
        self.progress = progress
        self.bar = progress.add_task("", total=None, state="")

    def phase(self, name: str, total: int | None) -> None:
        """Start a bar of its own."""
        self.progress.remove_task(self.bar)
        self.bar = self.progress.add_task(name, total=total, state="")
        super().phase(name, total)

    def changed(self) -> None:
        """Move the bar."""
        self.progress.update(self.bar, completed=self.done, state=self.state)


@contextlib.contextmanager
def progress_bars(phase: str | None = None, best: Best | None = None) -> Iterator[Counted]:
    """Progress on the terminal while the block runs: bars; where there is none, a line a minute.

    Args:
        phase: Begins at once.
        best: See ``Counted``.
    """
    console = Console()
    if not _moves(console):
        with Lines(_print_line, best).ticking() as lines:
            if phase is not None:
                lines.phase(phase, None)
            yield lines
        return
    # With a name, a count, the time and the best so far these fit 80 columns.
    columns = (TextColumn("{task.description}"), BarColumn(18), MofNCompleteColumn(), TimeRemainingColumn())
    with rich_progress.Progress(
        *columns, TextColumn("{task.fields[state]}"), console=console, transient=True
    ) as progress:
        bars = ProgressBars(progress, best)
        if phase is not None:
            bars.phase(phase, None)
        yield bars


@contextlib.contextmanager
def lines_without_terminal() -> Iterator[Progress]:
    """A line a minute where there is no terminal; on one nothing, for work with a bar of its own."""
    if _moves(Console()):
        yield NO_PROGRESS
        return
    with Lines(_print_line).ticking() as lines:
        lines.phase("reading data and model", None)
        yield lines


def _moves(console: Console) -> bool:
    """Whether bars can move there."""
    return console.is_terminal and not console.is_dumb_terminal


def _print_line(text: str) -> None:
    print(text, flush=True)


def best_so_far(goal: Goal) -> Best:
    """The trial that a goal would take of those measured so far, for progress."""
    # A bound takes each example's score, which only a finished search has.
    take = MostAccurate() if isinstance(goal.take, NoWorse) else goal.take

    def best(trials: Sequence[Trial]) -> Trial | None:
        full, *others = trials
        try:
            return take.choose(others, full)
        except BudgetError:  # nothing measured yet will do
            return None

    return best


def describe_choice(best: Trial, full: Trial) -> str:
    """Score, cost and sub-network in one line."""
    return (
        f"{best.metric} {best.score.value:.4f} at {best.costs['macs'] / full.costs['macs']:.3f} of the MACs "
        f"(full model {full.score.value:.4f}); {best.subnet.describe()}"
    )
