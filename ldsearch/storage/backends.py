"""Optuna storages for measurements: a SQLite file, a journal file or a database server."""

import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, TypeVar

from filelock import FileLock, Timeout
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy import column, create_engine, inspect, select, table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ldsearch.disk.secrets import without_password
from ldsearch.errors import MachineError, RunError, of_system, one_line

Result = TypeVar("Result")

# Optuna wraps some of SQLAlchemy's errors and passes others on; it raises RuntimeError for a file of another
# of its versions, ImportError for a server without a driver.
_STORAGE_ERRORS = (
    *(SQLAlchemyError, OptunaError, sqlite3.Error, OSError, RuntimeError, ImportError),
    *(ValueError, KeyError, AssertionError),  # of Optuna, for rows that are not whole
)
_OF_THE_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
# Tables that Optuna makes first.
_OURS = frozenset({"studies", "version_info", "alembic_version"})
_DAMAGED = "the measurement cache {} is damaged: move it away; measurements will be made again"
_LOCKED = (
    "the measurement cache {} is locked by another process: run the same command again once that has ended"
)
_PATIENCE = 5.0  # seconds to wait for a locked SQLite file
_LOCK_PATIENCE = 30.0  # seconds to wait for a locked journal
_ATTEMPTS = 10  # to create the tables of a new database while other workers create them too
_JOURNAL = "journal:"
_PAGE = 1_000  # trials read at a time: a writer of a SQLite file waits for its readers
_TRIALS = table("trials", column("trial_id"), column("number"), column("study_id"))
_ATTRIBUTES = table("trial_user_attributes", column("trial_id"), column("key"), column("value_json"))


@dataclass(frozen=True)
class Backend:
    """A place for an Optuna storage.

    Args:
        holds: Whether it holds any measurements; creates nothing.
        name: Its name in messages and records, without any password.
        path: Its file; None for a server.
        open: Connects, and creates what is missing.
    """

    name: str
    path: Path | None
    open: Callable[[], BaseStorage]
    holds: Callable[[], bool]

    def exists(self) -> bool:
        """Whether there is something to read; checking creates nothing.

        Raises:
            RunError: One line, if the storage fails.
        """
        return self.guarded(self.holds)

    def guarded(self, work: Callable[[], Result]) -> Result:
        """Result of work on the storage.

        Raises:
            LdsearchError: One line, if the storage fails; a ``MachineError`` where the disk is full, or a
                server cannot be reached.
        """
        try:
            return work()
        except _STORAGE_ERRORS as error:
            cause = _root(error)
            if isinstance(cause, OSError):
                raise of_system(f"cannot use the measurement cache {self.name}", cause) from error
            kind = MachineError if _is_of_the_machine(cause) else RunError
            raise kind(self._explain(error)) from error

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, ImportError):
            return (
                f"no driver for the measurement cache {self.name} is installed: for PostgreSQL "
                "pip install 'psycopg[binary]' and begin the URL with postgresql+psycopg://"
            )
        cause = _root(error)
        code = _code(cause)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return _DAMAGED.format(self.name)
        if code == sqlite3.SQLITE_BUSY:
            return _LOCKED.format(self.name)
        return f"cannot use the measurement cache {self.name}: {one_line(cause)}"


def _code(error: BaseException) -> int:
    """SQLite's code without its extended part; 0 of another error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_of_the_machine(error: BaseException) -> bool:
    """Whether a disk is full or fails, or a server does not answer: psycopg's error then has no state."""
    failed = type(error).__name__ == "OperationalError" and getattr(error, "sqlstate", "") is None
    return _code(error) in _OF_THE_DISK or (failed and "FATAL" not in str(error))


def backend_of(storage: str | Path) -> Backend:
    """The backend that a path or URL names.

    Args:
        storage: A SQLite file's path; or ``journal:PATH``; or a SQLAlchemy URL
            (``sqlite:///file.db``, ``postgresql+psycopg://user@host/database``).

    Raises:
        RunError: If a text is neither.
    """
    if isinstance(storage, Path):
        return Backend(str(storage), storage, partial(_open_sqlite, storage), partial(_holds_ours, storage))
    if storage.startswith(_JOURNAL):
        path = Path(storage.removeprefix(_JOURNAL))
        return Backend(str(path), path, partial(_open_journal, path), path.exists)
    try:
        url = make_url(storage)
    except (SQLAlchemyError, ValueError):  # the latter for a port that is no number
        raise RunError(
            f"{without_password(storage)!r} names no storage: use journal:PATH or a SQLAlchemy URL "
            "(sqlite:///file.db, postgresql+psycopg://user@host/database)"
        ) from None
    if url.get_backend_name() != "sqlite":
        return Backend(
            without_password(storage), None, partial(_open_server, url), partial(_server_holds, url)
        )
    if url.database in (None, "", ":memory:"):
        raise RunError(f"{storage!r} names no file: measurements would be lost")
    return backend_of(Path(url.database))


