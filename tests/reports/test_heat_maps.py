"""Heat maps: kept blocks; grids of depth configurations, on Table 1 of the flexible-depth paper."""

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection

from ldsearch.errors import DataError
from ldsearch.reports.heat_maps import (
    draw_grid,
    draw_kept,
    draw_pruning_ratios,
    grid_table,
    grid_text,
    kept_shares,
)
from ldsearch.subnet import Lengths, Stack, Subnet

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
BOTH = Subnet(Stack((0, 2), Lengths((8, 4), 16)), Stack((1,)))


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def ticks(axes: Axes) -> tuple[list[str], list[str]]:
    return [t.get_text() for t in axes.get_yticklabels()], [t.get_text() for t in axes.get_xticklabels()]


def star(axes: Axes) -> tuple[float, float]:
    (drawn,) = [artist for artist in axes.collections if isinstance(artist, PathCollection)]
    x, y = drawn.get_offsets()[0]
    return float(y), float(x)


def test_each_block_has_the_share_that_leaves_it():
    np.testing.assert_array_equal(kept_shares([BOTH], "encoder", 4), [[0.5, np.nan, 0.25, np.nan]])
    np.testing.assert_array_equal(kept_shares([BOTH, Subnet.full(4, 2)], "decoder", 2), [[np.nan, 1], [1, 1]])


def test_kept_blocks_have_a_panel_for_each_stack_and_a_number_where_a_block_runs():
    figure = draw_kept([BOTH, Subnet.full(4, 2)], [0.3, 1.0], {"encoder": 4, "decoder": 2})
    encoder, decoder, _ = figure.axes
    assert [text for text in texts(encoder) if text] == ["50", "25", "100", "100", "100", "100"]
    assert [text for text in texts(decoder) if text] == ["100", "100", "100"]
    assert ticks(encoder)[0] == ["0.300", "1.000"]
    assert decoder.get_xlabel() == "decoder block"
    many = draw_kept([BOTH] * 41, [0.3] * 41, {"encoder": 4})
    assert texts(many.axes[0]) == []  # no number could be read


def test_the_text_has_the_papers_numbers_and_means():
    lines = grid_text(LAYER_DROP, BASELINE).splitlines()
    assert lines[0].split() == ["encoder", "\\", "decoder", "1", "2", "3", "6"]
    assert " ".join(lines[1].split()) == "1 28.50 -3.04 31.01 -2.37 31.88 -1.99 32.50 -2.27"
    assert " ".join(lines[6].split()) == "12 34.67 -0.05 35.75 +0.49 36.05 +0.53 36.23 +0.49"
    # Table 2's averages.
    assert lines[7] == "mean of 24 depth configurations: 34.18, -0.33 against the baseline's 34.51"
    assert len({len(line) for line in lines[:7]}) == 1
    assert grid_text(BASELINE).splitlines()[7] == "mean of 24 depth configurations: 34.51"


def test_a_grid_shows_the_scores_and_is_coloured_by_them():
    axes, bar = draw_grid(SMALL, "small").axes
    assert texts(axes) == ["8.00", "9.00", "10.00", "7.50", "12.50", "13.00"]
    assert [text.get_position() for text in axes.texts][:3] == [(0, 0), (1, 0), (0, 1)]
    assert ticks(axes) == (["1", "2", "4"], ["1", "3"])
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("encoder blocks", "decoder blocks")
    assert axes.images[0].get_array().tolist() == [[8, 9], [10, 7.5], [12.5, 13]]
    assert (axes.get_title(), bar.get_ylabel()) == ("small: mean 10.00", "score")
    (axes, _) = draw_grid({(1, 1): 0.0, (1, 2): 1.0}, "dark cells have white numbers").axes
    assert [matplotlib.colors.to_hex(text.get_color()) for text in axes.texts] == ["#ffffff", "#000000"]


def test_with_a_baseline_the_colours_are_the_differences_and_0_is_in_the_middle():
    axes, bar = draw_grid(LAYER_DROP, "LayerDrop", BASELINE).axes
    (image,) = axes.images
    assert texts(axes)[:2] == ["28.50\n-3.04", "31.01\n-2.37"]
    np.testing.assert_allclose(image.get_array(), np.array(LAYERDROP.split(), float).reshape(6, 4))
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx((-3.04, 3.04))
    assert bar.get_ylabel() == "difference to the baseline"
    score, baseline = {(1, 1): 2.34567}, {(1, 1): 2.34512}
    (axes, _) = draw_grid(score, "NLL", baseline, decimals=4).axes
    assert (texts(axes), axes.get_title()) == (["2.3457\n+0.0006"], "NLL: mean 2.3457 (+0.0006)")
    assert grid_text(score, baseline, decimals=4).splitlines()[1].split() == ["1", "2.3457", "+0.0006"]
    draw_grid(BASELINE, "no difference at all", BASELINE).draw_without_rendering()


def test_pruning_ratios_rise_from_the_full_model_and_a_star_marks_the_rate_of_training():
    low, high, bar = draw_pruning_ratios({0.5: BASELINE, 0.2: LAYER_DROP}, 12, 6, "BLEU").axes
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


def test_grids_with_holes_of_other_depths_or_beyond_the_model_are_refused():
    for call in (grid_table, grid_text, lambda s: draw_grid(s, "t")):
        for holes in ({}, {(1, 1): 1.0, (2, 2): 1.0}):
            with pytest.raises(DataError, match="each pair"):
                call(holes)
    for call in (grid_text, lambda s, b: draw_grid(s, "t", b)):
        with pytest.raises(DataError, match=r"\(1, 2\)"):
            call({(1, 1): 1.0}, {(1, 1): 1.0, (1, 2): 1.0})
    with pytest.raises(DataError):
        draw_pruning_ratios({}, 12, 6, "BLEU")
    for encoder, decoder in ((11, 6), (12, 5)):
        with pytest.raises(DataError, match=f"{encoder} and {decoder} blocks"):
            draw_pruning_ratios({0.2: BASELINE}, encoder, decoder, "BLEU")


@pytest.mark.parametrize("count", [1, 3, 12])
def test_the_words_beside_what_is_kept_fit_the_figure(count: int) -> None:
    subnets = [Subnet.of_encoder(range(1 + row % 6)) for row in range(count)]
    figure = draw_kept(subnets, [0.1 * (row + 1) for row in range(count)], {"encoder": 6})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        words = axes.yaxis.label.get_window_extent()
        assert 0 <= words.x0 < words.x1 <= figure.bbox.width
        assert 0 <= words.y0 < words.y1 <= figure.bbox.height
