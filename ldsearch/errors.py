"""Exceptions that callers can catch."""

from collections.abc import Iterable


class LdsearchError(Exception):
    """Base of every error that ldsearch raises on purpose; its message is one line for a person."""


class DataError(LdsearchError):
    """The data is missing, empty, or does not fit the model."""


class SubnetError(LdsearchError):
    """A sub-network that the model or the search space cannot express."""


class SpaceError(LdsearchError):
    """A search space that cannot be read or does not fit the supernet."""


class BudgetError(LdsearchError):
    """A budget that cannot be read, or that no sub-network of the space meets."""


class SupernetError(LdsearchError):
    """A folder that is not a supernet, or a model family that is not supported."""


class RunError(LdsearchError):
    """A run folder that is not one, or that belongs to another run."""


class ExportError(LdsearchError):
    """An export that cannot be made, or that is not the sub-network it should be."""


class TrainingError(LdsearchError):
    """Training options that contradict each other or that the Trainer does not know."""


def one_line(error: BaseException) -> str:
    """Another library's message on one line, without the error's type where there is a message.

    A ``KeyError`` says no more than its key; here it says that the key is missing.
    """
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return " ".join(str(error).split()) or type(error).__name__


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The one line that refuses a name, with those that there are."""
    return f"unknown {what} {name!r}: use one of {', '.join(known)}"
