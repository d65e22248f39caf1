"""Tables of trials and the figure drawn from them."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from ldsearch.reports.figures import Marks, draw_frontier, save_figure
from ldsearch.reports.held_out import held_out_table, hold_out
from ldsearch.reports.tables import COLUMNS, frontier_table, trials_table, write_csv
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial

SHORT = Subnet.of_encoder([0, 1], [10, 4], 20)


def trial(subnet: Subnet, score: float, macs: float) -> Trial:
    costs = {"macs": macs, "padded_macs": 2 * macs, "parameters": 100.0}
    return Trial(subnet, "accuracy", Score(score), costs, 50, "search", 0.25, "abc", 1)


TRIALS = [
    trial(Subnet.full(2), 0.9, 1000.0),
    trial(SHORT, 0.8, 400.0),
    trial(Subnet.of_encoder([1]), 0.7, 500.0),
    trial(Subnet.of_encoder([0, 1], [12, 4], 20), float("nan"), 300.0),
]


def test_a_table_has_the_documented_columns_and_the_trials_numbers():
    table = trials_table(TRIALS, "evolve")
    assert list(table.columns) == list(COLUMNS)
    short = table.iloc[1]
    assert (short["lengths"], short["blocks"], short["reference"]) == ("10 4", "0 1", 20)
    assert (short["macs_share"], short["padded_share"]) == (0.4, 0.4)
    assert Subnet.from_json(short["subnet"]) == SHORT
    assert table["on_frontier"].tolist() == [True, True, False, False]
    assert table["strategy"].tolist() == ["evolve"] * 4
    with pytest.raises(ValueError, match="at least one"):
        trials_table([], "evolve")


def test_the_frontier_table_is_cheapest_first():
    assert frontier_table(trials_table(TRIALS, "evolve"))["macs"].tolist() == [400.0, 1000.0]


def test_csv_reads_back(tmp_path):
    table = trials_table(TRIALS, "evolve")
    write_csv(table, tmp_path / "t.csv")
    back = pd.read_csv(tmp_path / "t.csv")
    assert back["score"].round(6).tolist()[:3] == [0.9, 0.8, 0.7]
    assert back["lengths"].fillna("").tolist() == ["", "10 4", "", "12 4"]


def points(axes: Axes) -> set[tuple[float, float]]:
    scattered = [found for found in axes.collections if isinstance(found, PathCollection)]
    return {tuple(map(float, row)) for one in scattered for row in one.get_offsets().data}


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_figure_draws_what_the_table_holds(tmp_path):
    table = trials_table(TRIALS, "evolve")
    figure = draw_frontier(table, Marks("title", best=1, budget_share=0.45))
    (axes,) = figure.axes
    assert {(0.4, 0.8), (0.5, 0.7), (1.0, 0.9)} <= points(axes)
    assert labels(axes) == ["4 trials", "frontier", "full model", "budget 0.45", "chosen"]
    assert axes.get_ylabel() == "accuracy on 50 search examples, which chose"
    save_figure(figure, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_draws_each_control_apart():
    controls = pd.concat(
        [trials_table([TRIALS[0], TRIALS[2]], "random"), trials_table(TRIALS[:2], "constant-ratio")]
    )
    (axes,) = draw_frontier(trials_table(TRIALS, "evolve"), Marks("title"), controls).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines if line.get_ls() == "--"}
    assert lines == {
        "random, 2 trials": [[0.5, 0.7], [1.0, 0.9]],
        "constant-ratio, 2 trials": [[0.4, 0.8], [1.0, 0.9]],
    }


def test_the_second_panel_draws_the_held_out_scores_with_their_intervals_and_the_choice_there():
    statistics = {TRIALS[0].subnet: [1, 1, 1, 1, 0], SHORT: [1, 1, 0, 0, 1]}
    front = [TRIALS[1], TRIALS[0]]
    found = hold_out(front, TRIALS[0], "report", lambda s: np.array(statistics[s], float))
    table = trials_table(TRIALS, "evolve")
    rows = pd.concat([table.iloc[[1, 0]].reset_index(drop=True), held_out_table(found)], axis=1)
    left, right = draw_frontier(table, Marks("title", best=1), held_out=rows).axes
    assert right.get_ylabel() == "accuracy on 5 report examples"
    (errorbar,) = right.containers
    assert errorbar.lines[0].get_xydata().tolist() == [[0.4, 0.6], [1.0, 0.8]]
    (bars,) = errorbar.lines[2]
    interval = found.rows[0].difference
    assert bars.get_segments()[0][:, 1].tolist() == pytest.approx([0.8 + interval.low, 0.8 + interval.high])
    assert interval.low < -0.2 < interval.high
    assert {(0.4, 0.8), (1.0, 0.9)} <= points(left)
    assert points(right) == {(0.4, 0.6), (1.0, 0.8)}  # the choice and the full model, as scored there
    assert "chosen" in labels(right)
