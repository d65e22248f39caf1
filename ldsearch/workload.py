"""The lengths the model will really see: a histogram, with the padded reference length beside it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import DataError


@dataclass(frozen=True)
class Workload:
    """How often each true length (in tokens, special tokens counted) occurs.

    Args:
        histogram: (length, count) pairs in ascending order of length.
        reference: The padded reference length l₀; no true length exceeds it.

    Raises:
        DataError: If the histogram is empty or a length leaves 1..reference.
    """

    histogram: tuple[tuple[int, int], ...]
    reference: int

    def __post_init__(self) -> None:
        if not self.histogram:
            raise DataError("a workload needs at least one length")
        if self.histogram[0][0] < 1 or self.histogram[-1][0] > self.reference:
            raise DataError(f"workload lengths must lie in 1..{self.reference}")

    @classmethod
    def from_lengths(cls, lengths: Iterable[int], reference: int) -> "Workload":
        """Count true lengths."""
        return cls(tuple(sorted(Counter(int(n) for n in lengths).items())), reference)

    @classmethod
    def padded(cls, reference: int) -> "Workload":
        """Every input as long as the reference: the length-adaptive paper's protocol."""
        return cls(((reference, 1),), reference)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The distinct lengths, ascending."""
        return np.array([length for length, _ in self.histogram], dtype=np.int64)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of inputs at each of ``lengths``; sums to 1."""
        counts = np.array([count for _, count in self.histogram], dtype=np.float64)
        return np.asarray(counts / counts.sum(), dtype=np.float64)

    @property
    def mean_length(self) -> float:
        """Mean true length in tokens."""
        return float(self.lengths @ self.shares)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"reference": self.reference, "histogram": [list(pair) for pair in self.histogram]}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Workload":
        """Read what ``to_dict`` wrote."""
        return cls(tuple((int(n), int(c)) for n, c in fields["histogram"]), int(fields["reference"]))
