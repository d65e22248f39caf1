"""ldsearch tune: a study of the hyperparameters that a supernet is trained with."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldsearch.cli.console import Name, Runs, Seed, print_notes, quiet_libraries, resumable

if TYPE_CHECKING:
    from ldsearch.commands.train_options import TrainOptions
    from ldsearch.workflows.tuning.tune import Tuning
    from ldsearch.workflows.tuning.tune_study import Attempt


def tune(
    context: typer.Context,
    vary: Annotated[
        list[str],
        typer.Option(
            help="name=low:high, name=low:high:log or name=a,b,c; names are drop_bound, layer_drop, ... and "
            "the Trainer's arguments; may be given several times."
        ),
    ],
    trials: Annotated[int, typer.Option(help="Trainings in all.", min=1)] = 20,
    evaluations: Annotated[
        int, typer.Option(help="Sub-networks that each supernet is measured by.", min=2)
    ] = 20,
    genes: Annotated[
        str | None,
        typer.Option(
            help="How these differ: lengths, depth, ffn, head, sublayer, or several joined by +.",
            show_default="what is trained",
        ),
    ] = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Keep every supernet, not the best alone.")
    ] = False,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> dict[str, Any]:
    """Find hyperparameters of a training: those whose supernet has the best mean score over the cost range.

    Takes what `train-supernet` takes too. The search rows choose, the report rows score the best once. The
    same command goes on after an interruption; with more --trials it goes on further.

    **Examples**

    - `ldsearch tune --vary learning_rate=1e-4:1e-3:log --vary layer_drop=0,0.1,0.2`

    - `ldsearch tune --data reviews.csv --model bert-base-uncased --bf16 --vary drop_bound=0.1:0.3
      --vary learning_rate=1e-5:1e-4:log --trials 30 --name bert-tune`
    """
    from ldsearch.workflows.tuning.tune import tune as run

    quiet_libraries()
    words = [*context.args, "--seed", str(seed)]
    options = options_of(words)
    stem = Path(options.data).name.split(".")[0] or "supernet"
    folder = runs / (name or f"{stem}-tune")
    with resumable("run the same command again to go on"):
        found = run(
            folder,
            options,
            vary,
            trials=trials,
            evaluations=evaluations,
            genes=genes,
            keep_all=keep_all,
            watcher=_Bar(trials),
        )
    print_notes(found.notes)
    _print(found, words)
    parameters = dict(found.best.parameters)
    return {"run": str(found.folder), "supernet": str(found.supernet), "parameters": parameters}


def options_of(words: Sequence[str]) -> "TrainOptions":
    """What ``ldsearch train-supernet`` would train with these words.

    Raises:
        LdsearchError: One line where it would refuse them; click's errors where they cannot be parsed.
    """
    from ldsearch.cli import app

    taken: list[TrainOptions] = []
    group = typer.main.get_group(app)
    command = group.commands["train-supernet"]
    with command.make_context("train-supernet", list(words), obj=taken) as inner:
        command.invoke(inner)
    return taken[0]


class _Bar:
    """A bar of the trainings with the time left; printed between the Trainer's own bars, which are live."""

    def __init__(self, trials: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.console = Console(stderr=True)
        # Trainings take longer than the 30 seconds that an estimate is made from by default.
        self.progress = Progress(*columns, console=self.console, speed_estimate_period=1e9)
        self.bar = self.progress.add_task("trials", total=trials)

    def started(self, attempt: "Attempt", finished: "Sequence[Attempt]") -> None:
        """What is tried now, and how far the study is."""
        self.progress.update(self.bar, completed=len(finished))
        # The first of two points that a speed takes.
        self.progress.advance(self.bar, 0)
        self.console.print(self.progress.get_renderable())
        print(f"trial {attempt.number}: {_words(attempt)}", file=sys.stderr)

    def ended(self, attempt: "Attempt") -> None:
        """How it went."""
        self.progress.advance(self.bar)
        print(f"trial {attempt.number}: {_result(attempt)}", file=sys.stderr)


def _words(attempt: "Attempt") -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in attempt.parameters.items())


def _short(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _result(attempt: "Attempt") -> str:
    area = attempt.area
    if area is None:
        return f"failed ({attempt.reason})"
    return f"area {area.mean:.4f} ({area.low:.4f} to {area.high:.4f})"


def _print(found: "Tuning", words: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from ldsearch.workflows.tuning.variation import words_of

    best, held = found.best, found.held_out
    assert best.area is not None
    table = Table(
        title=f"area: mean {found.metric} over cost, from {found.low:.3f} of the MACs ({found.space}), on "
        f"{best.area.examples} search examples"
    )
    for heading in ("trial", *best.parameters, "area (95% interval)"):
        table.add_column(heading, overflow="fold")
    for attempt in found.attempts:
        cells = [_short(value) for value in attempt.parameters.values()]
        style = "bold" if attempt is best else ""
        table.add_row(str(attempt.number), *cells, _result(attempt).removeprefix("area "), style=style)
    Console().print(table)
    if held is None:
        print("the area chose, and there are no other rows: it is optimistic")
    else:
        print(
            f"best, trial {best.number}, on {held.examples} report examples, which chose nothing: area "
            f"{held.mean:.4f} (95% interval {held.low:.4f} to {held.high:.4f})"
        )
    name = f"{found.folder.name}-best"
    command = ["ldsearch", "train-supernet", *words, *words_of(best.parameters), "--name", name]
    print(f"its training: {shlex.join(command)}")
    print(f"written: {found.folder}/ (tune.csv, tune.png, tune.json, tune.db)")
    search = f"ldsearch evolve --supernet {found.supernet} --genes {found.space}"
    print(f"supernet {found.supernet}; next: {search}")
