"""The command line: one file per command; each parses, calls, prints, and decides nothing."""

import contextlib
import io
import json
import sys
from typing import Annotated, Any

import typer
import typer.core

from ldsearch.cli.compare import compare
from ldsearch.cli.distill_data import distill_data
from ldsearch.cli.evaluate import evaluate
from ldsearch.cli.evolve import evolve
from ldsearch.cli.export import export
from ldsearch.cli.grid import grid
from ldsearch.cli.health import health
from ldsearch.cli.importance import importance
from ldsearch.cli.info import info
from ldsearch.cli.pareto import pareto
from ldsearch.cli.profile import profile
from ldsearch.cli.recover import recover
from ldsearch.cli.report import report
from ldsearch.cli.select import select
from ldsearch.cli.train_supernet import train_supernet
from ldsearch.errors import LdsearchError

# Commands of earlier versions, and what to use instead.
MOVED = {"tune": "examples/tune.py"}


class _Commands(typer.core.TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args and args[0] in MOVED:
            raise LdsearchError(f"`ldsearch {args[0]}` is now {MOVED[args[0]]}")
        return super().resolve_command(ctx, args)


def _answer(value: Any, quiet: bool, as_json: bool) -> None:
    """Print what a command returned, where that is all that is wanted."""
    if as_json:
        print(json.dumps(value, default=str), file=sys.__stdout__)


app = typer.Typer(
    cls=_Commands,
    result_callback=_answer,
    help="Train a transformer once so that it works at every depth and length, search it for the "
    "sub-network that fits a budget, and export that as an ordinary model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)
# What these do not know goes to the Trainer.
trains = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command("train-supernet", context_settings=trains)(train_supernet)
app.command("distill-data")(distill_data)
app.command("evolve")(evolve)
app.command("select")(select)
app.command("compare")(compare)
app.command("pareto")(pareto)
app.command("evaluate")(evaluate)
app.command("grid")(grid)
app.command("recover", context_settings=trains)(recover)
app.command("health", context_settings=trains)(health)
app.command("importance")(importance)
app.command("profile")(profile)
app.command("report")(report)
app.command("export")(export)
app.command("info")(info)


@app.callback()
def _options(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors and notes only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, what the command found, and nothing else.")
    ] = False,
) -> None:
    """Options of every command."""
    if quiet or as_json:
        context.with_resource(contextlib.redirect_stdout(io.StringIO()))


def main() -> None:
    """Entry point: what a user did wrong is one line on stderr and exit code 2."""
    try:
        app()
    except LdsearchError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
