"""Frontiers of several runs in one figure, on the rows that chose nothing, and their areas over one range."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ldsearch.pareto import staircase_weights

Rows = tuple[str, str, int]


@dataclass(frozen=True)
class Line:
    """One run's frontier.

    Args:
        label: The run's.
        front: Its ``frontier.csv``, cheapest first.
        full: The full model's row of ``trials.csv``.
        ends: Lower and upper ends of the scores' own 95% intervals; None: bars are those of the difference
            to the full model, which say little of how far two models are apart.
    """

    label: str
    front: pd.DataFrame
    full: "pd.Series[Any]"
    ends: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def held_out(self) -> bool:
        """Whether it was scored on rows that chose nothing."""
        return "held_out_score" in self.front.columns

    @property
    def rows(self) -> Rows:
        """Metric, split and number of the examples that ``scores`` rest on."""
        first = self.front.iloc[0]
        column = "held_out_" if self.held_out else ""
        return str(first["metric"]), str(first[f"{column}split"]), int(first[f"{column}examples"])

    @property
    def scores(self) -> "pd.Series[Any]":
        """Held out where there are such rows, else those that chose."""
        return self.front["held_out_score" if self.held_out else "score"]

    @property
    def bars(self) -> "list[pd.Series[Any]] | None":
        """How far the bars go below and above ``scores``; None where there are no rows to say."""
        if self.ends is not None:
            low, high = self.ends
            return [self.scores - low, high - self.scores]
        if not self.held_out:
            return None
        differences = self.front["difference"]
        return [differences - self.front["difference_low"], self.front["difference_high"] - differences]

    @property
    def full_score(self) -> float:
        """The full model's, on the same rows."""
        if not self.held_out:
            return float(self.full["score"])
        first = self.front.iloc[0]
        return float(first["held_out_score"] - first["difference"])


def panels_of(lines: Sequence[Line]) -> dict[Rows, list[Line]]:
    """The lines that rest on as many rows of the same name and metric, and so can be compared."""
    found: dict[Rows, list[Line]] = {}
    for line in lines:
        found.setdefault(line.rows, []).append(line)
    return found


def common_areas(lines: Sequence[Line]) -> tuple[list[float], float, float]:
    """Mean score over the costs that every line reaches, where each line's own search makes its choices.

    Args:
        lines: Of one panel.

    Returns:
        The areas (NaN where the lines have no range in common), and the range in MACs per example.
    """
    low = max(float(line.front["macs"].min()) for line in lines)
    high = min(float(line.full["macs"]) for line in lines)
    if not low < high:
        return [float("nan")] * len(lines), low, high
    return [_area(line, low, high) for line in lines], low, high


def _area(line: Line, low: float, high: float) -> float:
    # Along a frontier whatever costs more was better where it was chosen, in whichever direction.
    weights = staircase_weights(line.front["macs"], np.arange(len(line.front)), low, high)
    return float(weights @ line.scores.to_numpy(dtype=np.float64))


def draw_overlay(lines: Sequence[Line]) -> Figure:
    """A panel for each kind of rows; shares of MACs where the full models cost the same, else MACs."""
    panels = panels_of(lines)
    figure = Figure(figsize=(6.2, 0.4 + 3.8 * len(panels)), layout="constrained")
    for number, (rows, own) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(len(panels), 1, number)
        _draw_panel(axes, own)
        metric, split, examples = rows
        axes.set_ylabel(f"{metric} on {examples} {split} examples")
    return figure


def _draw_panel(axes: Axes, lines: Sequence[Line]) -> None:
    alike = len({round(float(line.full["macs"])) for line in lines}) == 1
    stars = Counter((float(line.full["macs"]), line.full_score) for line in lines)
    for number, line in enumerate(lines):
        unit = float(line.full["macs"]) if alike else 1e6
        costs, colour = line.front["macs"] / unit, f"C{number}"
        axes.errorbar(
            costs,
            line.scores,
            yerr=line.bars,
            fmt="o",
            ms=4,
            elinewidth=0.7,
            capsize=2,
            color=colour,
            label=line.label,
        )
        end = float(line.full["macs"]) / unit
        steps = [*costs, max(end, *costs)], [*line.scores, line.scores.iloc[-1]]
        axes.plot(*steps, ds="steps-post", color=colour)
        # A star that several lines share is of no line's colour.
        shared = len(lines) == 1 or stars[float(line.full["macs"]), line.full_score] > 1
        axes.scatter([end], [line.full_score], marker="*", s=110, c="black" if shared else colour, zorder=4)
    axes.scatter([], [], marker="*", s=110, c="black", label="full model")
    axes.set_xlabel("share of the full model's MACs at true lengths" if alike else "million MACs per example")
    axes.legend(loc="best", fontsize=8)
    axes.grid(alpha=0.25)
