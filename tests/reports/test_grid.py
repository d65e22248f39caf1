"""Grids of depth configurations, on Table 1 of the flexible-depth paper."""

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from ldsearch.errors import DataError
from ldsearch.reports.figures import save_figure
from ldsearch.reports.grid import difference_table, draw_grid, draw_pruning_ratios, grid_table, grid_text

ENCODERS, DECODERS = (1, 2, 3, 4, 6, 12), (1, 2, 3, 6)
TABLE_1 = """
31.54 33.38 33.87 34.77  32.80 34.15 34.58 34.95  33.38 34.40 34.74 35.29
33.92 34.77 35.01 35.37  34.28 35.06 35.23 35.51  34.72 35.26 35.52 35.74
"""
LAYERDROP = """
-3.04 -2.37 -1.99 -2.27  -.98 -.53 -.22 -.15  -.40 .15 .40 .25
 -.27   .38   .50   .41  -.29  .20  .41  .34  -.05 .49 .53 .49
"""


def grid(text: str) -> dict[tuple[int, int], float]:
    numbers = iter(map(float, text.split()))
    return {(m, n): next(numbers) for m in ENCODERS for n in DECODERS}


BASELINE = grid(TABLE_1)
LAYER_DROP = {key: BASELINE[key] + gain for key, gain in grid(LAYERDROP).items()}
SMALL = {(2, 1): 10.0, (1, 1): 8.0, (4, 1): 12.5, (4, 3): 13.0, (1, 3): 9.0, (2, 3): 7.5}


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def ticks(axes: Axes) -> tuple[list[str], list[str]]:
    return [t.get_text() for t in axes.get_yticklabels()], [t.get_text() for t in axes.get_xticklabels()]


def star(axes: Axes) -> tuple[float, float]:
    (found,) = [one for one in axes.collections if isinstance(one, PathCollection)]
    x, y = found.get_offsets()[0]
    return float(y), float(x)


def test_a_table_has_encoder_depths_down_and_decoder_depths_across_both_ascending():
    table = grid_table(SMALL)
    assert (table.index.name, table.columns.name) == ("encoder", "decoder")
    assert table.index.tolist() == [1, 2, 4]
    assert table.columns.tolist() == [1, 3]
    assert table.to_numpy().tolist() == [[8.0, 9.0], [10.0, 7.5], [12.5, 13.0]]


def test_differences_are_to_the_baselines_cell():
    found = difference_table(LAYER_DROP, BASELINE)
    assert found.loc[1, 2] == pytest.approx(-2.37)
    assert found.loc[12, 6] == pytest.approx(0.49)
    assert found.to_numpy() == pytest.approx(np.array(LAYERDROP.split(), float).reshape(6, 4))


def test_the_text_has_the_papers_numbers_and_means():
    lines = grid_text(LAYER_DROP, BASELINE).splitlines()
    assert lines[0].split() == ["encoder", "\\", "decoder", "1", "2", "3", "6"]
    assert " ".join(lines[1].split()) == "1 28.50 -3.04 31.01 -2.37 31.88 -1.99 32.50 -2.27"
    assert " ".join(lines[6].split()) == "12 34.67 -0.05 35.75 +0.49 36.05 +0.53 36.23 +0.49"
    # Table 2's averages.
    assert lines[7] == "mean of 24 depth configurations: 34.18, -0.33 against the baseline's 34.51"
    assert len({len(line) for line in lines[:7]}) == 1
    assert grid_text(BASELINE).splitlines()[7] == "mean of 24 depth configurations: 34.51"


def test_decimals_are_asked_for():
    text = grid_text({(1, 1): 2.34567}, {(1, 1): 2.34512}, decimals=4)
    assert text.splitlines()[1].split() == ["1", "2.3457", "+0.0006"]
    (axes, _) = draw_grid({(1, 1): 2.34567}, "NLL", {(1, 1): 2.34512}, decimals=4).axes
    assert texts(axes) == ["2.3457\n+0.0006"]
    assert axes.get_title() == "NLL: mean 2.3457 (+0.0006)"


