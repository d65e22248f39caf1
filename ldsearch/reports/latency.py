"""Latency as a table, its correlation with MACs, and figures of it: against MACs and against scores."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ldsearch.reports.figures import STYLE

LATENCY_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "subnet": "the sub-network as JSON, as `--subnet` takes it",
        "runtime": "what ran it: `eager` (the exported model, sdpa), `own`, `compile`, or a registered one",
        "phase": "`forward`; of models that write `prefill` (to the first token) and `per token`",
        "batch": "inputs at once",
        "length": "tokens of each input, or `data`: the split's own rows",
        "median_ms": "median latency of a batch in milliseconds",
        "low_ms": "first quartile",
        "high_ms": "third quartile",
        "p95_ms": "95th percentile",
        "repeats": "how often it was timed",
        "predicted_ms": "what the latency table beside the supernet says; empty where it does not know",
        "ratio": "`median_ms` over the full model's, the faster of its own path and stock sdpa",
        "runtime_ratio": "`median_ms` over the full model's in the same runtime",
        "macs": "multiply-accumulates per example",
        "macs_ratio": "`macs` over the full model's",
        "not_faster": "the MACs fell by more than 10%, the latency by less than 3%",
        "noisy": "the machine was not quiet while this batch and length were timed",
        "weight_bytes": "parameters and buffers of the exported model",
        "cache_bytes_per_token": "keys and values that each token of a text adds; empty where none are kept",
        "cache_bytes_per_source_token": "keys and values that each token of an encoder-decoder's input adds",
        "peak_activation_bytes": "the most that was allocated beside the weights; empty: not measured",
    }
)
FEWEST_POINTS = 3
_STYLES = (("tab:blue", "o"), ("tab:orange", "s"), ("tab:green", "^"))


def correlation(rows: pd.DataFrame) -> float | None:
    """Pearson's r of MACs and median latency; None of fewer than three points, or where one is constant."""
    if len(rows) < FEWEST_POINTS or rows["macs"].nunique() < 2 or rows["median_ms"].nunique() < 2:
        return None
    return float(np.corrcoef(rows["macs"], rows["median_ms"])[0, 1])


@dataclass(frozen=True)
class Accuracy:
    """How well latencies were predicted.

    Args:
        points: Sub-networks.
        mean_error: Mean distance of predicted over measured from 1.
        bias: The same with its sign.
        ranks: Spearman's correlation; None of fewer than three points, or where one side is constant.
    """

    points: int
    mean_error: float
    bias: float
    ranks: float | None

    @classmethod
    def of(cls, predicted: ArrayLike, measured: ArrayLike) -> "Accuracy":
        """From milliseconds, both of shape (sub-networks,)."""
        ours, theirs = pd.Series(np.asarray(predicted)), pd.Series(np.asarray(measured))
        off = ours / theirs - 1
        ranks = float(ours.corr(theirs, method="spearman"))
        known = len(off) >= FEWEST_POINTS and not math.isnan(ranks)
        return cls(len(off), float(off.abs().mean()), float(off.mean()), ranks if known else None)

    def describe(self) -> str:
        """In words."""
        ranks = "" if self.ranks is None else f", ranks agree by {self.ranks:.3f}"
        return (
            f"predictions of {self.points} sub-networks are off by {self.mean_error:.1%} in the mean "
            f"({self.bias:+.1%}){ranks}"
        )


def prediction_errors(table: pd.DataFrame) -> list[str]:
    """How far a latency table's predictions were off, a line for each runtime, batch size and length.

    Args:
        table: Columns of ``LATENCY_COLUMNS``.
    """
    found = []
    known = table[table["predicted_ms"].notna()]
    for (runtime, batch, length), rows in known.groupby(["runtime", "batch", "length"], sort=False):
        accuracy = Accuracy.of(rows["predicted_ms"], rows["median_ms"])
        found.append(f"{runtime}, {batch} x {length}: the latency table's {accuracy.describe()}")
    return found


