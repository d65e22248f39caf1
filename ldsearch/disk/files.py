"""Our own files: whole or not there when written; one line, never a surprise, when read."""

import contextlib
import errno
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ldsearch.errors import LdsearchError, MachineError, RunError, of_system, one_line

try:
    import fcntl
except ImportError:  # Windows, where nobody can tell a dead process's stage and it stays
    CAN_LOCK = False
else:
    CAN_LOCK = True

LARGEST = 2**28  # bytes; no file of ours comes near
_DEEPEST = 64  # objects and lists inside one another


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write beside the target, then rename: a reader never sees half a file."""
    write_together({path: content})


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files beside their targets, then rename all: where one cannot be written, none is."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(_beside(path, content)) for path, content in contents.items()]
        for whole, path in zip(made, contents, strict=True):
            whole.replace(path)


def write_new(path: Path, content: str) -> bool:
    """Write a file that is whole from the start; False where there is one: of two processes one is first."""
    with _beside(path, content) as whole:
        try:
            os.link(whole, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            whole.replace(path)
    return True


@contextlib.contextmanager
def _beside(path: Path, content: str | bytes) -> Iterator[Path]:
    """A hidden file next to a target, locked as long as its process lives, and removed at the end."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        lock(handle)
        if os.fstat(handle).st_nlink:  # else another process has taken it for a dead one's before the lock
            break
        os.close(handle)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(handle)
            make_readable(Path(name))
            yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def lock(handle: int) -> bool:
    """Lock an open file or folder until it is closed; False where another has, or none can."""
    if not CAN_LOCK:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def make_readable(path: Path) -> None:
    """Give a file the usual mode: temporary ones are private, results are for whoever reads the folder."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def write_json(path: Path, fields: Any) -> None:
    """Atomic, indented JSON with a final newline."""
    write_atomic(path, as_json(fields))


def as_json(fields: Any) -> str:
    """Text of a JSON file: indented, with a final newline."""
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def read_text(path: Path, error: type[LdsearchError] = RunError, most: int = LARGEST) -> str:
    """A UTF-8 text file.

    Args:
        path: The file.
        error: What is raised where it holds something else.
        most: Its largest size in bytes.

    Raises:
        FileNotFoundError: If there is none; the caller knows what that means.
        LdsearchError: One line, if it cannot be read, is no text or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise error(f"{path} is damaged: it has more than {most} bytes")
        return content.decode()
    except FileNotFoundError:
        raise
    except OSError as found:
        raise of_system(f"cannot read {path}", found) from found
    except ValueError as found:
        raise error(f"{path} is damaged: {one_line(found)}") from found


def read_json(path: Path, error: type[LdsearchError] = RunError) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: If there is none.
        LdsearchError: As ``error``, if it is damaged.
    """
    return from_json(read_text(path, error), str(path), error)


def from_json(text: str, source: str, error: type[LdsearchError] = RunError) -> Any:
    """Parse JSON text.

    Args:
        text: The JSON.
        source: Where it comes from, for the message.
        error: What is raised where it is none, or cannot be written again: half of a surrogate pair.
    """
    try:
        value = json.loads(text)
        if not _is_flat(value):
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as found:
        raise error(f"{source} is damaged: {one_line(found)}") from found
    return value


def _is_flat(value: Any) -> bool:
    """Whether a value is nested no deeper than any of ours, so that what walks it need not fear the stack."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_DEEPEST):
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, dict | list)
        ]
        if not level:
            return True
    return False


def read_fields(path: Path, error: type[LdsearchError] = RunError) -> dict[str, Any]:
    """The JSON object that a file holds.

    Raises:
        FileNotFoundError: If there is none.
        LdsearchError: As ``error``, if it is damaged.
    """
    found = read_json(path, error)
    if not isinstance(found, dict):
        raise error(f"{path} is damaged: it holds no object")
    return found


@contextlib.contextmanager
def report_disk_full(folder: Path) -> Iterator[None]:
    """Context manager that turns a full disk into a one-line error; other errors pass unchanged.

    It looks at every exception: tokenizers raises a bare ``Exception``, torch a ``RuntimeError``.

    Args:
        folder: Named in the error.

    Raises:
        MachineError: If the disk is full, or a quota or limit is reached.
    """
    try:
        yield
    except BaseException as error:
        reason = _full(error)
        if reason is None:
            raise
        raise MachineError(
            f"cannot write to {folder}: {reason}; free some space and run the same command again"
        ) from error


def _full(error: BaseException) -> str | None:
    """The limit that an error reports as reached, if any."""
    number = error.errno if isinstance(error, OSError) else None
    # Rust's way to say it, in safetensors and tokenizers.
    if code := re.search(r"\(os error (\d+)\)", str(error)):
        number = int(code[1])
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return os.strerror(number)
    # torch's writer loses the number, and trips over its own shortened file on the way out.
    if isinstance(error, RuntimeError) and "iostream error" in f"{error} {error.__context__}":
        return "torch could not write a file to its end"
    return None