def attributes_since(storage: BaseStorage, study: str, number: int) -> Iterator[dict[str, Any]]:
    """User attributes of a study's trials from this number on, in the order in which they were stored.

    Nothing is created; there are none where there is no such study. A relational storage is asked directly:
    a ``FrozenTrial`` of Optuna takes 0.7 ms and 40 KB. An attribute that is no JSON is left out.
    """
    try:
        study_id = storage.get_study_id_from_name(study)
    except KeyError:
        return
    if not isinstance(storage, RDBStorage):
        for trial in storage.get_all_trials(study_id, deepcopy=False)[number:]:
            yield trial.user_attrs
        return
    while page := _page(storage, study_id, number):
        number += len(page)
        yield from page


def _page(storage: RDBStorage, study_id: int, number: int) -> list[dict[str, Any]]:
    """Read at most a page of trials; Optuna numbers a study's trials without gaps."""
    trial, attribute = _TRIALS.c, _ATTRIBUTES.c
    wanted = (
        select(trial.number, attribute.key, attribute.value_json)
        .select_from(_TRIALS.outerjoin(_ATTRIBUTES, trial.trial_id == attribute.trial_id))
        .where(trial.study_id == study_id, trial.number >= number, trial.number < number + _PAGE)
        .order_by(trial.number)
    )
    with storage.engine.connect() as connection:
        rows = connection.execute(wanted).all()
    page: list[dict[str, Any]] = []
    for _, of_trial in groupby(rows, key=lambda row: row[0]):
        page.append({})
        for _, key, value in of_trial:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                page[-1][key] = json.loads(value)
    return page


def _root(error: BaseException) -> BaseException:
    """The database's own error; those that Optuna and SQLAlchemy raise from it only guess."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _open_sqlite(path: Path) -> BaseStorage:
    """A SQLite file, shared by processes of one machine."""
    _holds_ours(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not as text: a path may hold what a URL gives a meaning to.
    url = URL.create("sqlite", database=str(path), query={"timeout": str(_PATIENCE)})
    return _relational(url)


def _holds_ours(path: Path) -> bool:
    """Whether a SQLite file holds an Optuna storage.

    Raises:
        RunError: If a page is damaged, or it is another program's.
    """
    if not path.exists() and not path.is_symlink():
        return False
    # Undo what a killed process left half-written and check every page. Not mode=ro, which cannot undo; not
    # the default, which would create a missing file.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise RunError(_DAMAGED.format(path))
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables and not tables & _OURS:
        raise RunError(f"{path} is another program's database: name another with --storage, or move it away")
    return bool(tables)


def _server_holds(url: URL) -> bool:
    engine = create_engine(url, **_server_options(url))
    try:
        return bool(set(inspect(engine).get_table_names()) & _OURS)
    finally:
        engine.dispose()


def _open_server(url: URL) -> BaseStorage:
    """A database server, for workers on several machines."""
    return _relational(url, **_server_options(url))


def _server_options(url: URL) -> dict[str, Any]:
    # A connection may have been cut while the last generation was measured.
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.get_backend_name() == "postgresql":
        # Otherwise a machine that vanishes in the middle of a transaction blocks the others for hours.
        options["connect_args"] = {"options": "-c idle_in_transaction_session_timeout=20s"}
    return options


def _relational(url: URL, **engine: Any) -> BaseStorage:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=engine)
        except _STORAGE_ERRORS as error:
            # Optuna checks for tables and then creates them; another worker may create them in between.
            raced = isinstance(error, IntegrityError) or "already exists" in str(_root(error))
            if not raced or attempt == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0, 0.1))
    raise AssertionError


def _open_journal(path: Path) -> BaseStorage:
    """A file of JSON lines, for a shared file system without locks that SQLite could rely on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return JournalStorage(_JournalFile(str(path), _JournalLock(path)))
    except (KeyError, TypeError, AttributeError, AssertionError) as error:  # JSON lines of something else
        raise RunError(_DAMAGED.format(path)) from error


class _JournalFile(JournalFileBackend):
    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        try:
            yield from super().read_logs(log_number_from)
        except ValueError as error:
            raise RunError(_DAMAGED.format(self._file_path)) from error


class _JournalLock(JournalFileOpenLock):
    """Lock for writing a journal, whose last line is whole once it is held.

    Optuna's own locks outlive a killed process by 30 seconds, this one ends with the process. Behind a line
    that a killed process or a full disk cut short, Optuna would write on and never read the file again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._lock = FileLock(f"{path}.lock", timeout=_LOCK_PATIENCE, poll_interval=0.01)

    def acquire(self) -> bool:
        try:
            self._lock.acquire()
        except Timeout:
            raise RunError(_LOCKED.format(self._path)) from None
        try:
            with self._path.open("r+b") as file:
                file.truncate(_end_of_lines(file))
        except BaseException:
            self._lock.release()
            raise
        return True

    def release(self) -> None:
        self._lock.release()


def _end_of_lines(file: IO[bytes]) -> int:
    """End of the file's last whole line, in bytes."""
    end = file.seek(0, 2)
    while end:
        start = max(0, end - 2**16)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
