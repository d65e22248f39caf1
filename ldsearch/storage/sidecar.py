"""Per-example statistics of measured sub-networks, from which intervals are computed; one file each."""

import contextlib
import io
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ldsearch.disk.files import write_atomic
from ldsearch.disk.staging import dead, remove
from ldsearch.errors import of_system
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import Statistics

FOLDER = "statistics"
MOST = 2**30  # bytes of a folder: the frontier and controls of 100,000 rows take a tenth of it


class Sidecar:
    """Statistics of sub-networks on one split, kept as ``<folder>/<digest of the sub-network>.npy``.

    A folder that has grown too large loses those that were not asked for longest: what a frontier or a
    control needs is asked for again, and measured again where it is gone. What killed workers were
    writing goes when the folder is opened.

    Args:
        folder: One per fingerprint.
        shape: (examples,) or (examples, parts); a file of another shape is damaged.
        digest: Names a sub-network's file.
        most: Bytes that the folder may have.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, ...], digest: Callable[[str], str], most: int = MOST
    ) -> None:
        self.folder = folder
        self.shape = shape
        self.digest = digest
        self.most = most
        self._bytes: int | None = None  # of the folder, at least; None until something is written
        remove(dead(folder))

    def get(self, subnet: Subnet) -> Statistics | None:
        """Stored statistics; None where there are none, or the file is damaged, as one with NaN is."""
        try:
            content = self._path(subnet).read_bytes()
        except OSError:
            return None
        # Compared with what is ever written, not parsed: nothing in a damaged file can surprise a parser.
        pattern = _as_npy(np.zeros(self.shape))
        header = pattern[: len(pattern) - 8 * math.prod(self.shape)]
        if len(content) != len(pattern) or not content.startswith(header):
            return None
        values = np.frombuffer(content, dtype=np.float64, offset=len(header)).reshape(self.shape)
        if not np.isfinite(values).all():
            return None
        with contextlib.suppress(OSError):  # another's, or removed meanwhile
            os.utime(self._path(subnet))
        return values

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
            content = _as_npy(statistics)
            write_atomic(path, content)
            self._bytes = self._limited() if self._bytes is None else self._bytes + len(content)
            if self._bytes > self.most:
                self._bytes = self._limited()
        except OSError as error:
            raise of_system(f"cannot write {path}", error) from error

    def _limited(self) -> int:
        """Bytes of the folder, which loses half of what it may have once it has more."""
        found = []
        for path in self.folder.glob("*.npy"):
            with contextlib.suppress(FileNotFoundError):  # other workers do the same
                found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        total = sum(size for _, size, _ in found)
        if total > self.most:
            for _, size, path in sorted(found):
                path.unlink(missing_ok=True)
                total -= size
                if total <= self.most / 2:
                    break
        return total

    def _path(self, subnet: Subnet) -> Path:
        return self.folder / f"{self.digest(subnet.to_json())}.npy"


def _as_npy(statistics: Statistics) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(statistics, dtype=np.float64), allow_pickle=False)
    return buffer.getvalue()
