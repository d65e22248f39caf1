"""The command line: binds the options of each verb, calls it, turns errors into one line and an exit code."""

import contextlib
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from importlib import import_module
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

import typer

from ldsearch import __version__
from ldsearch.errors import LdsearchError, MachineError, of_system, printable
from ldsearch.options import VERBS, flag_of, panel_of
from ldsearch.options.binding import read_trainer

# Verbs of 0.1 and what took their place.
FORMER = MappingProxyType(
    {
        "select": "`ldsearch evolve --strategy every-other`",
        "pareto": "`ldsearch info RUN --budget 0.6`",
        "grid": "`ldsearch evaluate SUPERNET --all-depths`",
        "recover": "`ldsearch train-supernet --model RUN`",
        "health": "`ldsearch report RUN --health`",
        "importance": "`ldsearch report RUN --importance`",
        "tune": "examples/tune.py",
    }
)


def _print_json(value: Any, quiet: bool, as_json: bool) -> None:
    """Print what a command returned, where that is all that is wanted."""
    if as_json:
        print(json.dumps(value, default=str), file=sys.__stdout__)


app = typer.Typer(
    result_callback=_print_json,
    help="Train a transformer once so that it works at every depth and length, search it for the "
    "sub-network that fits a budget, and export that as an ordinary model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"ldsearch {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, expose_value=False, help="Print the version."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors and notes only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, what the command found, and nothing else.")
    ] = False,
) -> None:
    """Options of every command."""
    if quiet or as_json:
        context.with_resource(contextlib.redirect_stdout(io.StringIO()))


def bound(verb: str, options: type[Any]) -> Callable[..., Any]:
    """A function whose signature is the options of a verb, as typer reads it."""
    hints = get_type_hints(options)
    shown = {field.name: field for field in fields(options) if field.metadata}

    def call(context: typer.Context, **values: Any) -> Any:
        words = list(context.args)
        for name, value in values.items():
            if isinstance(value, list) and "trainer" in hints:
                # Folders in any number take the flags that follow them for folders.
                split = next((i for i, word in enumerate(value) if str(word).startswith("-")), len(value))
                words, value = [*map(str, value[split:]), *words], value[:split]
            if value is not None and (read := shown[name].metadata["read"]):
                # Numbers with commas between may also be given one by one.
                text = ",".join(value) if isinstance(value, list) else value
                values[name] = None if value == [] else read(flag_of(name), text)
            elif isinstance(value, list):
                values[name] = tuple(value)
        # An option that was not given keeps the default that its field has.
        given = {name: value for name, value in values.items() if value is not None}
        if "trainer" in hints:
            given["trainer"] = read_trainer(words)
        return import_module(f"ldsearch.commands.{verb.replace('-', '_')}").main(options(**given))

    parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [_parameter(options, field, hints[name]) for name, field in shown.items()]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Without a blank line between them typer makes one paragraph of a list.
    call.__doc__ = re.sub(r"(?<!\n)\n( *- `)", r"\n\n\1", str(options.__doc__))
    return call


def _parameter(options: type[Any], field: Field[Any], kind: Any) -> Parameter:
    about = field.metadata
    default: Any = ... if field.default is MISSING else field.default
    if about["read"] is not None:
        several = get_origin(kind) is tuple
        kind, default = (list[str], []) if several else (str | None, ... if default is ... else None)
    elif get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
        default = list(default)
    if about["argument"]:
        info = typer.Argument(help=about["help"], metavar=about["argument"])
    else:
        shown = about["shown"]
        info = typer.Option(
            flag_of(field.name),
            help=about["help"],
            rich_help_panel=panel_of(options, field.name),
            min=about["least"],
            max=about["most"],
            show_default=True if shown is None else shown,
        )
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if default is ... else default,
        annotation=Annotated[kind, info],
    )


for _verb, _options in VERBS.items():
    _passes_on = {"allow_extra_args": True, "ignore_unknown_options": True}  # to TrainingArguments
    _takes_flags = any(field.name == "trainer" for field in fields(_options))
    app.command(_verb, context_settings=_passes_on if _takes_flags else None)(bound(_verb, _options))


def main() -> None:
    """Entry point: what went wrong is one line on stderr.

    The exit code is 2 for what a user can put right (options, data, files), 1 for the machine and the
    network, 130 and 143 after SIGINT and SIGTERM.
    """
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    try:
        if words and words[0] in FORMER:
            raise LdsearchError(f"`ldsearch {words[0]}` is now {FORMER[words[0]]}")
        code = app(standalone_mode=False)
        sys.stdout.flush()  # here, where a full disk behind it can still be said
    except LdsearchError as error:
        _leave(str(error), error.exit_code)
    except typer.TyperException as error:
        # Without any argument typer has printed the help, and says no more.
        _leave(error.format_message(), 2)
    except typer.Abort:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # whoever read the output has seen enough
        _leave("", 1)
    except OSError as error:
        refused = of_system(f"cannot use {error.filename or 'the output'}", error)
        _leave(str(refused), refused.exit_code)
    except MemoryError:
        _leave("out of memory", MachineError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _leave(message: str, code: int) -> NoReturn:
    """Print one line and end; what cannot be printed any more is dropped."""
    if line := " ".join(message.split()):
        print(f"error: {printable(line)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        # Python would try again when it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
