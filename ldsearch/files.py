"""Files that are either whole or not there: atomic writes of text and JSON."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write beside the target, then rename: a reader never sees half a file."""
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        make_readable(Path(temporary))
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_readable(path: Path) -> None:
    """Give a file the usual mode: temporary ones are private, results are for whoever reads the folder."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def write_json(path: Path, fields: Any) -> None:
    """Atomic, indented JSON with a final newline."""
    write_atomic(path, json.dumps(fields, indent=2, ensure_ascii=False) + "\n")
