"""Options as dataclass fields: their help, how their text is read, and how they are recorded."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from ldsearch.disk.secrets import without_password, without_tokens
from ldsearch.errors import LdsearchError, TrainingError

Read = Callable[[str, str], Any]
STACKS = ("encoder", "decoder")


def option(
    default: Any,
    help: str,
    *,
    shown: str | None = None,
    least: float | None = None,
    most: float | None = None,
    read: Read | None = None,
    argument: str | None = None,
) -> Any:
    """A field that is an option of the command line.

    Args:
        default: Its default; ``...``: it must be given.
        help: One sentence.
        shown: The default as ``--help`` prints it, where the value says too little.
        least: The least value.
        most: The largest.
        read: Makes the value from its flag and text, where its type does not say how.
        argument: It is given without a flag; this is its placeholder in the usage line.
    """
    described = {
        "help": help,
        "shown": shown,
        "least": least,
        "most": most,
        "read": read,
        "argument": argument,
    }
    return field(metadata=described, **({} if default is ... else {"default": default}))


def numbers(
    kind: type[int] | type[float], expected: str, *, words: Collection[str] = (), distinct: bool = False
) -> Read:
    """A reader of numbers, or words, separated by commas; it raises ``LdsearchError`` for anything else.

    Args:
        kind: ``int`` for whole numbers above 0; ``float`` for any, fractions such as 1/2 too.
        expected: What the text may be, for the error.
        words: What may stand for a number.
        distinct: Whether to drop repetitions.
    """

    def read(flag: str, text: str) -> tuple[Any, ...]:
        try:
            values = [
                part if part in words else _number(kind, part) for part in map(str.strip, text.split(","))
            ]
        except (ValueError, ArithmeticError):
            raise LdsearchError(f"cannot read {flag} {text!r}: give {expected}") from None
        return tuple(dict.fromkeys(values) if distinct else values)

    return read


def number(kind: type[int] | type[float], expected: str, *, words: Collection[str] = ()) -> Read:
    """A reader of one number, or word, as of ``numbers``."""

    def read(flag: str, text: str) -> Any:
        values = numbers(kind, expected, words=words)(flag, text)
        if len(values) > 1:
            raise LdsearchError(f"cannot read {flag} {text!r}: give {expected}")
        return values[0]

    return read


def names(flag: str, text: str) -> tuple[str, ...]:
    """Names, separated by commas.

    Raises:
        LdsearchError: If one is empty or stands twice.
    """
    values = tuple(part.strip() for part in text.split(","))
    if not all(values) or len({*values}) < len(values):
        raise LdsearchError(f"cannot read {flag} {text!r}: give distinct names with commas between")
    return values


def pairs(flag: str, text: str) -> dict[str, str]:
    """Values by name: ``steps=3,share=0.5``.

    Raises:
        LdsearchError: If a part is no name and value, or a name stands twice.
    """
    parts = [part.partition("=") for part in text.split(",")]
    values = {name.strip(): value.strip() for name, _, value in parts}
    if not all(name and value for name, value in values.items()) or len(values) < len(parts):
        raise LdsearchError(f"cannot read {flag} {text!r}: give names and values as steps=3,share=0.5")
    return values


def per_stack(read: Read) -> Read:
    """A reader of one value for every stack, or of one for each: ``encoder=0.2,decoder=0,0.5``.

    Args:
        read: Reads a value, which may hold commas.

    Returns:
        Reads what ``read`` reads, or a dict from the stacks that are named to their values.
    """

    def named(flag: str, text: str) -> Any:
        if "=" not in text:
            return read(flag, text)
        values: dict[str, Any] = {}
        for part in re.split(r",\s*(?=[a-z]+=)", text.strip()):
            stack, equals, value = part.partition("=")
            if not equals or stack not in STACKS or stack in values:
                raise LdsearchError(
                    f"cannot read {flag} {text!r}: name encoder and decoder, each at most once: "
                    "encoder=...,decoder=..."
                )
            values[stack] = read(flag, value)
        return values

    return named


def _number(kind: type[int] | type[float], text: str) -> int | float:
    from ldsearch.space.lengths import as_fraction  # NumPy, which ``--help`` needs not

    number = as_fraction(text)
    if kind is int and (number < 1 or number.denominator != 1 or number > 2**31):
        raise ValueError
    return kind(number)


_SECRETS: Mapping[str, Callable[[Any], Any]] = {"trainer": without_tokens, "storage": without_password}


def changed(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, ready for JSON and without tokens and passwords."""
    values = {}
    for field_ in fields(options):
        value = getattr(options, field_.name)
        default = field_.default_factory() if callable(field_.default_factory) else field_.default
        if value != default:
            values[field_.name] = _SECRETS.get(field_.name, _plain)(_plain(value))
    return values


def trainer_words(trainer: Mapping[str, Any]) -> list[str]:
    """Flags of TrainingArguments as the command line gives them, each with its value.

    A flag without one would do for most booleans, but not for those whose default is None.
    """
    return [word for name, value in trainer.items() for word in (f"--{name}", str(value))]


def read_trainer(words: list[str]) -> dict[str, Any]:
    """``["--bf16", "--max_steps", "9"]`` as ``{"bf16": True, "max_steps": "9"}``.

    Raises:
        TrainingError: If a word is no flag and follows none.
    """
    trainer: dict[str, Any] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            trainer[name] = value if equals else True
            name = None if equals else name
        elif name is None:
            raise TrainingError(f"neither ldsearch nor the Trainer knows {word}")
        else:
            trainer[name] = word
            name = None
    return trainer


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
