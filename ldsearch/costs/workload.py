"""The lengths the model will really see: a histogram, and the padded reference length."""

import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import DataError, one_line


@dataclass(frozen=True)
class Workload:
    """How often each true length (in tokens, special tokens counted) occurs.

    Args:
        histogram: (length, count) pairs in ascending order of length.
        reference: The padded reference length l₀; no true length exceeds it.
        written: For each pair, how many tokens are written in answer; empty where none are.
        pinned: For each pair, how many of its tokens are never dropped; empty: one.

    Raises:
        DataError: If the histogram is empty or a length leaves 1..reference.
    """

    histogram: tuple[tuple[int, int], ...]
    reference: int
    written: tuple[int, ...] = ()
    pinned: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.histogram:
            raise DataError("a workload needs at least one length")
        if any(count < 1 for _, count in self.histogram) or any(tokens < 0 for tokens in self.written):
            raise DataError("a workload counts its lengths: none is 0 or below")
        if self.histogram[0][0] < 1 or self.histogram[-1][0] > self.reference:
            raise DataError(f"workload lengths must lie in 1..{self.reference}")
        if any(part and len(part) != len(self.histogram) for part in (self.written, self.pinned)):
            raise DataError("a workload needs a written or pinned length for every length, or none")

    @classmethod
    def from_lengths(
        cls, lengths: Iterable[int], reference: int, written: Iterable[int] | None = None
    ) -> "Workload":
        """Count true lengths; with what is written in answer, pairs of both."""
        if written is None:
            return cls(tuple(sorted(Counter(int(n) for n in lengths).items())), reference)
        pairs = sorted(Counter((int(n), int(t)) for n, t in zip(lengths, written, strict=True)).items())
        return cls(tuple((n, count) for (n, _), count in pairs), reference, tuple(t for (_, t), _ in pairs))

    @classmethod
    def from_pairs(cls, lengths: Iterable[int], pinned: Iterable[int], reference: int) -> "Workload":
        """Count true lengths with how many of the tokens are never dropped."""
        counted = cls.from_lengths(lengths, reference, pinned)
        return cls(counted.histogram, reference, pinned=counted.written)

    @classmethod
    def padded(cls, reference: int, writes: bool = False) -> "Workload":
        """Every input, and every text written, as long as the reference: the length-adaptive protocol."""
        return cls(((reference, 1),), reference, (reference,) if writes else ())

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The lengths, ascending; distinct but for what is written or pinned."""
        return np.array([length for length, _ in self.histogram], dtype=np.int64)

    @property
    def written_lengths(self) -> NDArray[np.int64]:
        """Tokens generated at each of ``lengths``; zeros where none are."""
        return np.array(self.written or (0,) * len(self.histogram), dtype=np.int64)

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
        histogram = [list(pair) for pair in self.histogram]
        written = {"written": list(self.written)} if self.written else {}
        pinned = {"pinned": list(self.pinned)} if self.pinned else {}
        return {"reference": self.reference, "histogram": histogram, **written, **pinned}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Workload":
        """Read what ``to_dict`` wrote.

        Raises:
            DataError: If it is something else.
        """
        try:
            histogram = tuple((operator.index(n), operator.index(count)) for n, count in fields["histogram"])
            parts = (tuple(map(operator.index, fields.get(name, ()))) for name in ("written", "pinned"))
            return cls(histogram, operator.index(fields["reference"]), *parts)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"no workload: {one_line(error)}") from error
