"""A folder that becomes one run's own: claimed with its identity, gone on with by the same run alone."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ldsearch.disk.files import as_json, write_new
from ldsearch.disk.staging import dead, remove
from ldsearch.errors import LdsearchError, MachineError, RunError, of_system
from ldsearch.runs.run import read_json


def claim(
    folder: Path, marker: str, identity: dict[str, Any], options: Mapping[str, Any] | None = None
) -> bool:
    """Make the folder this run's own, or go on with the same run, which other workers may write too.

    Args:
        folder: Where the run writes.
        marker: The file that carries the identity.
        identity: What makes two runs the same run.
        options: The options that the run was started with, for the record.

    Returns:
        Whether the folder is new; False where a run goes on.

    Raises:
        RunError: If the folder holds anything else (nothing is touched then) or cannot be written.
    """
    path = folder / marker
    identity = json.loads(json.dumps(identity))  # as it reads back
    if not path.is_file():
        # What a killed process left of its claim, or what another is making of it, is nobody's.
        others = folder.is_dir() and any(
            not (file.name.startswith(".") and file.name.lstrip(".").startswith(f"{marker}."))
            for file in folder.iterdir()
        )
        foreign = others or (folder.exists() and not folder.is_dir())
        # Another worker of the same run may have made it meanwhile.
        if foreign and not path.is_file():
            raise RunError(f"{folder} is not empty and holds another run: choose another --name")
        made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if write_new(path, as_json({"identity": identity, **({"options": options} if options else {})})):
                return True
        except OSError as error:
            if made:
                with contextlib.suppress(OSError):  # another worker's, or there is none
                    folder.rmdir()
            raise of_system(f"cannot write to {folder}", error) from error
    remove(dead(folder))
    different = differing(path, identity)
    if different:
        raise RunError(
            f"{folder} holds another run, which differs in {', '.join(different)}: choose another --name"
        )
    return False


def differing(marker: Path, identity: Mapping[str, Any]) -> list[str]:
    """Fields in which the identity that a file carries is another one.

    Raises:
        RunError: If the file carries none.
    """
    found = read_json(marker).get("identity")
    if not isinstance(found, dict):
        raise RunError(f"{marker} is damaged: it holds no identity")
    return sorted(key for key in {*found, *identity} if found.get(key) != identity.get(key))


@contextlib.contextmanager
def claimed(folder: Path, marker: str, identity: dict[str, Any]) -> Iterator[None]:
    """``claim``, taken back where what was asked is refused before anything else is in the folder.

    Where the machine failed the folder stays, since the same command will go on.
    """
    fresh = claim(folder, marker, identity)
    try:
        yield
    except LdsearchError as error:
        empty = [path.name for path in folder.iterdir()] == [marker]
        if fresh and empty and not isinstance(error, MachineError):
            (folder / marker).unlink()
            folder.rmdir()
        raise
