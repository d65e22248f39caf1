"""Latency as a table, its correlation with MACs, and figures of it: against MACs and against scores."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from ldsearch.reports.style import (
    STYLE,
    WIDE,
    Label,
    draw_band,
    mark_full,
    place_labels,
    series,
    show_noise,
)

FEWEST_POINTS = 3


def correlation(rows: pd.DataFrame) -> float | None:
    """Pearson's r of MACs and median latency; None of fewer than three points, or where one is constant."""
    if len(rows) < FEWEST_POINTS or rows["macs"].nunique() < 2 or rows["median_ms"].nunique() < 2:
        return None
    return float(np.corrcoef(rows["macs"], rows["median_ms"])[0, 1])


@dataclass(frozen=True)
class Accuracy:
    """The quality of predicted latencies.

    Args:
        points: Sub-networks.
        mean_error: Mean distance of predicted over measured from 1.
        bias: The same with its sign.
        rank_correlation: Spearman's; None of fewer than three points, or where one side is constant.
    """

    points: int
    mean_error: float
    bias: float
    rank_correlation: float | None

    @classmethod
    def of(cls, predicted: ArrayLike, measured: ArrayLike) -> "Accuracy":
        """From milliseconds, both of shape (sub-networks,)."""
        ours, theirs = pd.Series(np.asarray(predicted)), pd.Series(np.asarray(measured))
        off = ours / theirs - 1
        ranks = float(ours.corr(theirs, method="spearman"))
        known = len(off) >= FEWEST_POINTS and not math.isnan(ranks)
        return cls(len(off), float(off.abs().mean()), float(off.mean()), ranks if known else None)

    def describe(self) -> str:
        """Describe the errors."""
        ranks = "" if self.rank_correlation is None else f", ranks agree by {self.rank_correlation:.3f}"
        return (
            f"predictions of {self.points} sub-networks are off by {self.mean_error:.1%} in the mean "
            f"({self.bias:+.1%}){ranks}"
        )


def prediction_errors(table: pd.DataFrame) -> list[str]:
    """Errors of a latency table's predictions, a line for each runtime, batch size and length.

    Args:
        table: Rows of ``latency.csv``.
    """
    known = table[table["predicted_ms"].notna()].groupby(["runtime", "batch", "length"], sort=False)
    return [
        f"{runtime}, {batch} x {length}: the latency table's "
        f"{Accuracy.of(rows['predicted_ms'], rows['median_ms']).describe()}"
        for (runtime, batch, length), rows in known
    ]


def correlations(table: pd.DataFrame) -> list[str]:
    """Pearson's r of MACs and latency in words, of each runtime, phase, batch size and length."""
    cells = table.groupby(["runtime", "phase", "batch", "length"], sort=False)
    return [
        f"{runtime}, {phase}, {batch} x {length}: MACs and latency correlate, r = {r:.3f}"
        for (runtime, phase, batch, length), rows in cells
        if (r := correlation(rows)) is not None
    ]


@rc_context(STYLE)
def draw_tradeoff(
    fronts: Mapping[str, pd.DataFrame], full: "pd.Series[Any]", score: str, milliseconds: str, title: str
) -> Figure:
    """Score against measured latency (left) and against MACs (right).

    Args:
        fronts: Frontiers by name, cheapest first: ``median_ms``, ``low_ms``, ``high_ms``, ``share`` of the
            full model's MACs, ``score``, and ``score_low`` and ``score_high``, the 95% interval of the
            difference to the full model around the score.
        full: The full model's row.
        score: What the scores are.
        milliseconds: What was timed.
        title: Above the panels.
    """
    figure = Figure(figsize=(WIDE, 4.8), layout="constrained")
    figure.suptitle(f"{title}\nband: 95% of the difference to the full model; bars: quartiles of the timing")
    left, right = figure.subplots(1, 2, sharey=True)
    named = {
        left: [mark_full(left, full["median_ms"], full["score"])],
        right: [mark_full(right, 1.0, full["score"])],
    }
    for number, (name, rows) in enumerate(fronts.items()):
        style = series(number)
        for axes, places, widths in (
            (left, rows["median_ms"], _quartiles(rows)),
            (right, rows["share"], None),
        ):
            draw_band(axes, places, rows["score_low"], rows["score_high"], style["color"])
            axes.errorbar(places, rows["score"], xerr=widths, ls="", **style)
            named[axes].append(Label(name, [*places], [*rows["score"]], style["color"]))
    # The intervals of differences are narrower than a score's own.
    widest = max(float((rows["score_high"] - rows["score_low"]).max()) for rows in fronts.values())
    show_noise(left, widest / 3.92)
    left.set_xlabel(milliseconds)
    left.set_ylabel(score)
    right.set_xlabel("share of the full model's MACs at true lengths")
    for axes in (left, right):
        axes.set_xlim(left=0)
    for axes, labels in named.items():
        place_labels(axes, labels)
    return figure


def _quartiles(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Distances of the quartiles from the median, as error bars, shape (2, rows)."""
    middle = rows["median_ms"]
    # An array: Matplotlib 3.9 takes a Series of one value apart by a conversion that pandas has deprecated.
    return np.array([middle - rows["low_ms"], rows["high_ms"] - middle])


@rc_context(STYLE)
def draw_latency(table: pd.DataFrame, title: str) -> Figure:
    """Latency against MACs, a row of panels per phase and a panel per batch size; r per length.

    Args:
        table: Rows of ``latency.csv``, of one runtime.
        title: Above the panels.
    """
    phases, batches = table["phase"].unique(), table["batch"].unique()
    figure = Figure(figsize=(4.4 * len(batches), 3.8 * len(phases)), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(len(phases), len(batches), squeeze=False)
    for (phase, batch), axes in zip(itertools.product(phases, batches), panels.flat, strict=True):
        panel = table[(table["phase"] == phase) & (table["batch"] == batch)]
        for number, (length, rows) in enumerate(panel.groupby("length", sort=False)):
            r = correlation(rows)
            label = f"length {length}" + ("" if r is None else f": r = {r:.3f}")
            style = {"yerr": _quartiles(rows), "ls": "", **series(number)}
            axes.errorbar(rows["macs"] / 1e9, rows["median_ms"], label=label, **style)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_title(f"batch {batch}, {phase}")
        axes.set_xlabel("GMACs per example")
        axes.legend(loc="upper left")
    for axes in panels[:, 0]:
        axes.set_ylabel("median latency, ms (bars: quartiles)")
    return figure
