"""The style of figures: colours under simulated colour blindness, sizes, noise, labels, files."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from ldsearch.reports.figures import draw_comparison, draw_frontier, draw_overlay
from ldsearch.reports.latency import draw_tradeoff
from ldsearch.reports.style import (
    GENERATOR,
    INK,
    LEAST_ERRORS,
    PALETTE,
    SLIDE_HALF,
    SMALLEST_TEXT,
    SOFT,
    STYLE,
    Label,
    place_labels,
    save_figure,
    series,
    show_noise,
)
from ldsearch.reports.tables import trials_table
from tests.reports.test_figures import FIRST, SECOND
from tests.reports.test_tables import TRIALS

# Machado, Oliveira & Fernandes 2009, Table 1, severity 1.0: on linear RGB, row by row.
BLINDNESS = {
    "none": "1 0 0  0 1 0  0 0 1",
    "protan": "0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216  -0.003882 -0.048116 1.051998",
    "deutan": "0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413  -0.011820 0.042940 0.968881",
    "tritan": "1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602  0.004733 0.691367 0.303900",
}
TO_XYZ = "0.4124564 0.3575761 0.1804375  0.2126729 0.7151522 0.0721750  0.0193339 0.1191920 0.9503041"
# Differences in CIELAB above ten are seen at a glance.
SEEN = 12.0


def matrix(rows: str) -> np.ndarray:
    return np.array(rows.split(), float).reshape(3, 3)


def linear(colour: str) -> np.ndarray:
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(colour: str, other: str = "white") -> float:
    """As WCAG 2 defines it."""
    dark, light = sorted(float(matrix(TO_XYZ)[1] @ linear(each)) for each in (colour, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, kind: str) -> np.ndarray:
    seen, to_xyz = np.clip(matrix(BLINDNESS[kind]) @ linear(colour), 0, 1), matrix(TO_XYZ)
    ratios = to_xyz @ seen / to_xyz.sum(axis=1)
    x, y, z = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: list[str], kind: str) -> float:
    pairs = itertools.combinations(colours, 2)
    return min(float(np.linalg.norm(lab(a, kind) - lab(b, kind))) for a, b in pairs)


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_can_be_told_apart_by_everybody(kind: str) -> None:
    assert nearest([*PALETTE, INK], kind) > SEEN


def test_the_simulation_finds_red_and_green_alike_and_the_contrast_of_black_is_21() -> None:
    # Two shades that differ for most readers, and that the check must refuse.
    assert nearest(["#C03030", "#4E7000"], "none") > 60
    assert nearest(["#C03030", "#4E7000"], "deutan") < SEEN
    assert contrast("black") == pytest.approx(21)


def test_colours_stand_out_from_white() -> None:
    # 3: graphics and large text (WCAG 2.1, 1.4.11); text that is not coloured like a line: 4.5.
    assert all(contrast(colour) >= 3 for colour in PALETTE)
    assert all(contrast(colour) >= 4.5 for colour in (INK, SOFT))


def test_series_differ_by_more_than_their_colour() -> None:
    assert len({tuple(series(number).values()) for number in range(20)}) == 20
    assert len({series(number)["marker"] for number in range(5)}) == 5


def comparison() -> pd.DataFrame:
    rows = [(f"s{at}", 0.8 + 0.01 * at, budget) for at in range(3) for budget in (0.4, 0.6)]
    known = {"limit": "evaluations", "metric": "accuracy", "split": "report", "examples": 9, "seeds": 1}
    table = pd.DataFrame(rows, columns=["strategy", "score", "budget"]).assign(supernet="a", **known)
    costs = {"share": table["budget"], "macs": table["budget"]}
    return table.assign(low=table["score"] - 0.02, high=table["score"] + 0.02, **costs)


def tradeoff() -> Figure:
    rows = pd.DataFrame({"median_ms": [1.0, 2.0], "score": [0.8, 0.9], "share": [0.3, 0.6]})
    rows = rows.assign(low_ms=rows["median_ms"] - 0.1, high_ms=rows["median_ms"] + 0.1)
    rows = rows.assign(score_low=rows["score"] - 0.01, score_high=rows["score"] + 0.02)
    full = pd.Series({"median_ms": 3.0, "score": 0.9})
    return draw_tradeoff({"search": rows, "random": rows}, full, "accuracy", "ms", "title")


FIGURES = {
    "frontier": lambda: draw_frontier(trials_table(TRIALS, "evolve"), "t", best=1, budget_share=0.45),
    "overlay": lambda: draw_overlay([FIRST, SECOND]),
    "comparison": lambda: draw_comparison(comparison()),
    "tradeoff": tradeoff,
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_smallest_text_can_be_read_on_half_a_slide(name: str) -> None:
    figure = FIGURES[name]()
    shown = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(shown) * SLIDE_HALF / figure.get_figwidth() >= SMALLEST_TEXT


@pytest.mark.parametrize("name", FIGURES)
def test_files_are_the_same_twice_and_have_no_date(name: str, tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        save_figure(FIGURES[name](), tmp_path / place / "same.png")
    for kind in ("png", "svg"):
        first, second = ((tmp_path / place / f"same.{kind}").read_bytes() for place in ("one", "two"))
        assert first == second
        assert GENERATOR.encode() in first
    assert (tmp_path / "one/same.png").read_bytes().startswith(b"\x89PNG")
    assert "<dc:date>" not in (tmp_path / "one/same.svg").read_text()


def drawn(scores: list[float]) -> Axes:
    axes = Figure().add_subplot()
    axes.plot(range(len(scores)), scores)
    return axes


def test_an_axis_of_scores_is_as_wide_as_their_noise() -> None:
    axes = drawn([0.700, 0.701])
    show_noise(axes, 0.01)
    low, high = axes.get_ylim()
    assert high - low == pytest.approx(LEAST_ERRORS * 0.01)
    assert (low + high) / 2 == pytest.approx(0.7005)
    for scores, error in (([0.1, 0.9], 0.01), ([0.700, 0.701], float("nan"))):
        axes = drawn(scores)
        before = axes.get_ylim()
        show_noise(axes, error)  # wide enough already, or not known
        assert axes.get_ylim() == before


def test_every_figure_of_scores_shows_their_noise() -> None:
    table = trials_table(TRIALS, "evolve").assign(standard_error=0.3)
    for figure, error in ((draw_frontier(table, "t"), 0.3), (FIGURES["comparison"](), 0.04 / 3.92)):
        low, high = figure.axes[0].get_ylim()
        assert high - low >= LEAST_ERRORS * error - 1e-9


def test_labels_hide_neither_each_other_nor_what_is_drawn() -> None:
    with rc_context(STYLE):
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot()
        xs = np.linspace(0, 1, 9)
        lines = {"rising": xs, "falling": 1 - xs, "level": np.full(9, 0.5)}
        for ys in lines.values():
            axes.plot(xs, ys)
        place_labels(axes, [Label(name, [*xs], [*ys]) for name, ys in lines.items()])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == [*lines]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    frame, fine = axes.get_window_extent(), np.linspace(0, 1, 400)
    for box in boxes:
        assert frame.contains(box.x0, box.y0)
        assert frame.contains(box.x1, box.y1)
        for ys in lines.values():
            path = axes.transData.transform(np.column_stack([fine, np.interp(fine, xs, ys)]))
            assert box.count_contains(path) == 0
