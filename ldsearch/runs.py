"""Run folders: which one is newest, which one may be written, what they hold."""

import json
import os
import uuid
from pathlib import Path
from typing import Any

from ldsearch.errors import RunError, SupernetError
from ldsearch.files import write_json

SUPERNET_FILE = "supernet.json"
TRAINING_FILE = "training.json"
RUN_FILE = "run.json"
BEST_FILE = "best.json"
HEALTH_FILE = "health.json"
CACHE_FILE = "measurements.db"


def newest_supernet(runs: Path) -> Path:
    """The supernet that was finished last; a model with one sub-network trained on its own is none.

    Raises:
        SupernetError: If there is none.
    """
    records = sorted(runs.glob(f"*/{SUPERNET_FILE}"), key=lambda path: path.stat().st_mtime)
    found = [path for path in records if read_json(path).get("subnet") is None]
    if not found:
        raise SupernetError(f"no supernet in {runs}/: train one with 'ldsearch train-supernet'")
    return found[-1].parent


def claim(folder: Path, marker: str, identity: dict[str, Any]) -> bool:
    """Make the folder this run's own, or go on with the same run, which other workers may write too.

    Args:
        folder: Where the run writes.
        marker: The file that carries the identity.
        identity: What makes two runs the same run.

    Returns:
        Whether the folder is new; False where a run goes on.

    Raises:
        RunError: If the folder holds anything else (nothing is touched then) or cannot be written.
    """
    path = folder / marker
    identity = json.loads(json.dumps(identity))  # as it reads back
    if not path.is_file():
        foreign = folder.exists() and (
            not folder.is_dir() or any(not _torn(file, marker) for file in folder.iterdir())
        )
        # Another worker of the same run may have made it meanwhile.
        if foreign and not path.is_file():
            raise RunError(f"{folder} is not empty and holds another run: choose another --name")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if _write_new(path, {"identity": identity}):
                return True
        except OSError as error:
            raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    found = read_json(path).get("identity")
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: it holds no identity")
    different = sorted(key for key in {*found, *identity} if found.get(key) != identity.get(key))
    if different:
        raise RunError(
            f"{folder} holds another run (its {', '.join(different)} differ): choose another --name"
        )
    return False


def beside(folder: Path, relative: str) -> Path:
    """A path that a folder's files name as seen from the folder, so that both may move together."""
    return Path(os.path.normpath(folder / relative))


def _torn(file: Path, marker: str) -> bool:
    """Whether the file is what a killed process left of its claim, or what one is making of it."""
    return file.name.startswith(".") and file.name.lstrip(".").startswith(f"{marker}.")


def _write_new(path: Path, fields: dict[str, Any]) -> bool:
    """Write a file that is whole from the start; False where there is one: of two workers one is first."""
    made = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_json(made, fields)
    try:
        os.link(made, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        write_json(path, fields)
    finally:
        made.unlink()
    return True


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder.

    Raises:
        RunError: If it is missing or damaged.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path.parent} is not a run: it has no {path.name}") from None
    except (ValueError, IsADirectoryError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(fields, dict):
        raise RunError(f"{path} is damaged: it holds no object")
    return fields
