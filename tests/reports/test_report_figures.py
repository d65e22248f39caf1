"""Areas by evaluations, kept blocks, frontiers over one range: against sums made by hand."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba

from ldsearch.reports.convergence import area_table, draw_convergence, higher_is_better
from ldsearch.reports.heat_map import draw_kept, kept_shares
from ldsearch.reports.overlay import Line, common_areas, draw_overlay, panels_of
from ldsearch.reports.tables import trials_table
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.trial import Score, Trial

BOTH = Subnet(Stack((0, 2), Lengths((8, 4), 16)), Stack((1,)))


def trials(name: str, rows: list[tuple[int, float, float]], higher: bool = True) -> pd.DataFrame:
    """Rows of (generation, MACs, score)."""
    found = [
        Trial(
            Subnet.of_encoder([0, 1], [9 - i, 1], 9) if i else Subnet.full(2),
            "accuracy",
            Score(score, higher),
            {"macs": macs, "padded_macs": macs, "parameters": 1.0},
            50,
            "search",
            0.0,
            "abc",
            generation,
        )
        for i, (generation, macs, score) in enumerate(rows)
    ]
    return trials_table(found, name)


SEARCH = [(0, 100.0, 0.9), (0, 20.0, 0.5), (1, 60.0, 0.8), (2, 40.0, 0.7)]
CONTROL = [(0, 100.0, 0.9), (0, 40.0, 0.6)]


def test_areas_are_sums_of_rectangles_over_the_range_that_all_reach() -> None:
    areas = area_table(trials("evolve", SEARCH), trials("random", CONTROL))
    # From 40, the dearest of the two cheapest, to 100.
    by_hand = [0.5, (20 * 0.5 + 40 * 0.8) / 60, (20 * 0.7 + 40 * 0.8) / 60, 0.6]
    assert areas["area"].tolist() == pytest.approx(by_hand)
    assert areas["evaluations"].tolist() == [2, 3, 4, 2]
    assert areas["strategy"].tolist() == ["evolve"] * 3 + ["random"]
    assert len(draw_convergence(areas, "accuracy").axes[0].get_legend().get_texts()) == 2


def test_where_less_is_better_areas_fall() -> None:
    losses = trials("evolve", [(g, macs, 1 - score) for g, macs, score in SEARCH], higher=False)
    by_hand = [0.5, (40 * 0.5 + 40 * 0.2) / 80, (20 * 0.5 + 20 * 0.3 + 40 * 0.2) / 80]
    assert area_table(losses)["area"].tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("scores", [(0.5, 0.4), (0.4, 0.4)])
def test_the_direction_is_read_from_the_frontier(higher: bool, scores: tuple[float, float]) -> None:
    good, bad = scores if higher else scores[::-1]
    one_point = trials("a", [(0, 100.0, bad), (0, 20.0, good), (0, 30.0, bad)], higher)
    assert one_point["on_frontier"].sum() == 1
    assert higher_is_better(one_point) is (higher or good == bad)
    many = trials("a", [(0, 100.0, 0.9 if higher else 0.1), (0, 20.0, 0.5)], higher)
    assert higher_is_better(many) is higher


def test_without_a_range_there_is_no_area() -> None:
    alone = area_table(trials("evolve", SEARCH), trials("random", CONTROL[:1]))
    assert alone["area"].isna().all()


def test_each_block_has_the_share_that_leaves_it() -> None:
    np.testing.assert_array_equal(kept_shares([BOTH], "encoder", 4), [[0.5, np.nan, 0.25, np.nan]])
    np.testing.assert_array_equal(kept_shares([BOTH, Subnet.full(4, 2)], "decoder", 2), [[np.nan, 1], [1, 1]])


def test_the_heat_map_has_a_panel_for_each_stack_and_a_number_for_each_block_that_runs() -> None:
    figure = draw_kept([BOTH, Subnet.full(4, 2)], [0.3, 1.0], {"encoder": 4, "decoder": 2})
    encoder, decoder, _ = figure.axes
    assert [text.get_text() for text in encoder.texts] == ["50", "25", "100", "100", "100", "100"]
    assert [text.get_text() for text in decoder.texts] == ["100", "100", "100"]
    assert [label.get_text() for label in encoder.get_yticklabels()] == ["0.300", "1.000"]
    assert decoder.get_xlabel() == "decoder block"


def line(
    label: str, rows: list[tuple[float, float, float]], full: float = 100.0, split: str = "report"
) -> Line:
    """Rows of (MACs, score, held-out score); the full model scores 0.9 there."""
    front = pd.DataFrame(rows, columns=["macs", "score", "held_out_score"]).assign(
        metric="accuracy", split="search", examples=50, held_out_split=split, held_out_examples=60
    )
    front["difference"] = front["held_out_score"] - 0.9
    front["difference_low"], front["difference_high"] = front["difference"] - 0.1, front["difference"] + 0.2
    return Line(label, front, pd.Series({"macs": full, "score": 0.95}))


FIRST = line("first", [(20.0, 0.5, 0.6), (60.0, 0.7, 0.4)])
SECOND = line("second", [(40.0, 0.9, 0.8)], full=80.0)


def test_common_areas_let_each_search_choose_and_count_what_is_held_out() -> None:
    areas, low, high = common_areas([FIRST, SECOND])
    assert (low, high) == (40.0, 80.0)
    # The first one's search prefers its second point from 60 on, which is worse where nothing was chosen.
    assert areas == pytest.approx([(20 * 0.6 + 20 * 0.4) / 40, 0.8])
    assert all(map(math.isnan, common_areas([FIRST, line("third", [(30.0, 0.1, 0.1)], full=20.0)])[0]))


def test_lines_on_other_rows_have_a_panel_of_their_own() -> None:
    other = line("other", [(10.0, 0.3, 0.3)], split="test")
    assert [len(own) for own in panels_of([FIRST, other, SECOND]).values()] == [2, 1]
    figure = draw_overlay([FIRST, other, SECOND])
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "accuracy on 60 report examples",
        "accuracy on 60 test examples",
    ]
    # Full models of another cost: shares could not be compared.
    assert [axes.get_xlabel()[:7] for axes in figure.axes] == ["million", "share o"]


def test_bars_end_where_the_intervals_do() -> None:
    (bars,) = draw_overlay([SECOND]).axes[0].containers
    low, high = bars.lines[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.7, 1.0))


def test_scores_own_intervals_are_drawn_where_they_are_given() -> None:
    own = replace(SECOND, ends=([0.75], [0.9]))
    (bars,) = draw_overlay([own]).axes[0].containers
    assert bars.lines[2][0].get_segments()[0][:, 1] == pytest.approx((0.75, 0.9))


def test_full_models_have_the_colour_of_their_line_unless_lines_share_them() -> None:
    third = replace(FIRST, label="third")
    stars = [
        tuple(own.get_facecolor()[0])
        for own in draw_overlay([FIRST, SECOND, third]).axes[0].collections
        if isinstance(own, PathCollection) and len(own.get_offsets())
    ]
    assert stars == [to_rgba("black"), to_rgba("C1"), to_rgba("black")]


def test_without_held_out_rows_the_searched_scores_stand() -> None:
    plain = Line("plain", FIRST.front[["macs", "score", "metric", "split", "examples"]], FIRST.full)
    assert plain.rows == ("accuracy", "search", 50)
    assert plain.full_score == 0.95
    assert common_areas([plain])[0] == pytest.approx([(40 * 0.5 + 40 * 0.7) / 80])
