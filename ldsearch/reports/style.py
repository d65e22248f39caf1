"""The one style of all figures: colours, sizes, axes on which noise looks like noise, labels, files.

A figure is made to be read on a slide: scaled to half the slide's width its smallest text still has
``SMALLEST_TEXT`` points. Lines are told apart by colour, marker and dash, and by a label beside them.
"""

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cbook import STEP_LOOKUP_MAP
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from ldsearch.disk.files import write_atomic

# Okabe and Ito's palette (jfly.uni-koeln.de/color, 2008) without the colours that are too light for lines on
# white: these have a contrast of 3 and more.
BLUE, VERMILLION, GREEN, PURPLE = PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
INK, SOFT, FAINT = "#000000", "#595959", "#BFBFBF"
# Their numbers have no common divisor: 20 series differ before one repeats.
MARKERS = ("o", "s", "^", "D", "v")

# An axis of scores spans so many standard errors of one score at the least.
LEAST_ERRORS = 12
# Inches of half a slide of 13.3, and points of text that can be read there.
SLIDE_HALF, SMALLEST_TEXT = 6.67, 7.5

WIDE, NARROW = 10.4, 6.4  # inches: of two panels side by side, and of one

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 12,
    "axes.ymargin": 0.12,  # room for labels above and below
    "errorbar.capsize": 2,
    "figure.titlesize": 13,
    "font.size": 12,
    "grid.alpha": 0.25,
    "legend.fontsize": 12,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
}
# Cells have no lines of a grid through their middle, and a frame.
CELLS: dict[Any, Any] = {**STYLE, "axes.grid": False, "axes.spines.right": True, "axes.spines.top": True}

GENERATOR = "ldsearch"


def series(number: int) -> dict[str, Any]:
    """Colour and marker of a line, as ``plot`` takes them."""
    return {"color": PALETTE[number % len(PALETTE)], "marker": MARKERS[number % len(MARKERS)]}


def plain(text: str) -> str:
    """Escape a name that Matplotlib would otherwise typeset as mathematics."""
    return text.replace("$", r"\$")


def contents(figure: Figure, name: str, generator: str = GENERATOR) -> dict[str, bytes]:
    """The figure as ``svg`` and ``png``, without a date: the same figure gives the same bytes.

    Args:
        figure: Its layout is fixed from here on.
        name: Of its files; what the ids inside the SVG are made from.
        generator: What the files say wrote them.
    """
    svg, png = io.BytesIO(), io.BytesIO()
    # Text stays text: it can be searched, and is read with the reader's fonts.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(svg, format="svg", metadata={"Creator": generator, "Date": None})
    figure.set_layout_engine("none")  # both files share the layout of the first
    figure.savefig(png, format="png", dpi=130, metadata={"Software": generator})
    return {"svg": svg.getvalue(), "png": png.getvalue()}


def save_figure(figure: Figure, path: Path) -> None:
    """Atomic PNG at ``path``, and SVG beside it."""
    for kind, content in contents(figure, path.stem).items():
        write_atomic(path.with_suffix(f".{kind}"), content)


def show_noise(axes: Axes, standard_error: float) -> None:
    """Widen the axis of scores, about its middle, to twelve standard errors of one score.

    Args:
        axes: Whatever is drawn is drawn already.
        standard_error: Of a score on the rows that are drawn; NaN where it is not known: nothing changes.
    """
    low, high = axes.get_ylim()
    missing = LEAST_ERRORS * standard_error - (high - low)
    if axes.get_yscale() == "linear" and missing > 0:  # not where it is NaN
        axes.set_ylim(low - missing / 2, high + missing / 2)


