"""The frontier to look around in: where each point stands in an SVG of a page, and its model as a picture.

Nothing here is HTML: ``explorer.html.j2`` draws from these numbers, in units of the drawing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from matplotlib.ticker import MaxNLocator

from ldsearch.reports.heat_maps import kept_shares
from ldsearch.reports.style import LEAST_ERRORS
from ldsearch.subnet import Subnet

WIDTH, HEIGHT = 640.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 18.0, 26.0, 48.0
_PAD = 0.06  # of an axis, on either side of what stands there


@dataclass(frozen=True)
class Bar:
    """A block in the picture of a model.

    Args:
        block: 0-based.
        share: Of the tokens that leaves it; None: it does not run.
        text: What stands beside it.
    """

    block: int
    share: float | None
    text: str


@dataclass(frozen=True)
class Point:
    """A sub-network of a frontier.

    Args:
        subnet: The sub-network.
        share: Of the full model's cost.
        score: As drawn.
        low: Lower end of its interval; None: there is none.
        high: Upper end.
        facts: What its card says, by label.
        command: That exports it.
        chosen: Whether it was taken.
    """

    subnet: Subnet
    share: float
    score: float
    low: float | None
    high: float | None
    facts: Mapping[str, str]
    command: str
    chosen: bool = False


@dataclass(frozen=True)
class Explorer:
    """Points, labels and pictures that the template draws.

    Args:
        points: Cheapest first.
        full_score: The full model's, at a share of 1.
        standard_error: Of a score; NaN: not known.
        budget: As a share; None: there is none, or it limits another cost.
        depths: Blocks of each stack of the full model, by name.
        cost: What the shares are of, in words.
        score: What the scores are, in words.
    """

    points: Sequence[Point]
    full_score: float
    standard_error: float
    budget: float | None
    depths: Mapping[str, int]
    cost: str
    score: str
    width: float = field(default=WIDTH, init=False)
    height: float = field(default=HEIGHT, init=False)

    @property
    def frame(self) -> dict[str, float]:
        """Edges of the axes."""
        return {"left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM}

    @property
    def _across(self) -> tuple[float, float]:
        shares = [
            *(point.share for point in self.points),
            1.0,
            *([] if self.budget is None else [self.budget]),
        ]
        return _padded(min(shares), max(shares))

    @property
    def _up(self) -> tuple[float, float]:
        known = [self.full_score]
        for point in self.points:
            known += [each for each in (point.score, point.low, point.high) if each is not None]
        low, high = _padded(min(known), max(known))
        missing = LEAST_ERRORS * self.standard_error - (high - low)
        return (low - missing / 2, high + missing / 2) if missing > 0 else (low, high)

    def x(self, share: float) -> float:
        """The x position of a share of the cost."""
        low, high = self._across
        return round(_LEFT + (share - low) / (high - low) * (WIDTH - _RIGHT - _LEFT), 2)

    def y(self, score: float) -> float:
        """The y position of a score."""
        low, high = self._up
        return round(HEIGHT - _BOTTOM - (score - low) / (high - low) * (HEIGHT - _BOTTOM - _TOP), 2)

    @property
    def shares(self) -> dict[str, float]:
        """Ticks of the costs: their texts and places."""
        return {text: self.x(value) for text, value in _ticks(*self._across)}

    @property
    def scores(self) -> dict[str, float]:
        """Ticks of the scores: their texts and places."""
        return {text: self.y(value) for text, value in _ticks(*self._up)}

    @property
    def stairs(self) -> str:
        """Path of the frontier: of each cost the point that it buys."""
        steps = [f"M{self.x(point.share)} {self.y(point.score)}" for point in self.points[:1]]
        for _, point in pairwise(self.points):
            steps.append(f"H{self.x(point.share)}V{self.y(point.score)}")
        return "".join(steps)

    @property
    def band(self) -> str:
        """Path around the intervals; empty where there are none."""
        there = [point for point in self.points if point.low is not None and point.high is not None]
        corners = [(point.share, point.high) for point in there]
        corners += [(point.share, point.low) for point in reversed(there)]
        path = "L".join(f"{self.x(share)} {self.y(end)}" for share, end in corners if end is not None)
        return f"M{path}Z" if path else ""

    def bars(self, subnet: Subnet) -> dict[str, list[Bar]]:
        """The picture of a sub-network: the blocks of each stack of the full model, from its input on."""
        return {stack: _bars(subnet, stack, blocks) for stack, blocks in self.depths.items()}


def _bars(subnet: Subnet, stack: str, blocks: int) -> list[Bar]:
    kept = subnet.stacks().get(stack)
    tokens: dict[int, int] = {}
    if kept is not None and kept.lengths is not None:
        tokens = dict(zip(kept.blocks, kept.lengths.tokens, strict=True))
    bars = []
    for block, share in enumerate(kept_shares([subnet], stack, blocks)[0].tolist()):
        if math.isnan(share):
            bars.append(Bar(block, None, "left out"))
        else:
            reference = kept.lengths.reference if kept is not None and kept.lengths is not None else 0
            text = f"{tokens[block]} of {reference}" if block in tokens else "all tokens"
            bars.append(Bar(block, share, text))
    return bars


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = _PAD * (high - low) or 0.01 * abs(high) or 0.01
    return low - pad, high + pad


def _ticks(low: float, high: float) -> list[tuple[str, float]]:
    """Round values inside an axis, with the decimals that tell them apart."""
    places = np.asarray(MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(low, high))
    values = places[(low <= places) & (places <= high)].tolist()
    step = min(np.diff(values), default=1.0)
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9)) if step < 1 else 0
    return [(f"{value:.{decimals}f}", value) for value in values]