def correlations(table: pd.DataFrame) -> list[str]:
    """Pearson's r of MACs and latency in words, of each runtime, phase, batch size and length."""
    found = []
    for cell, rows in table.groupby(["runtime", "phase", "batch", "length"], sort=False):
        r = correlation(rows)
        if r is not None:
            runtime, phase, batch, length = cell
            found.append(f"{runtime}, {phase}, {batch} x {length}: MACs and latency correlate, r = {r:.3f}")
    return found


@dataclass(frozen=True)
class TimedPoint:
    """A timed sub-network.

    Args:
        share: Of the full model's MACs.
        milliseconds: Median latency.
        quartiles: First and third.
        score: Its score.
        interval: 95%, of the difference to the full model, around the score; None where there is none.
    """

    share: float
    milliseconds: float
    quartiles: tuple[float, float]
    score: float
    interval: tuple[float, float] | None = None


@rc_context(STYLE)
def draw_tradeoff(
    lines: Mapping[str, Sequence[TimedPoint]], full: TimedPoint, score: str, milliseconds: str
) -> Figure:
    """Score against measured latency (left) and against MACs (right).

    Args:
        lines: Frontiers by name, cheapest first.
        full: The full model.
        score: What the scores are.
        milliseconds: What was timed.
    """
    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for (name, points), (colour, marker) in zip(lines.items(), itertools.cycle(_STYLES), strict=False):
        scores = np.array([point.score for point in points])
        intervals = np.array([point.interval or (point.score, point.score) for point in points]).T
        # A score can lie outside of the bootstrap's interval by the resampling's own error.
        heights = np.maximum(0.0, [scores - intervals[0], intervals[1] - scores])
        medians = np.array([point.milliseconds for point in points])
        quartiles = np.array([point.quartiles for point in points]).T
        widths = np.array([medians - quartiles[0], quartiles[1] - medians])
        shares = np.array([point.share for point in points])
        for axes, places, xerr in ((left, medians, widths), (right, shares, None)):
            axes.errorbar(places, scores, yerr=heights, xerr=xerr, fmt=marker, color=colour, label=name)
    for axes, place in ((left, full.milliseconds), (right, 1.0)):
        axes.axhline(full.score, color="0.4", lw=0.8)
        axes.scatter([place], [full.score], marker="*", s=160, color="black", label="full model", zorder=5)
        axes.set_xlim(left=0)
    left.set_xlabel(f"{milliseconds} (bars: quartiles)")
    left.set_ylabel(score)
    right.set_xlabel("share of the full model's MACs at true lengths")
    right.legend(loc="lower right", title="vertical bars: 95% of the difference to full")
    return figure


@rc_context(STYLE)
def draw_latency(table: pd.DataFrame, title: str) -> Figure:
    """Latency against MACs, a row of panels per phase and a panel per batch size; r per length.

    Args:
        table: Columns of ``LATENCY_COLUMNS``, of one runtime.
        title: Above the panels.
    """
    phases, batches = table["phase"].unique(), table["batch"].unique()
    figure = Figure(figsize=(4.4 * len(batches), 3.8 * len(phases)), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(len(phases), len(batches), squeeze=False)
    for (phase, batch), axes in zip(itertools.product(phases, batches), panels.flat, strict=True):
        panel = table[(table["phase"] == phase) & (table["batch"] == batch)]
        for length, rows in panel.groupby("length", sort=False):
            r = correlation(rows)
            label = f"length {length}" + ("" if r is None else f": r = {r:.3f}")
            spread = [rows["median_ms"] - rows["low_ms"], rows["high_ms"] - rows["median_ms"]]
            axes.errorbar(rows["macs"] / 1e9, rows["median_ms"], yerr=spread, fmt="o", label=label)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_title(f"batch {batch}, {phase}", fontsize=10)
        axes.set_xlabel("GMACs per example")
        axes.legend(loc="upper left")
    for axes in panels[:, 0]:
        axes.set_ylabel("median latency, ms (bars: quartiles)")
    return figure
