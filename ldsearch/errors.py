"""Exceptions that callers can catch."""

import errno
import os
from collections.abc import Iterable
from typing import ClassVar

_LONGEST = 300  # of a name in a message


class LdsearchError(Exception):
    """Base of every error that ldsearch raises on purpose; its message is one line for a person."""

    exit_code: ClassVar[int] = 2


class MachineError(LdsearchError):
    """The machine or the network failed, not what was asked of it: a full disk, no memory, no connection."""

    exit_code = 1


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


# What a path that a user wrote can be the cause of; everything else is the machine's.
_OF_THE_PATH = frozenset(
    {
        *(
            errno.ENOENT,
            errno.ENOTDIR,
            errno.EISDIR,
            errno.EEXIST,
            errno.ENOTEMPTY,
            errno.EACCES,
            errno.EPERM,
        ),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EXDEV),
    }
)


def of_system(what: str, error: OSError) -> LdsearchError:
    """The error to raise for what the operating system refused.

    Args:
        what: What was tried, as ``"cannot write to runs/new"``.
        error: The refusal.

    Returns:
        A ``RunError`` where the path is at fault, a ``MachineError`` where the machine is (a full or
        read-only disk).
    """
    reason = one_line(error) if error.errno is None else os.strerror(error.errno)
    kind = RunError if error.errno in _OF_THE_PATH else MachineError
    return kind(f"{what if len(what) < 200 else what[:200] + '...'}: {reason}")


def one_line(error: BaseException) -> str:
    """Another library's message on one line, without the error's type where there is a message.

    A ``KeyError`` says no more than its key; here it says that the key is missing.
    """
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return " ".join(str(error).split()) or type(error).__name__


def shortened(name: str) -> str:
    """A name in a message; of a very long one the two ends."""
    return name if len(name) <= _LONGEST else f"{name[:100]}...{name[-100:]}"


def printable(text: str) -> str:
    """Text that any terminal takes: bytes of a path that are no UTF-8 are written out."""
    return text.encode(errors="backslashreplace").decode()


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The one line that refuses a name, with those that there are."""
    return f"unknown {what} {name!r}: use one of {', '.join(known)}"