def draw_band(axes: Axes, places: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> None:
    """Intervals as a band; of a single place as a bar."""
    xs, below, above = (np.asarray(values, dtype=np.float64) for values in (places, low, high))
    order = np.argsort(xs, kind="stable")
    if len(xs) == 1:
        axes.vlines(xs, below, above, color=colour, alpha=0.35, lw=6)
    axes.fill_between(xs[order], below[order], above[order], color=colour, alpha=0.18, lw=0)


@dataclass(frozen=True)
class Label:
    """A text that stands beside what it names.

    Args:
        text: What it says.
        xs: Places it may stand beside, in the data's coordinates, the preferred ones first.
        ys: The same.
        colour: Of the text.
        marker: Of the line that it names, for a legend.
        dashes: The same.
    """

    text: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str = INK
    marker: str = "o"
    dashes: str = "-"


def mark_full(axes: Axes, place: float, score: float) -> Label:
    """A star where the full model is, and a thin line at its score."""
    axes.axhline(score, color=SOFT, lw=0.9, zorder=1)
    axes.scatter([place], [score], marker="*", s=190, color=INK, zorder=4)
    return Label("full model", [place], [score])


def mark_chosen(axes: Axes, place: float, score: float) -> Label:
    """A ring around what was chosen."""
    axes.scatter([place], [score], s=170, zorder=5, facecolors="none", edgecolors=INK, linewidths=1.8)
    return Label("chosen", [place], [score])


def mark_budget(axes: Axes, place: float) -> Label:
    """A dotted line at the budget."""
    axes.axvline(place, color=SOFT, ls=":", lw=1.8)
    low, high = axes.get_ylim()
    heights = np.linspace(high, low, 12)[1:-1]
    return Label(f"budget {place:.3g}", [place] * len(heights), heights.tolist(), SOFT)


# Directions from a place in which a label may stand: horizontal, vertical.
_DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))
# Points between a place and its label, and what standing farther off counts for.
_GAPS = ((7.0, 0.0), (22.0, 8.0), (38.0, 16.0), (56.0, 24.0))
_TAKEN, _OUTSIDE = 1e4, 1e6  # what standing on a label, or outside of the axes, counts for; a point is 1


def place_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Write labels where they hide least of what is drawn, one after the other.

    Args:
        axes: Everything else is drawn, and the limits are final.
        labels: The most important ones first.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # settles where the axes are
    frame, scale = axes.get_window_extent(), figure.dpi / 72
    drawn = _drawn(axes)
    taken: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for label in labels:
        note = axes.annotate(
            label.text,
            (0, 0),
            (0, 0),
            textcoords="offset points",
            annotation_clip=False,  # else a note without its place has no size
            color=label.colour,
            fontweight="bold",
            zorder=6,
        )
        note.set_in_layout(False)
        size = note.get_window_extent()
        options: list[tuple[Any, ...]] = []
        places = zip(label.xs, label.ys, strict=True)
        for (x, y), (gap, far), (right, up) in itertools.product(places, _GAPS, _DIRECTIONS):
            middle = axes.transData.transform((x, y))
            reach = np.array([size.width, size.height]) / 2
            # A label in a corner of its place stands nearer than one straight above it.
            centre = middle + np.array([right, up]) * (reach + gap * scale * (0.6 if right and up else 1.0))
            low, high = centre - reach - 2, centre + reach + 2
            hidden = ((drawn > low) & (drawn < high)).all(axis=1).sum()
            overlaps = sum(bool((low < other[1]).all() and (other[0] < high).all()) for other in taken)
            outside = (low < frame.min).any() or (high > frame.max).any()
            cost = hidden + far + _TAKEN * overlaps + _OUTSIDE * bool(outside)
            options.append((float(cost), len(options), x, y, (centre - middle) / scale, low, high))
        _, _, x, y, offset, low, high = min(options, key=lambda option: option[:2])
        note.xy, note.xyann = (x, y), (float(offset[0]), float(offset[1]))
        note.set_horizontalalignment("center")
        note.set_verticalalignment("center")
        taken.append((low, high))


def _drawn(axes: Axes) -> NDArray[np.float64]:
    """Points on what is drawn, a few pixels apart, in pixels, shape (points, 2)."""
    paths, points = [], []
    for line in axes.lines:
        xs, ys = (np.asarray(values) for values in line.get_data())
        step = STEP_LOOKUP_MAP.get(line.get_drawstyle())
        if step is not None and len(xs):
            xs, ys = step(xs, ys)
        if len(xs) and line.get_linestyle() != "None" and line.get_linewidth() > 0:
            paths.append(line.get_transform().transform(np.column_stack([xs, ys])))
        elif len(xs):
            points.append(line.get_transform().transform(np.column_stack([xs, ys])))
    for collection in axes.collections:
        if isinstance(collection, PathCollection):
            at = collection.get_offset_transform().transform(np.asarray(collection.get_offsets()))
            # A marker hides less than a label, and must not be hidden by one.
            points += [at, at + 4, at - 4]
        elif isinstance(collection, LineCollection):
            paths += [axes.transData.transform(segment) for segment in collection.get_segments()]
    for path in paths:
        for start, end in itertools.pairwise(path):
            length = float(np.hypot(*(end - start)))
            steps = max(2, math.ceil(length / 4)) if math.isfinite(length) else 0
            points.append(start + np.linspace(0, 1, steps)[:, None] * (end - start))
    return np.concatenate(
        [np.asarray(each, dtype=np.float64).reshape(-1, 2) for each in points] or [np.empty((0, 2))]
    )
