"""Tables of trials and the areas under their frontiers."""

import pandas as pd
import pytest

from ldsearch.reports.tables import (
    COLUMNS,
    area_table,
    frontier_table,
    higher_is_better,
    trials_table,
    write_csv,
)
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Score, Trial

SHORT = Subnet.of_encoder([0, 1], [10, 4], 20)


def trial(subnet: Subnet, score: float, macs: float, generation: int = 1, higher: bool = True) -> Trial:
    costs = {"macs": macs, "padded_macs": 2 * macs, "parameters": 100.0}
    return Trial(
        subnet, "accuracy", Score(score, higher), costs, 50, "search", 0.25, "abc", generation=generation
    )


TRIALS = [
    trial(Subnet.full(2), 0.9, 1000.0),
    trial(SHORT, 0.8, 400.0),
    trial(Subnet.of_encoder([1]), 0.7, 500.0),
    trial(Subnet.of_encoder([0, 1], [12, 4], 20), float("nan"), 300.0),
]


def trials(name: str, rows: list[tuple[int, float, float]], higher: bool = True) -> pd.DataFrame:
    """Rows of (generation, MACs, score); the first is the full model."""
    subnets = [Subnet.full(2), *(Subnet.of_encoder([0, 1], [9 - i, 1], 9) for i in range(1, len(rows)))]
    return trials_table(
        [trial(s, score, macs, g, higher) for s, (g, macs, score) in zip(subnets, rows, strict=True)], name
    )


def test_a_table_has_the_documented_columns_and_the_trials_numbers(tmp_path):
    table = trials_table(TRIALS, "evolve")
    assert list(table.columns) == list(COLUMNS)
    short = table.iloc[1]
    assert (short["lengths"], short["blocks"], short["reference"]) == ("10 4", "0 1", 20)
    assert (short["macs_share"], short["padded_share"]) == (0.4, 0.4)
    assert Subnet.from_json(short["subnet"]) == SHORT
    assert table["on_frontier"].tolist() == [True, True, False, False]
    assert table["strategy"].tolist() == ["evolve"] * 4
    assert frontier_table(table)["macs"].tolist() == [400.0, 1000.0]  # cheapest first
    write_csv(table, tmp_path / "t.csv")
    back = pd.read_csv(tmp_path / "t.csv")
    assert back["score"].round(6).tolist()[:3] == [0.9, 0.8, 0.7]
    assert back["lengths"].fillna("").tolist() == ["", "10 4", "", "12 4"]
    with pytest.raises(ValueError, match="at least one"):
        trials_table([], "evolve")


SEARCH = [(0, 100.0, 0.9), (0, 20.0, 0.5), (1, 60.0, 0.8), (2, 40.0, 0.7)]
CONTROL = [(0, 100.0, 0.9), (0, 40.0, 0.6)]


def test_areas_are_sums_of_rectangles_over_the_range_that_all_reach():
    areas = area_table(trials("evolve", SEARCH), trials("random", CONTROL))
    # From 40, the dearest of the two cheapest, to 100.
    by_hand = [0.5, (20 * 0.5 + 40 * 0.8) / 60, (20 * 0.7 + 40 * 0.8) / 60, 0.6]
    assert areas["area"].tolist() == pytest.approx(by_hand)
    assert areas["evaluations"].tolist() == [2, 3, 4, 2]
    assert areas["strategy"].tolist() == ["evolve"] * 3 + ["random"]
    empty = area_table(trials("evolve", SEARCH), trials("random", CONTROL[:1]))
    assert empty["area"].isna().all()


def test_where_less_is_better_areas_fall():
    losses = trials("evolve", [(g, macs, 1 - score) for g, macs, score in SEARCH], higher=False)
    by_hand = [0.5, (40 * 0.5 + 40 * 0.2) / 80, (20 * 0.5 + 20 * 0.3 + 40 * 0.2) / 80]
    assert area_table(losses)["area"].tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize("higher", [True, False])
def test_the_direction_is_read_from_the_frontier(higher):
    for scores in ((0.5, 0.4), (0.4, 0.4)):
        good, bad = scores if higher else scores[::-1]
        one_point = trials("a", [(0, 100.0, bad), (0, 20.0, good), (0, 30.0, bad)], higher)
        assert one_point["on_frontier"].sum() == 1
        assert higher_is_better(one_point) is (higher or good == bad)
    many = trials("a", [(0, 100.0, 0.9 if higher else 0.1), (0, 20.0, 0.5)], higher)
    assert higher_is_better(many) is higher
