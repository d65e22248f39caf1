"""Folders that appear whole and checked, or not at all."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ldsearch.errors import RunError
from ldsearch.subnet import Subnet

if TYPE_CHECKING:
    from ldsearch.export.timing import Timed

ONNX_FILE = "model.onnx"


class Card(Protocol):
    """Makes a model card."""

    def __call__(self, verified: str, latency: "Sequence[Timed]" = (), /) -> str:
        """Given what the checks found, in words, and what was timed."""


@dataclass(frozen=True)
class Written:
    """An export that waits for its check.

    Args:
        folder: Where it lies.
        subnet: What it is, in the supernet's ids.
        readers: Who must be able to run it (names of ``ldsearch.export.check.READERS``).
        tolerance: The most its logits may differ from the supernet's, as a share of the largest or of 1.
        card: The model card, given what the checks found.
    """

    folder: Path
    subnet: Subnet
    readers: tuple[str, ...]
    tolerance: float
    card: Card


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the target, renamed to it at the end, and removed if anything goes wrong.

    Raises:
        RunError: If the target holds something or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} already exists and is not empty: choose another folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        staging.chmod(0o755)
        yield staging
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
