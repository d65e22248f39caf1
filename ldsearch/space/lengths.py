"""Length configurations: LengthDrop's integer arithmetic, and lengths as genes of a search space.

Source: Kim & Cho 2020, Sec. 3.1 and 3.2. Rates are rationals (``Fraction``), because ``ceil`` of a float
product is off by one for a quarter of the percent values.
"""

import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.subnet import MOST_BLOCKS, MOST_TOKENS, LengthMode, Lengths

# The reference code never goes below two tokens: [CLS] and one more.
MINIMUM_TOKENS = 2
# The share of tokens that leaves the last block of the smallest configuration: 0.8 ** 12, the paper's
# 12 blocks at p = 0.2. Keeping it at every depth keeps the reachable costs alike.
SMALLEST_SHARE = 0.07
_RATES = 400  # rates between 0 and 1 that name the constant-ratio configurations
# The share of blocks before the first drop of the shape ``LATE``.
_WHOLE = Fraction(1, 3)


class Shape(Enum):
    """Shapes of regular lengths: early, even or late drops, by what the head reads of dropped tokens."""

    # Every block the same share: of a head that reads the first token only.
    EVEN = "a constant ratio of tokens per block"
    # Behind the first third of the blocks: a dropped token answers by the state it had, and a later one says
    # more (results/squad_minilm/shapes, results/names).
    LATE = "the first third of the blocks whole, then a constant ratio of tokens per block"
    # A share that falls evenly to almost nothing: an answer is the mean of what is left, of which early drops
    # cost less than late ones (results/compress/shapes).
    EARLY = "tokens per block in a ratio that rises evenly to almost all"
    # For the mean of a short text better still, of a long one at small budgets alone (the same page).
    ONCE = "tokens dropped once, in the first block"

    def rates(self, rate: Fraction, blocks: int) -> list[Fraction]:
        """The share of its tokens that each block drops, ``rate`` at most."""
        parts = {
            Shape.EVEN: [Fraction(1)] * blocks,
            Shape.LATE: [Fraction(block >= int(_WHOLE * blocks)) for block in range(blocks)],
            Shape.EARLY: [Fraction(blocks - block, blocks) for block in range(blocks)],
            Shape.ONCE: [Fraction(block == 0) for block in range(blocks)],
        }
        return [rate * part for part in parts[self]]


Levels = tuple[int, ...]


def as_rate(value: float | str | Fraction) -> Fraction:
    """A drop rate as the decimal fraction a person wrote (0.2 is 1/5, not its binary neighbour).

    Raises:
        SpaceError: If it does not lie in [0, 1).
    """
    try:
        rate = value if isinstance(value, Fraction) else as_fraction(str(value))
    except ValueError as error:
        raise SpaceError(f"{value!r} is no drop rate: use a number from 0 up to 1, such as 0.2") from error
    if not 0 <= rate < 1:
        raise SpaceError(f"a drop rate must lie in [0, 1), not {value}")
    return rate


def as_fraction(text: str) -> Fraction:
    """A number as a person writes it: 0.2, 1/5, 2e-1.

    Raises:
        ValueError: If it is none. Exponents have two digits: to write out more takes for ever.
    """
    if not re.fullmatch(
        r"\s*[+-]?[\d_]{0,24}(\.\d{0,24})?(e[+-]?\d{1,2}|/\d{1,24})?\s*", text, re.IGNORECASE
    ):
        raise ValueError(f"{text[:40]!r} is no number")
    try:
        return Fraction(text)
    except ZeroDivisionError as error:
        raise ValueError(f"{text!r} divides by zero") from error


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
    return dropped(reference, [rate] * blocks)


def dropped(reference: int, rates: Sequence[Fraction]) -> tuple[int, ...]:
    """As ``constant_ratio_lengths``, with a rate for each block."""
    lengths: list[int] = []
    tokens = reference
    for rate in rates:
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


