"""Where measurements are kept: a SQLite file, a journal file, a database server; each an Optuna storage."""

import contextlib
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ldsearch.errors import RunError, one_line

# Optuna wraps some of SQLAlchemy's errors and lets others through; of a file that another of its versions
# made it says so by a RuntimeError, of a server that it has no driver for by an ImportError.
STORAGE_ERRORS = (SQLAlchemyError, OptunaError, sqlite3.Error, OSError, RuntimeError, ImportError)
_DAMAGED = "the measurement cache {} is damaged: move it away; measurements will be made again"
_LOCKED = (
    "the measurement cache {} is locked by another process: run the same command again once that has ended"
)
_PATIENCE = 5.0  # seconds for another process to finish what it writes
_LOCK_PATIENCE = 30.0  # seconds for all others who are waiting to write a journal
_ATTEMPTS = 10  # to make the tables of a new database that others are making too
_JOURNAL = "journal:"


class Backend(Protocol):
    """A place for an Optuna storage.

    Args:
        name: What messages and records call it; no password is in it.
    """

    @property
    def name(self) -> str:
        """What messages and records call it; no password is in it."""

    def exists(self) -> bool:
        """Whether there is something to read; looking must not make it."""

    def open(self) -> BaseStorage:
        """Open it, and make what is missing; the errors are those of ``STORAGE_ERRORS``, or a RunError."""


def backend_of(storage: str | Path) -> Backend:
    """The place that is meant.

    Args:
        storage: A SQLite file's path; or ``journal:PATH``; or a SQLAlchemy URL
            (``sqlite:///file.db``, ``postgresql+psycopg://user@host/database``).

    Raises:
        RunError: If a text is neither.
    """
    if isinstance(storage, Path):
        return SqliteFile(storage)
    if storage.startswith(_JOURNAL):
        return Journal(Path(storage.removeprefix(_JOURNAL)))
    try:
        url = make_url(storage)
    except SQLAlchemyError:
        raise RunError(
            f"{storage!r} names no storage: use journal:PATH or a SQLAlchemy URL "
            "(sqlite:///file.db, postgresql+psycopg://user@host/database)"
        ) from None
    if url.get_backend_name() != "sqlite":
        return Server(url)
    if url.database in (None, "", ":memory:"):
        raise RunError(f"{storage!r} names no file: measurements would be lost")
    return SqliteFile(Path(url.database))


def refusal(backend: Backend, error: BaseException) -> RunError:
    """One line for what a storage raised."""
    if isinstance(error, ImportError):
        return RunError(
            f"no driver for the measurement cache {backend.name} is installed: for PostgreSQL "
            "pip install 'psycopg[binary]' and begin the URL with postgresql+psycopg://"
        )
    cause = _root(error)
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the rest is detail
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return RunError(_DAMAGED.format(backend.name))
    if code == sqlite3.SQLITE_BUSY:
        return RunError(_LOCKED.format(backend.name))
    said = cause.strerror if isinstance(cause, OSError) and cause.strerror else one_line(cause)
    return RunError(f"cannot use the measurement cache {backend.name}: {said}")


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__  # Optuna and SQLAlchemy guess at what the database says.
    return error


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file is there."""
        return self.path.exists()


class SqliteFile(_File):
    """A SQLite file; several processes of one machine may share it."""

    def open(self) -> BaseStorage:
        """Check a file that is there, or make one."""
        if self.exists():
            self._check()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return _relational(f"sqlite:///{self.path}?timeout={_PATIENCE}")

    def _check(self) -> None:
        """Let SQLite undo what a killed process left half-written, and look at every page."""
        # Not mode=ro, which cannot undo; not the default, which would make a file that is not there.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise RunError(_DAMAGED.format(self.path))


class Server:
    """A database server, for workers on several machines."""

    def __init__(self, url: URL) -> None:
        self.url = url

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Always: a server is asked."""
        return True

    def open(self) -> BaseStorage:
        """Connect, and make the tables."""
        # A connection may have been cut while the last generation was measured.
        options: dict[str, Any] = {"pool_pre_ping": True}
        if self.url.get_backend_name() == "postgresql":
            # A machine that vanishes in the middle of a transaction would keep the others waiting for hours.
            options["connect_args"] = {"options": "-c idle_in_transaction_session_timeout=20s"}
        return _relational(self.url.render_as_string(hide_password=False), **options)


def _relational(url: str, **engine: Any) -> BaseStorage:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return optuna.storages.get_storage(RDBStorage(url, engine_kwargs=engine))
        except STORAGE_ERRORS as error:
            # Another worker makes the same tables at this moment: Optuna looks first and makes them then.
            raced = isinstance(error, IntegrityError) or "already exists" in str(_root(error))
            if not raced or attempt == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0, 0.1))
    raise AssertionError


class Journal(_File):
    """A file of JSON lines, for a shared file system that has no good locks for SQLite."""

    def open(self) -> BaseStorage:
        """Read the file, or make one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return JournalStorage(_WholeLines(self.path))
        except (KeyError, TypeError, AttributeError, AssertionError) as error:
            # JSON lines of something else.
            raise RunError(_DAMAGED.format(self.path)) from error


class _WholeLines(BaseJournalBackend):
    """Optuna's journal file, in which a line that a killed process or a full disk cut short is undone.

    Optuna would write on behind such a line, and never read the file again. Its locks outlive a killed
    process by 30 seconds; the kernel's do not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = JournalFileBackend(str(path), lock_obj=_Locked())  # type: ignore[arg-type]

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        try:
            yield from self._file.read_logs(log_number_from)
        except (ValueError, UnicodeDecodeError) as error:
            raise RunError(_DAMAGED.format(self.path)) from error

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with _kernel_lock(Path(f"{self.path}.lock")), self.path.open("r+b") as file:
            end = _end_of_lines(file)
            file.truncate(end)
            try:
                self._file.append_logs(logs)
            except BaseException:
                file.truncate(end)
                raise


class _Locked:
    """A lock for a file that is locked already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        """Whoever took it gives it back."""


@contextlib.contextmanager
def _kernel_lock(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process."""
    if sys.platform == "win32":
        raise RunError("journal: storages need the file locks of Unix: use sqlite:/// or a server")
    import fcntl

    with path.open("ab") as file:
        end = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RunError(_LOCKED.format(str(path).removesuffix(".lock"))) from None
                time.sleep(random.uniform(0, 0.02))
        yield


def _end_of_lines(file: IO[bytes]) -> int:
    """Where the last whole line of the file ends, in bytes."""
    end = file.seek(0, 2)
    while end:
        start = max(0, end - 2**16)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