def test_the_figure_shows_the_scores_and_is_coloured_by_them(tmp_path):
    figure = draw_grid(SMALL, "small")
    axes, bar = figure.axes
    assert texts(axes) == ["8.00", "9.00", "10.00", "7.50", "12.50", "13.00"]
    assert [text.get_position() for text in axes.texts][:3] == [(0, 0), (1, 0), (0, 1)]
    assert ticks(axes) == (["1", "2", "4"], ["1", "3"])
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("encoder blocks", "decoder blocks")
    assert axes.images[0].get_array().tolist() == [[8, 9], [10, 7.5], [12.5, 13]]
    assert axes.get_title() == "small: mean 10.00"
    assert bar.get_ylabel() == "score"
    save_figure(figure, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_beside_a_baseline_the_colours_are_the_differences_and_0_is_in_the_middle(tmp_path):
    figure = draw_grid(LAYER_DROP, "LayerDrop", BASELINE)
    axes, bar = figure.axes
    (image,) = axes.images
    assert texts(axes)[:2] == ["28.50\n-3.04", "31.01\n-2.37"]
    assert image.get_array()[0, 0] == pytest.approx(-3.04)
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx((-3.04, 3.04))
    assert bar.get_ylabel() == "difference to the baseline"
    save_figure(draw_grid(BASELINE, "no difference at all", BASELINE), tmp_path / "f.png")


def test_dark_cells_have_white_numbers():
    (axes, _) = draw_grid({(1, 1): 0.0, (1, 2): 1.0}, "two").axes
    assert [matplotlib.colors.to_hex(text.get_color()) for text in axes.texts] == ["#ffffff", "#000000"]


def test_pruning_ratios_rise_from_the_full_model_and_a_star_marks_the_rate_of_training(tmp_path):
    figure = draw_pruning_ratios({0.5: BASELINE, 0.2: LAYER_DROP}, 12, 6, "BLEU")
    low, high, bar = figure.axes
    assert [axes.get_title() for axes in (low, high)] == ["trained with p = 0.2", "trained with p = 0.5"]
    assert ticks(low) == (["0/12", "6/12", "8/12", "9/12", "10/12", "11/12"], ["0/6", "3/6", "4/6", "5/6"])
    assert texts(high)[:4] == ["35.7", "35.5", "35.3", "34.7"]
    assert texts(high)[-1] == "31.5"
    # One scale: the least and the greatest of both.
    for axes in (low, high):
        assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == pytest.approx((28.5, 36.23))
    assert bar.get_ylabel() == "BLEU"
    # 0.5 of 12 is the row of 6/12, of 6 the column of 3/6; 0.2 lies 2.4/6 and 1.2/3 of the way there.
    assert star(high) == pytest.approx((1, 1))
    assert star(low) == pytest.approx((0.4, 0.4))
    save_figure(figure, tmp_path / "f.png")


@pytest.mark.parametrize("scores", [{}, {(1, 1): 1.0, (2, 2): 1.0}])
def test_a_grid_with_holes_is_refused(scores):
    for call in (grid_table, grid_text, lambda s: draw_grid(s, "t")):
        with pytest.raises(DataError, match="a score for each pair of depths"):
            call(scores)


def test_a_baseline_of_other_depths_is_refused():
    for call in (difference_table, grid_text, lambda s, b: draw_grid(s, "t", b)):
        with pytest.raises(DataError, match=r"differ in \[\(1, 2\)\]"):
            call({(1, 1): 1.0}, {(1, 1): 1.0, (1, 2): 1.0})


def test_pruning_ratios_beyond_the_model_are_refused():
    with pytest.raises(DataError, match="at least one grid"):
        draw_pruning_ratios({}, 12, 6, "BLEU")
    for encoder, decoder in ((11, 6), (12, 5)):
        with pytest.raises(DataError, match=f"full model's {encoder} and {decoder} blocks"):
            draw_pruning_ratios({0.2: BASELINE}, encoder, decoder, "BLEU")
