"""Options as dataclass fields: their help, how their text is read, and how they are recorded."""

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from ldsearch.errors import DataError, LdsearchError, RunError, TrainingError


def option(
    default: Any,
    help: str,
    *,
    panel: str | None = None,
    shown: str | None = None,
    least: float | None = None,
    read: Callable[[str], Any] | None = None,
    argument: str | None = None,
) -> Any:
    """A field that is an option of the command line.

    Args:
        default: Its default; ``...``: it must be given.
        help: One sentence.
        panel: The heading it stands under in ``--help``.
        shown: The default as ``--help`` prints it, where the value says too little.
        least: The least value.
        read: Makes the value from the command line's text, where its type does not say how.
        argument: It is given without a flag; this is its placeholder in the usage line.
    """
    described = {
        "help": help,
        "panel": panel,
        "shown": shown,
        "least": least,
        "read": read,
        "argument": argument,
    }
    return field(metadata=described, **({} if default is ... else {"default": default}))


def read_rates(text: str) -> tuple[float, ...]:
    """``"0,0.1,0.2"`` as numbers.

    Raises:
        TrainingError: If a part is no number.
    """
    return _numbers(
        text,
        TrainingError(
            f"cannot read the LayerDrop probability {text!r}: give one number, or one per block as 0,0.1,0.2"
        ),
    )


def read_search_rows(text: str) -> int | str:
    """``auto``, ``train`` or ``half``, or a number of rows.

    Raises:
        DataError: If it is neither.
    """
    if text in ("auto", "train", "half"):
        return text
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise DataError(f"--search-rows takes auto, train, half or a number above 0, not {text!r}")
    return int(text)


def read_share(text: str) -> float:
    """``"1/2"`` as 0.5.

    Raises:
        TrainingError: If it is no number.
    """
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise TrainingError(f"--batch-share takes 1, 1/2, 1/4, ..., not {text!r}") from None


def read_shares(text: str) -> tuple[float, ...]:
    """``"0.4,0.55"`` as (0.4, 0.55).

    Raises:
        RunError: If a part is no number.
    """
    return _numbers(text, RunError(f"cannot read the budgets {text!r}: give shares such as 0.4,0.55"))


def _numbers(text: str, refusal: LdsearchError) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise refusal from None


def read_depths(text: str) -> tuple[int, ...]:
    """``"4,2"`` as (4, 2).

    Raises:
        RunError: If a part is no number above 0.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise RunError(f"{text!r} names no numbers of blocks: 4, or 4,2 for an encoder and a decoder")
    return tuple(int(part) for part in parts)


def read_batches(text: str) -> tuple[int, ...]:
    """``"1,8,32"`` as numbers above 0, distinct and in order.

    Raises:
        LdsearchError: If a part is anything else.
    """
    return tuple(int(part) for part in _counts(text, "--batch"))


def read_lengths(text: str) -> tuple[int | str, ...]:
    """``"64,128,data"``: numbers above 0, or ``data``, distinct and in order.

    Raises:
        LdsearchError: If a part is anything else.
    """
    return _counts(text, "--length", "data")


def _counts(text: str, flag: str, *words: str) -> tuple[int | str, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part in words or (part.isascii() and part.isdigit() and int(part) > 0) for part in parts):
        allowed = " or ".join(["whole numbers above 0", *words])
        raise LdsearchError(f"cannot read {flag} {text!r}: give {allowed}, separated by commas")
    return tuple(dict.fromkeys(part if part in words else int(part) for part in parts))


def changed(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, ready for JSON."""
    values = {}
    for field_ in fields(options):
        value = getattr(options, field_.name)
        default = field_.default_factory() if callable(field_.default_factory) else field_.default
        if value != default:
            values[field_.name] = _plain(value)
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
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
