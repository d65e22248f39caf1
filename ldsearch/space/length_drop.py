"""LengthDrop's integer arithmetic: smallest, constant-ratio and random length vectors, without floats.

Source: Kim & Cho 2020, Sec. 3.1 and 3.2. Rates are rationals (``Fraction``), because ``ceil`` of a float
product is off by one for a quarter of the percent values.
"""

from fractions import Fraction

import numpy as np

from ldsearch.errors import SpaceError

# The reference code never goes below two tokens: [CLS] and one more.
MINIMUM_TOKENS = 2
# The share of tokens that leaves the last block of the smallest configuration: 0.8 ** 12, the paper's
# 12 blocks at p = 0.2. Keeping it at every depth keeps the reachable costs alike.
SMALLEST_SHARE = 0.07


def as_rate(value: float | str | Fraction) -> Fraction:
    """A drop rate as the decimal fraction a person wrote (0.2 is 1/5, not its binary neighbour).

    Raises:
        SpaceError: If it does not lie in [0, 1).
    """
    try:
        rate = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise SpaceError(f"{value!r} is no drop rate: use a number from 0 up to 1, such as 0.2") from error
    if not 0 <= rate < 1:
        raise SpaceError(f"a drop rate must lie in [0, 1), not {value}")
    return rate


def default_bound(blocks: int) -> Fraction:
    """The LengthDrop bound p whose smallest configuration keeps about 7% of the tokens.

    0.20 for 12 blocks and 0.36 for 6. At 0.2, six blocks cannot cost less than 0.54 of the full model.
    """
    return Fraction(round(100 * (1 - SMALLEST_SHARE ** (1 / blocks))), 100)


def shrink(tokens: int, rate: Fraction) -> int:
    """ceil((1 - rate) * tokens), exactly."""
    kept = (1 - rate) * tokens
    return -(-kept.numerator // kept.denominator)


def constant_ratio_lengths(reference: int, blocks: int, rate: Fraction) -> tuple[int, ...]:
    """l_i = ceil((1 - rate) * l_{i-1}) from l_0 = reference, never below two tokens (Sec. 3.2).

    With ``rate`` at the training bound this is the smallest configuration.
    """
    lengths: list[int] = []
    tokens = reference
    for _ in range(blocks):
        tokens = max(shrink(tokens, rate), min(MINIMUM_TOKENS, reference))
        lengths.append(tokens)
    return tuple(lengths)


def draw_lengths(reference: int, blocks: int, bound: Fraction, rng: np.random.Generator) -> tuple[int, ...]:
    """One LengthDrop draw: l_i uniform on {ceil((1 - p) l_{i-1}), ..., l_{i-1}} (Sec. 3.1).

    Args:
        reference: l₀ in tokens.
        blocks: How many blocks run (a block skipped by LayerDrop draws nothing and keeps its length).
        bound: The LengthDrop probability p.
        rng: Where the draw comes from.
    """
    lengths: list[int] = []
    tokens = reference
    for _ in range(blocks):
        drawn = int(rng.integers(shrink(tokens, bound), tokens, endpoint=True))
        tokens = max(drawn, min(MINIMUM_TOKENS, reference))
        lengths.append(tokens)
    return tuple(lengths)
