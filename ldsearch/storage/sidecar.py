"""Per-example statistics of measured sub-networks, from which intervals are computed; one file each."""

import io
import math
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
        shape: (examples,) or (examples, parts); a file of another shape is damaged.
        digest: Names a sub-network's file.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], digest: Callable[[str], str]) -> None:
        self.folder = folder
        self.shape = shape
        self.digest = digest

    def get(self, subnet: Subnet) -> Statistics | None:
        """Stored statistics; None where there are none, or the file is damaged or of another shape."""
        try:
            content = self._path(subnet).read_bytes()
        except OSError:
            return None
        # Compared with what is ever written, not parsed: nothing in a damaged file can surprise a parser.
        pattern = _as_npy(np.zeros(self.shape))
        header = pattern[: len(pattern) - 8 * math.prod(self.shape)]
        if len(content) != len(pattern) or not content.startswith(header):
            return None
        return np.frombuffer(content, dtype=np.float64, offset=len(header)).reshape(self.shape)

    def put(self, subnet: Subnet, statistics: Statistics) -> None:
        """Store atomically.

        Raises:
            RunError: If the file cannot be written.
            ValueError: If the statistics have another shape: they would never be found again.
        """
        if statistics.shape != self.shape:
            raise ValueError(f"statistics of shape {statistics.shape}, not {self.shape}")
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
    np.save(buffer, np.ascontiguousarray(statistics, dtype=np.float64), allow_pickle=False)
    return buffer.getvalue()
