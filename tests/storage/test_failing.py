"""A storage that fails is one line that says which and why, and what was stored before stays."""

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldsearch.errors import MachineError, RunError
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from tests import fresh
from tests.storage.test_measurements import FULL, KINDS, SHORT, trial

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "measurements.db"


def fill(cache: MeasurementCache, count: int = 400) -> None:
    for reference in range(16, 16 + count):
        cache.put(trial(Subnet.of_encoder(range(3), (9, 5, 1), reference)))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {  # of a whole database's content
    "sqlite:/// other": lambda whole: b"no database " * 400,
    "sqlite:/// header": lambda whole: b"SQLite format 3\0" + b"x" * 5000,
    "sqlite:/// cut": lambda whole: whole[: len(whole) // 2],
    "sqlite:/// zeros": lambda whole: whole[:-4096] + bytes(4096),
    "journal: other": lambda whole: b"no journal\n" * 9,
    "journal: json": lambda whole: b'{"a": 1}\n{"b": 2}\n',
    "journal: bytes": lambda whole: b"\xff\xfe\n\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_line_that_says_what_to_do_and_stays_as_it_is(path: Path, damage: str) -> None:
    fill(MeasurementCache(path, "print"), 30)
    content = DAMAGES[damage](path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(RunError) as caught:
        MeasurementCache(f"{damage.rpartition(' ')[0]}{path}", "print")
    assert str(caught.value) == (
        f"the measurement cache {path} is damaged: move it away; measurements will be made again"
    )
    assert path.read_bytes() == content


@pytest.fixture
def locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MeasurementCache]:
    """A cache that was opened before another process took the file for itself."""
    monkeypatch.setattr("ldsearch.storage.backends._PATIENCE", 0.05)
    cache = MeasurementCache(path, "print")
    cache.put(trial(FULL))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("begin exclusive")
        yield cache


def test_a_file_that_another_process_keeps_locked_is_one_line_when_it_is_opened_and_when_something_is_stored(
    path: Path, locked: MeasurementCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # between Optuna's attempts
    for call in (lambda: MeasurementCache(path, "print"), lambda: locked.put(trial(SHORT))):
        with pytest.raises(RunError, match=r"is locked by another process: run the same command again once"):
            call()
    assert locked.get(SHORT) is None


def test_a_file_of_another_version_of_optuna_or_a_folder_in_its_place_is_one_line(path: Path) -> None:
    MeasurementCache(path, "print").put(trial(FULL))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update alembic_version set version_num = 'v9.9.9'")
    for place, words in ((path, "optuna"), (path.parent, "")):
        with pytest.raises(RunError, match=rf"^cannot use the measurement cache .*{words}.*\Z"):
            MeasurementCache(place, "print")


FULL_DISK = """
import pathlib, resource, sys
import signal, time
from ldsearch.errors import MachineError
from ldsearch.storage import MeasurementCache
from tests.storage.test_failing import fill
from tests.storage.test_measurements import FULL, trial
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
time.sleep = lambda seconds: None
cache = MeasurementCache(sys.argv[1], "print")
cache.put(trial(FULL))
size = max(file.stat().st_size for file in pathlib.Path(sys.argv[2]).iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_001, resource.RLIM_INFINITY))
try:
    fill(cache)
except MachineError as error:
    print(len(cache), error)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_without_room_storing_is_one_line_and_what_was_stored_before_stays(kind: str, tmp_path: Path) -> None:
    storage = kind.format(tmp_path)
    done = fresh.program(FULL_DISK, storage, tmp_path)
    # A full disk is "database or disk is full"; a limit on files is all that a test can set.
    assert "cannot use the measurement cache" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    count = int(done.stdout.split()[0])
    assert count > 5
    cache = MeasurementCache(storage, "print")
    assert len(cache) == count
    cache.put(trial(Subnet.of_encoder((1,))))
    assert len(MeasurementCache(storage, "print")) == count + 1


def test_a_server_that_does_not_answer_is_the_networks_fault() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(MachineError, match="Connection refused"):
        MeasurementCache("postgresql+psycopg://me@127.0.0.1:1/x", "print").put(trial(FULL))


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user of the machine can look into."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.contextmanager
def mere_user() -> Iterator[None]:
    """Whom modes of files concern, as they do not concern root."""
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(NOBODY)
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_storage_that_cannot_be_written_is_read_and_storing_is_one_line(
    kind: str, open_place: Path
) -> None:
    storage = kind.format(open_place)
    MeasurementCache(storage, "print").put(trial(FULL, 0.5))
    for file in open_place.iterdir():
        file.chmod(0o444)
    open_place.chmod(0o555)
    with mere_user():
        cache = MeasurementCache(storage, "print")
        assert [(one.subnet, one.score.value) for one in cache.trials()] == [(FULL, 0.5)]
        for write in (lambda: cache.put(trial(SHORT)), lambda: cache.claims.take(["x"])):
            with pytest.raises(RunError) as caught:
                write()
            assert str(caught.value) in {
                f"cannot use the measurement cache {open_place}/m.db: attempt to write a readonly database",
                f"cannot use the measurement cache {open_place}/m.log: Permission denied",
            }
    assert cache.get(SHORT) is None
    open_place.chmod(0o755)
    assert len(MeasurementCache(storage, "print")) == 1


@pytest.mark.parametrize("kind", ["sqlite:///{}/new/m.db", "journal:{}/new/m.log"])
def test_a_folder_that_cannot_be_written_is_one_line(kind: str, open_place: Path) -> None:
    open_place.chmod(0o555)
    with mere_user():
        cache = MeasurementCache(kind.format(open_place), "print")
        with pytest.raises(RunError, match=r"cannot use the measurement cache .*: Permission denied$"):
            cache.put(trial(SHORT))
    assert not list(open_place.iterdir())
