"""Per-example statistics beside the measurement cache: what intervals are made of, one small file each."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ldsearch.errors import RunError
from ldsearch.files import write_atomic
from ldsearch.intervals import Statistics
from ldsearch.subnet import Subnet

FOLDER = "statistics"


class Sidecar:
    """Statistics of sub-networks on one split, kept as ``<folder>/<digest of the sub-network>.npy``.

    Args:
        folder: One per fingerprint.
        examples: Examples of the split; a file of another length is damaged.
        digest: Names a sub-network's file.
    """

    def __init__(self, folder: Path, examples: int, digest: Callable[[str], str]) -> None:
        self.folder = folder
        self.examples = examples
        self.digest = digest

    def get(self, subnet: Subnet) -> Statistics | None:
        """Shape (examples,); None where nothing, or nothing whole, is stored: it is measured again then."""
        try:
            content = self._path(subnet).read_bytes()
        except OSError:
            return None
        # Compared with what is ever written, not parsed: nothing in a damaged file can surprise a parser.
        pattern = _as_npy(np.zeros(self.examples))
        header = pattern[: len(pattern) - 8 * self.examples]
        if len(content) != len(pattern) or not content.startswith(header):
            return None
        return np.frombuffer(content, dtype=np.float64, offset=len(header))

    def put(self, subnet: Subnet, statistics: Statistics) -> None:
        """Store atomically.

        Raises:
            RunError: If the file cannot be written.
        """
        path = self._path(subnet)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, _as_npy(statistics))
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error

    def _path(self, subnet: Subnet) -> Path:
        return self.folder / f"{self.digest(subnet.to_json())}.npy"


def _as_npy(statistics: Statistics) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, statistics, allow_pickle=False)
    return buffer.getvalue()
