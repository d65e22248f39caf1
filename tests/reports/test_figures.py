"""Areas by evaluations, frontiers over one range, comparable panels: against sums made by hand."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex

from ldsearch.reports.figures import RunFrontier, common_areas, draw_frontier, draw_overlay, group_by_rows
from ldsearch.reports.held_out import held_out_table, hold_out
from ldsearch.reports.style import INK, PALETTE, save_figure
from ldsearch.reports.tables import trials_table
from tests.reports.test_tables import SHORT, TRIALS


def points(axes: Axes) -> set[tuple[float, float]]:
    scattered = [drawn for drawn in axes.collections if isinstance(drawn, PathCollection)]
    return {tuple(map(float, row)) for drawn in scattered for row in drawn.get_offsets().data}


def labels(axes: Axes) -> dict[str, str]:
    """What stands beside the lines, and its colour."""
    return {text.get_text(): str(text.get_color()) for text in axes.texts}


def band(axes: Axes) -> set[tuple[float, float]]:
    """Corners of what is filled."""
    (filled,) = (drawn for drawn in axes.collections if isinstance(drawn, PolyCollection))
    return {(round(float(x), 9), round(float(y), 9)) for x, y in filled.get_paths()[0].vertices}


def test_a_frontier_is_drawn_from_the_table_with_its_marks_and_controls(tmp_path):
    tables = {"random": TRIALS[:3:2], "constant-ratio": TRIALS[:2]}
    controls = pd.concat([trials_table(own, name) for name, own in tables.items()])
    table = trials_table(TRIALS, "evolve")
    figure = draw_frontier(table, "title", best=1, budget_share=0.45, controls=controls)
    (axes,) = figure.axes
    assert {(0.4, 0.8), (0.5, 0.7), (1.0, 0.9)} <= points(axes)
    assert (axes.get_ylabel(), axes.get_title()) == ("accuracy", "50 search rows, which chose")
    named = {line.get_label(): line for line in axes.lines if "trials" in str(line.get_label())}
    assert {name: line.get_xydata().tolist() for name, line in named.items()} == {
        "random, 2 trials": [[0.5, 0.7], [1.0, 0.9]],
        "constant-ratio, 2 trials": [[0.4, 0.8], [1.0, 0.9]],
    }
    written = labels(axes)
    assert {*written} == {*named, "frontier of 4 trials", "full model", "budget 0.45", "chosen"}
    # A label has the colour of its line, and no two lines share colour or dash.
    assert all(written[name] == line.get_color() for name, line in named.items())
    assert len({(line.get_color(), line.get_ls()) for line in named.values()}) == 2
    (budget,) = (line for line in axes.lines if line.get_ls() == ":")
    assert list(budget.get_xdata()) == [0.45, 0.45]
    save_figure(figure, tmp_path / "f.png")
    assert "frontier of 4 trials" in (tmp_path / "f.svg").read_text()


def test_the_second_panel_draws_the_held_out_scores_with_their_intervals_and_the_choice_there():
    statistics = {TRIALS[0].subnet: [1, 1, 1, 1, 0], SHORT: [1, 1, 0, 0, 1]}
    front = [TRIALS[1], TRIALS[0]]
    held = hold_out(front, TRIALS[0], "report", lambda s: np.array(statistics[s], float))
    table = trials_table(TRIALS, "evolve")
    rows = pd.concat([table.iloc[[1, 0]].reset_index(drop=True), held_out_table(held)], axis=1)
    left, right = draw_frontier(table, "title", best=1, held_out=rows).axes
    assert right.get_title().startswith("5 report rows, which chose nothing")
    assert [[0.4, 0.6], [1.0, 0.8]] in [line.get_xydata().tolist() for line in right.lines]
    interval = held.rows[0].difference
    ends = {(0.4, round(0.8 + end, 9)) for end in (interval.low, interval.high)}
    assert ends <= band(right)
    assert interval.low < -0.2 < interval.high
    assert {(0.4, 0.8), (1.0, 0.9)} <= points(left)
    assert points(right) == {(0.4, 0.6), (1.0, 0.8)}  # the choice and the full model, as scored there
    assert "chosen" in labels(right)
    assert left.get_ylim() == right.get_ylim()  # what the search says too well of itself is seen


Rows = list[tuple[float, float, float]]


def frontier(label: str, rows: Rows, full: float = 100.0, split: str = "report") -> RunFrontier:
    """Rows of (MACs, score, held-out score); the full model scores 0.9 there."""
    front = pd.DataFrame(rows, columns=["macs", "score", "held_out_score"]).assign(
        metric="accuracy", split="search", examples=50, held_out_split=split, held_out_examples=60
    )
    gap = front["held_out_score"] - 0.9
    front = front.assign(difference=gap, difference_low=gap - 0.1, difference_high=gap + 0.2)
    whole = pd.Series({"macs": full, "score": 0.95, "standard_error": 0.02, "examples": 50})
    return RunFrontier(label, front, whole)


FIRST = frontier("first", [(20.0, 0.5, 0.6), (60.0, 0.7, 0.4)])
SECOND = frontier("second", [(40.0, 0.9, 0.8)], full=80.0)


def test_common_areas_let_each_search_choose_and_count_what_is_held_out():
    areas, low, high = common_areas([FIRST, SECOND])
    assert (low, high) == (40.0, 80.0)
    # The first one's search prefers its second point from 60 on, which is worse where nothing was chosen.
    assert areas == pytest.approx([(20 * 0.6 + 20 * 0.4) / 40, 0.8])
    assert all(map(math.isnan, common_areas([FIRST, frontier("third", [(30.0, 0.1, 0.1)], full=20.0)])[0]))


def test_frontiers_on_other_rows_have_a_panel_of_their_own():
    other = frontier("other", [(10.0, 0.3, 0.3)], split="test")
    assert [len(members) for members in group_by_rows([FIRST, other, SECOND]).values()] == [2, 1]
    figure = draw_overlay([FIRST, other, SECOND])
    names = [f"accuracy on 60 {split} examples" for split in ("report", "test")]
    assert [axes.get_ylabel() for axes in figure.axes] == names
    # Full models of another cost: shares could not be compared.
    assert [axes.get_xlabel()[:7] for axes in figure.axes] == ["million", "share o"]


@pytest.mark.parametrize(("ends", "expected"), [(None, (0.7, 1.0)), (([0.75], [0.9]), (0.75, 0.9))])
def test_bands_are_the_differences_or_the_scores_own(ends, expected):
    low, high = replace(SECOND, ends=ends).intervals
    assert ([*low], [*high]) == (pytest.approx(expected[:1]), pytest.approx(expected[1:]))
    both = FIRST.front["held_out_score"].to_numpy() + np.array([[-0.1], [0.2]])
    corners = {(share, round(y, 9)) for share, ys in zip((0.2, 0.6), both.T, strict=True) for y in ys}
    assert corners <= band(draw_overlay([FIRST]).axes[0])


def test_many_frontiers_have_bars_and_a_legend():
    (axes,) = draw_overlay([replace(FIRST, label=f"run {n}") for n in range(6)]).axes
    assert not [drawn for drawn in axes.collections if isinstance(drawn, PolyCollection)]
    bars = [drawn for drawn in axes.collections if isinstance(drawn, LineCollection)]
    assert [len(each.get_segments()) for each in bars] == [2] * 6
    assert bars[0].get_segments()[0][:, 1] == pytest.approx([0.5, 0.8])
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["full model", *(f"run {n}" for n in range(6))]


def test_full_models_have_the_colour_of_their_line_unless_lines_share_them():
    third = replace(FIRST, label="third")
    stars = {
        round(float(drawn.get_offsets()[0][0]), 6): to_hex(drawn.get_facecolor()[0]).upper()
        for drawn in draw_overlay([FIRST, SECOND, third]).axes[0].collections
        if isinstance(drawn, PathCollection)
    }
    assert stars == {100e-6: INK, 80e-6: PALETTE[1]}


def test_without_held_out_rows_the_searched_scores_stand():
    front = FIRST.front[["macs", "score", "metric", "split", "examples"]]
    searched = RunFrontier("searched", front, FIRST.full)
    assert searched.rows == ("accuracy", "search", 50)
    assert (searched.full_score, searched.intervals) == (0.95, None)
    assert common_areas([searched])[0] == pytest.approx([(40 * 0.5 + 40 * 0.7) / 80])
