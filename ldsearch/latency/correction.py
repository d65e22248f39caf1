"""What adding up stages misses: fitted on a handful of whole sub-networks, timed when a table is built."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from ldsearch.subnet import Subnet

# Shares of the tokens that leave the last block of the sub-networks that are timed whole.
LEAST_KEPT = (1.0, 0.5, 0.25, 0.1)
# A factor beyond these is the clock's noise, not a model's: tiny ones take longer to call than to compute.
FACTORS = (0.5, 2.0)


def spread(blocks: int, length: int) -> tuple[Subnet, ...]:
    """What is timed whole: all blocks and half of them, keeping all tokens or falling geometrically.

    Args:
        blocks: Of the model.
        length: Tokens of an input.
    """
    found = []
    for depth in dict.fromkeys((blocks, -(-blocks // 2))):
        own = np.linspace(0, blocks - 1, depth).round().astype(int).tolist()
        for kept in LEAST_KEPT:
            falling = [max(1, round(length * kept ** (step / depth))) for step in range(1, depth + 1)]
            found.append(
                Subnet.of_encoder(own, None if kept == 1 else falling, None if kept == 1 else length)
            )
    return tuple(dict.fromkeys(found))  # few tokens leave few choices


@dataclass(frozen=True)
class Correction:
    """From the sum of a sub-network's stages to its latency.

    Args:
        factor: On the sum.
        per_drop: Milliseconds more for each block that drops tokens.
    """

    factor: float = 1.0
    per_drop: float = 0.0

    @classmethod
    def fit(
        cls, added: NDArray[np.float64], drops: NDArray[np.int64], measured: NDArray[np.float64]
    ) -> "Correction":
        """The one with the least squared relative errors, its factor in ``FACTORS``, the rest not negative.

        What adds up leaves nothing to it.

        Args:
            added: Milliseconds of the stages, shape (sub-networks,).
            drops: Blocks that drop tokens, the same shape.
            measured: Milliseconds of the whole, the same shape.
        """
        terms = np.stack([added, drops], axis=1) / measured[:, None]
        bounds = ([FACTORS[0], 0.0], [FACTORS[1], np.inf])
        factor, per_drop = lsq_linear(terms, np.ones(len(measured)), bounds, method="bvls").x.tolist()
        return cls(factor, per_drop)

    def __call__(self, added: NDArray[np.float64], drops: NDArray[np.int64]) -> NDArray[np.float64]:
        """Milliseconds, of the arguments' shape."""
        return self.factor * added + self.per_drop * drops


@dataclass(frozen=True)
class Wholes:
    """Sub-networks of one batch size that were timed whole, beside what their stages add up to.

    Args:
        added: Milliseconds of the stages, shape (sub-networks,).
        drops: Blocks that drop tokens, the same shape.
        measured: Milliseconds, the same shape.
    """

    added: NDArray[np.float64]
    drops: NDArray[np.int64]
    measured: NDArray[np.float64]

    @property
    def correction(self) -> Correction:
        """Fitted on all of them."""
        return Correction.fit(self.added, self.drops, self.measured)

    @property
    def errors(self) -> NDArray[np.float64]:
        """Predicted over measured, less 1, of each by a correction that was fitted on the others."""
        found = []
        for left_out in np.eye(len(self.measured), dtype=bool):
            others = Correction.fit(self.added[~left_out], self.drops[~left_out], self.measured[~left_out])
            found.append(others(self.added[left_out], self.drops[left_out]) / self.measured[left_out] - 1)
        return np.concatenate(found)

    def describe(self) -> str:
        """The correction and its errors in words."""
        fitted, off = self.correction, self.errors
        return (
            f"{fitted.factor:.3f} x the sum of the stages + {fitted.per_drop:.2f} ms for each block that "
            f"drops tokens; {len(off)} sub-networks, each predicted from the others, are off by "
            f"{np.abs(off).mean():.1%} in the mean ({off.mean():+.1%})"
        )
