"""Tables of trials and the figure drawn from them."""

import pandas as pd
import pytest

from ldsearch.reports.figures import Marks, draw_frontier, save_figure
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
    table = trials_table(TRIALS, {SHORT})
    assert list(table.columns) == list(COLUMNS)
    short = table.iloc[1]
    assert (short["lengths"], short["blocks"], short["reference"]) == ("10 4", "0 1", 20)
    assert (short["macs_share"], short["padded_share"]) == (0.4, 0.4)
    assert Subnet.from_json(short["subnet"]) == SHORT
    assert table["on_frontier"].tolist() == [True, True, False, False]
    assert table["constant_ratio"].tolist() == [False, True, False, False]
    with pytest.raises(ValueError, match="at least one"):
        trials_table([])


def test_the_frontier_table_is_cheapest_first():
    assert frontier_table(trials_table(TRIALS))["macs"].tolist() == [400.0, 1000.0]


def test_csv_reads_back(tmp_path):
    table = trials_table(TRIALS)
    write_csv(table, tmp_path / "t.csv")
    back = pd.read_csv(tmp_path / "t.csv")
    assert back["score"].round(6).tolist()[:3] == [0.9, 0.8, 0.7]
    assert back["lengths"].fillna("").tolist() == ["", "10 4", "", "12 4"]


def test_the_figure_draws_what_the_table_holds(tmp_path):
    table = trials_table(TRIALS, {SHORT})
    figure = draw_frontier(table, Marks("title", best=1, budget_share=0.45))
    axes = figure.axes[0]
    points = {tuple(map(float, row)) for c in axes.collections for row in c.get_offsets().data}
    assert {(0.4, 0.8), (0.5, 0.7), (1.0, 0.9)} <= points
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["4 trials", "frontier", "constant ratio", "full model", "budget 0.45", "chosen"]
    save_figure(figure, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
