"""Folders that are whole or not there: written under a hidden name, which is removed whatever ends it."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ldsearch.disk.files import CAN_LOCK, lock, report_disk_full
from ldsearch.errors import RunError, of_system

# What marks a folder as a run's, a supernet's or an export's own.
_OURS = ("supernet.json", "run.json", "training.json", "ldsearch_subnet.json")
_SUFFIX = "?" * 8  # that tempfile draws
_WRITTEN = 600  # seconds in which any file is


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder next to the target, renamed to it at the end, and removed if anything goes wrong.

    Removed first: stages that killed processes left of the same target. Removed where nothing is written in
    the end: folders above it that had to be made.

    Raises:
        RunError: If the target holds something, lies in a run or a model, or cannot be written.
    """
    for parent in folder.absolute().parents:
        if any((parent / name).is_file() for name in _OURS):
            raise RunError(f"{folder} lies inside {parent}, which is a run or a model: choose another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} already exists and is not empty: choose another folder")
    absent = [parent for parent in folder.absolute().parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove(dead(folder.parent, folder.name))
        staging, opened = _locked_stage(folder)
    except OSError as error:
        raise of_system(f"cannot write to {folder}", error) from error
    try:
        with report_disk_full(folder):
            staging.chmod(0o755)
            yield staging
            if folder.exists():
                folder.rmdir()
            staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        for parent in absent:  # the nearest first; what another has written to stays
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise
    finally:
        if opened is not None:
            os.close(opened)


def dead(folder: Path, name: str = "*") -> list[Path]:
    """Half-written files and folders of this name that killed processes left in a folder.

    What a process that ended was writing is not locked any more; where files cannot be locked, they are
    written in less than ten minutes.
    """
    found = []
    for path in folder.glob(f".{name}.{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another may remove it, or it is not ours to open
            if path.is_symlink():
                continue
            if _is_free(path) or (path.is_file() and time.time() - path.stat().st_mtime > _WRITTEN):
                found.append(path)
    return found


def remove(paths: list[Path]) -> None:
    """Remove files and folders; those that cannot be stay."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _locked_stage(folder: Path) -> tuple[Path, int | None]:
    while True:
        staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        if not CAN_LOCK:
            return staging, None
        opened = os.open(staging, os.O_RDONLY)
        lock(opened)
        # Another process may have taken it for a dead one before it was locked.
        if staging.exists():
            return staging, opened
        os.close(opened)


def _is_free(path: Path) -> bool:
    """Whether nobody alive has a file or folder locked."""
    opened = os.open(path, os.O_RDONLY)
    try:
        return lock(opened)
    finally:
        os.close(opened)