def draw_regular(reference: int, blocks: int, bound: Fraction, rng: np.random.Generator) -> tuple[int, ...]:
    """Lengths of a shape and a rate up to the bound, both uniform; the arguments of ``draw_lengths``."""
    shape = list(Shape)[rng.integers(len(Shape))]
    rate = bound * Fraction(int(rng.integers(1, _RATES, endpoint=True)), _RATES)
    return dropped(reference, shape.rates(rate, blocks))


def draw_shares(
    reference: int,
    blocks: int,
    shapes: Sequence[Shape],
    shares: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[int, ...]:
    """Lengths of a shape, uniform, whose blocks together keep a uniform share of all their tokens.

    Args:
        reference: l₀ in tokens.
        blocks: How many run.
        shapes: Any of them.
        shares: The range of the share; a shape that keeps more at every rate gives its least.
        rng: Where the draw comes from.
    """
    shape = shapes[int(rng.integers(len(shapes)))]
    tokens = rng.uniform(*shares) * blocks * reference

    def lengths(rate: int) -> tuple[int, ...]:
        return dropped(reference, shape.rates(Fraction(rate, _RATES), blocks))

    rates = range(_RATES)
    return lengths(min(bisect_left(rates, -tokens, key=lambda rate: -sum(lengths(rate))), rates[-1]))


@dataclass(frozen=True)
class LengthGenes:
    """Lengths of the blocks that run of an encoder: never rising, on given levels, within the trained range.

    A configuration of k running blocks is written as the indices of its k lengths in ``levels``.

    Args:
        reference: Reference input length l₀ in tokens.
        mode: How lengths apply to shorter inputs (``Lengths.mode``).
        levels: The allowed lengths, ascending; the last is the reference.
        floors: The smallest allowed length of the first, second, ... block that runs: the smallest
            configuration of the training. As many as the encoder has blocks.
        pin_last: Whether the last length is fixed to the last floor: after the last attention, a head that
            reads only [CLS] cannot see which other tokens are left.
        drop_bound: The largest share of its tokens that a single block drops, rounded to the levels in the
            block's favour, as a fraction (``"9/25"``); the pinned length is free of it. None: any share.
        least: The configuration whose cost a search does not go below (``widened``); (): the floors, which
            nothing is cheaper than.
    """

    reference: int
    mode: LengthMode
    levels: tuple[int, ...]
    floors: tuple[int, ...]
    pin_last: bool
    drop_bound: str | None = None
    least: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if list(self.levels) != sorted({*self.levels}) or not self.levels or self.levels[0] < 1:
            raise SpaceError("levels are distinct lengths in ascending order")
        if self.levels[-1] != self.reference or not {*self.floors, *self.least} <= {*self.levels}:
            raise SpaceError(f"levels end at the reference {self.reference}, and floors are among them")

    @classmethod
    def build(
        cls,
        blocks: int,
        reference: int,
        drop_bound: Any,
        *,
        levels: int | None = 16,
        mode: LengthMode = "ratio",
        pin_last: bool = True,
        per_block: bool = False,
    ) -> "LengthGenes":
        """The lengths of a LengthDrop bound: floors from its smallest configuration.

        Args:
            blocks: Number of blocks of the encoder.
            reference: l₀ in tokens.
            drop_bound: The LengthDrop probability p of the training.
            levels: Size of the grid; None allows every length.
            mode: ``"ratio"`` or ``"absolute"``.
            pin_last: See the class.
            per_block: Whether p bounds each block (``drop_bound``), as in training, or the floors alone.

        Raises:
            SpaceError: If a number makes no sense.
        """
        if not (1 <= blocks <= MOST_BLOCKS and 2 <= reference <= MOST_TOKENS):
            raise SpaceError(
                f"a length space has 1..{MOST_BLOCKS:,} blocks and 2..{MOST_TOKENS:,} tokens, not {blocks} "
                f"and {reference}"
            )
        rate = as_rate(drop_bound)
        every = cls(
            reference,
            mode,
            tuple(range(1, reference + 1)),
            constant_ratio_lengths(reference, blocks, rate),
            pin_last,
            str(rate) if per_block else None,
        )
        return every if levels is None else every.on_grid(levels)

    def on_grid(self, levels: int) -> "LengthGenes":
        """The same range on about so many evenly spaced levels; floors are rounded up.

        Raises:
            SpaceError: If there are fewer than 2.
        """
        if not 2 <= levels <= MOST_TOKENS:
            raise SpaceError(f"a grid has 2..{MOST_TOKENS:,} levels, not {levels}")
        grid = tuple(sorted({-(-self.reference * level // levels) for level in range(1, levels + 1)}))
        floors = tuple(next(level for level in grid if level >= tokens) for tokens in self.floors)
        return replace(self, levels=grid, floors=floors)

    def widened(self) -> "LengthGenes":
        """The same range of costs, but no floor and no bound for a single block.

        So the length-adaptive paper's code searches: only the cost of the smallest configuration bounds it,
        and single blocks may drop what training never dropped. Every length may fall to the last one's floor
        where that is pinned, else to ``MINIMUM_TOKENS``; counting and sampling know no costs and give cheaper
        configurations too, which strategies leave out.
        """
        lowest = next(level for level in self.levels if level >= min(MINIMUM_TOKENS, self.reference))
        floor = self.floors[-1] if self.pin_last else lowest
        floors = (floor,) * len(self.floors)
        return replace(self, floors=floors, drop_bound=None, least=self.least or self.floors)

    @property
    def top(self) -> int:
        """The index of the reference among the levels."""
        return len(self.levels) - 1

    def lengths(self, levels: Sequence[int]) -> Lengths:
        """The length configuration of level indices."""
        return Lengths(tuple(self.levels[level] for level in levels), self.reference, self.mode)

    def read(self, lengths: Lengths | None, count: int) -> Levels | None:
        """The level indices of a length configuration of ``count`` blocks; None where it has none here."""
        if lengths is None:
            return (self.top,) * count
        if (lengths.reference, lengths.mode) != (self.reference, self.mode):
            return None
        levels = tuple(self._index.get(tokens, -1) for tokens in lengths.tokens)
        return None if -1 in levels else levels

    def smallest(self, count: int) -> Levels:
        """The smallest trained configuration of ``count`` blocks, which bounds the cost of a search."""
        return self._pinned([self._index[tokens] for tokens in (self.least or self.floors)[:count]])

    def regular(self, count: int, shape: Shape = Shape.EVEN) -> list[Levels]:
        """Configurations of ``count`` blocks in a shape, shortest first, raised to the levels, pinned."""
        rates = (Fraction(step, _RATES) for step in reversed(range(_RATES)))
        lines = (dropped(self.reference, shape.rates(rate, count)) for rate in rates)
        return list(dict.fromkeys(map(self.snap, lines)))

    def snap(self, tokens: Sequence[int]) -> Levels:
        """Each length raised to the next level, and repaired."""
        return self.repair([int(np.searchsorted(self.levels, n)) for n in tokens])

    def repair(self, levels: Sequence[int]) -> Levels:
        """Clip each level to what its block may keep after the one before; pin the last."""
        repaired: list[int] = []
        previous = self.top
        for position, level in enumerate(levels):
            previous = min(max(int(level), self._lowest(position, previous)), previous)
            repaired.append(previous)
        return self._pinned(repaired)

    def size(self, count: int) -> int:
        """Number of configurations of ``count`` blocks."""
        return self._completions(count)[0][self.top]

    def enumerate(self, count: int) -> Iterator[Levels]:
        """Every configuration of ``count`` blocks, smallest first."""

        def extend(prefix: Levels) -> Iterator[Levels]:
            if len(prefix) == count:
                yield prefix
                return
            for level in self._choices(len(prefix), count, prefix[-1] if prefix else self.top):
                yield from extend((*prefix, level))

        return extend(())

    def sample(self, count: int, rng: np.random.Generator) -> Levels:
        """Uniform: each level is drawn in proportion to how many ways go on."""
        drawn: list[int] = []
        previous = self.top
        table = self._completions(count)
        for position in range(count):
            choices = self._choices(position, count, previous)
            total = table[position][previous]
            weights = [table[position + 1][level] / total for level in choices]
            previous = choices[int(rng.choice(len(choices), p=weights))]
            drawn.append(previous)
        return tuple(drawn)

    def mutate(self, levels: Sequence[int], probability: float, rng: np.random.Generator) -> Levels:
        """Sweep the blocks; with the probability p_m draw l_i uniformly between l_{i+1} and the new l_{i-1}.

        Levels never rise by construction: each draw lies between its two neighbours (Kim & Cho 2020,
        Sec. 3.2).
        """
        mutated: list[int] = []
        previous = self.top
        for level, after, floor in zip(levels, [*levels[1:], 0], self._floor_levels, strict=False):
            if rng.random() < probability:
                previous = int(rng.integers(max(after, floor), previous, endpoint=True))
            else:
                previous = int(level)
            mutated.append(previous)
        return tuple(mutated)

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as JSON has them; every length is ``"all"`` levels."""
        every = self.levels == tuple(range(1, self.reference + 1))
        return {**asdict(self), "levels": "all" if every else self.levels}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "LengthGenes":
        """From what ``to_dict`` gave."""
        reference = operator.index(fields["reference"])
        if not 1 <= reference <= MOST_TOKENS:
            raise ValueError(f"a reference length lies in 1..{MOST_TOKENS:,}, not {reference}")
        every = range(1, reference + 1)
        levels = every if fields["levels"] == "all" else fields["levels"]
        vectors = {"levels": levels, "floors": fields["floors"], "least": fields["least"]}
        return cls(**{**fields, **{name: tuple(map(operator.index, v)) for name, v in vectors.items()}})

    def _pinned(self, levels: Sequence[int]) -> Levels:
        return (*levels[:-1], self._floor_levels[-1]) if self.pin_last and levels else tuple(levels)

    def _lowest(self, position: int, previous: int) -> int:
        """The least level of the block at a position, given the level of the one before."""
        floor = self._floor_levels[position]
        # From one length of the smallest configuration the next is in reach, however coarse the levels.
        if position and previous == self._floor_levels[position - 1]:
            return floor
        return max(floor, self._bounds[previous])

    def _choices(self, position: int, count: int, previous: int) -> range:
        if self.pin_last and position == count - 1:
            return range(self._floor_levels[-1], self._floor_levels[-1] + 1)
        return range(self._lowest(position, previous), previous + 1)

    def _completions(self, count: int) -> list[list[int]]:
        """[position][previous level]: number of ways to choose the lengths from ``position`` on."""
        if count not in self._tables:
            table = [[1] * len(self.levels)]
            for position in reversed(range(count)):
                ways = table[0]
                row = [
                    sum(ways[level] for level in self._choices(position, count, previous))
                    for previous in range(len(self.levels))
                ]
                table.insert(0, row)
            self._tables[count] = table
        return self._tables[count]

    @cached_property
    def _bounds(self) -> list[int]:
        """[level]: the least level that ``drop_bound`` leaves after it, rounded down."""
        if self.drop_bound is None:
            return [0] * len(self.levels)
        rate = Fraction(self.drop_bound)
        return [max(0, bisect_right(self.levels, shrink(tokens, rate)) - 1) for tokens in self.levels]

    @cached_property
    def _tables(self) -> dict[int, list[list[int]]]:
        return {}

    @cached_property
    def _floor_levels(self) -> Levels:
        return tuple(self._index[tokens] for tokens in self.floors)

    @cached_property
    def _index(self) -> Mapping[int, int]:
        return {tokens: index for index, tokens in enumerate(self.levels)}
