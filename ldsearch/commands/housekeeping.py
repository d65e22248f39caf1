"""Sizes of what a folder of runs holds, and the removal of what killed processes left in it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from ldsearch.commands.console import print_table
from ldsearch.disk.staging import dead, remove
from ldsearch.errors import RunError
from ldsearch.runs.run import COMPRESSED_FILE, RUN_FILE, SUPERNET_FILE, TRAINING_FILE


def is_runs(folder: Path) -> bool:
    """Whether a folder holds runs and is none."""
    own = any((folder / name).is_file() for name in (SUPERNET_FILE, RUN_FILE, COMPRESSED_FILE))
    return not own and any(
        path.is_file()
        for name in (SUPERNET_FILE, RUN_FILE, TRAINING_FILE)
        for path in folder.glob(f"*/{name}")
    )


def list_runs(folder: Path, clean: bool) -> dict[str, Any]:
    """Print the size of everything in a folder of runs; remove leftovers, if that is wanted and confirmed.

    Raises:
        RunError: If leftovers should be removed and some are still there.
        Abort: If it is not confirmed.
    """
    parts = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    sizes = {path.name: size_of([path]) for path in parts}
    left = leftovers(folder)
    print_table(
        f"{folder}: {_text(sum(sizes.values()))}",
        ["", "size", "what it is"],
        [[path.name, _text(sizes[path.name]), _kind(path)] for path in parts],
    )
    for path in left:
        print(f"left by a killed process: {path} ({_text(size_of([path]))})")
    if clean and left:
        typer.confirm(f"remove these {len(left)} ({_text(size_of(left))})?", abort=True)
        remove(left)
        if still := [path for path in left if path.exists()]:
            raise RunError(f"cannot remove {', '.join(map(str, still))}")
        print(f"removed: {len(left)}")
    elif left:
        print(f"next: ldsearch info {folder} --clean")
    elif clean:
        print("nothing was left by a killed process")
    return {"sizes": sizes, "left": [str(path) for path in left], "removed": clean}


def leftovers(folder: Path) -> list[Path]:
    """Half-written files and folders of killed processes in a folder of runs, at any depth."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())]
    found = [path for each in folders for path in dead(each)]
    return [path for path in found if not any(other in path.parents for other in found)]


def size_of(paths: Sequence[Path]) -> int:
    """Bytes of files and of folders with all they hold; links are not followed."""
    return sum(path.lstat().st_size for path in _files(paths))


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        yield from path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]


def _kind(path: Path) -> str:
    if (path / SUPERNET_FILE).is_file():
        return "supernet"
    if (path / TRAINING_FILE).is_file():
        return "unfinished training"
    if (path / RUN_FILE).is_file():
        return "search run" if (path / "trials.csv").is_file() else "run"
    return {"measurements.db": "measurements", "statistics": "per-example statistics"}.get(path.name, "")


def _text(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
