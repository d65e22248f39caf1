"""Score against measured latency and against MACs, side by side, of frontiers and the full model."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_STYLES = (("tab:blue", "o"), ("tab:orange", "s"), ("tab:green", "^"))


@dataclass(frozen=True)
class Point:
    """A sub-network.

    Args:
        share: Of the full model's MACs.
        milliseconds: Median latency.
        quartiles: First and third.
        score: To be trusted as ``interval`` says.
        interval: 95%, of the difference to the full model, around the score; None where there is none.
    """

    share: float
    milliseconds: float
    quartiles: tuple[float, float]
    score: float
    interval: tuple[float, float] | None = None


def draw_tradeoff(lines: Mapping[str, Sequence[Point]], full: Point, score: str, milliseconds: str) -> Figure:
    """Left: latency. Right: MACs.

    Args:
        lines: Frontiers by name, cheapest first.
        full: The full model.
        score: What the scores are.
        milliseconds: What was timed.
    """
    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for (name, points), (colour, marker) in zip(lines.items(), itertools.cycle(_STYLES), strict=False):
        for axes, measured in ((left, True), (right, False)):
            _draw_line(axes, points, measured, name, colour, marker)
    for axes, place in ((left, full.milliseconds), (right, 1.0)):
        axes.axhline(full.score, color="0.4", lw=0.8)
        axes.scatter([place], [full.score], marker="*", s=160, color="black", label="full model", zorder=5)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
    left.set_xlabel(f"{milliseconds} (bars: quartiles)")
    left.set_ylabel(score)
    right.set_xlabel("share of the full model's MACs at true lengths")
    right.legend(loc="lower right", fontsize=9, title="vertical bars: 95% of the difference to full")
    return figure


def _draw_line(
    axes: Axes, points: Sequence[Point], measured: bool, name: str, colour: str, marker: str
) -> None:
    ordered = sorted(points, key=lambda point: point.milliseconds if measured else point.share)
    places = [point.milliseconds if measured else point.share for point in ordered]
    spans = [point.interval or (point.score, point.score) for point in ordered]
    # A score can lie outside of the bootstrap's interval by the resampling's own error.
    heights = [
        [max(0.0, point.score - span[0]) for point, span in zip(ordered, spans, strict=True)],
        [max(0.0, span[1] - point.score) for point, span in zip(ordered, spans, strict=True)],
    ]
    widths = [
        [point.milliseconds - point.quartiles[0] for point in ordered],
        [point.quartiles[1] - point.milliseconds for point in ordered],
    ]
    axes.errorbar(
        places,
        [point.score for point in ordered],
        yerr=heights,
        xerr=widths if measured else None,
        fmt=marker,
        ms=5,
        lw=1.1,
        capsize=2,
        color=colour,
        label=name,
    )
