"""The frontier to look around in: places worked out by hand, noise, and the picture of a model."""

import math
import re
from itertools import pairwise

import pytest

from ldsearch.reports.explorer import Bar, Explorer, Point
from ldsearch.reports.style import LEAST_ERRORS
from ldsearch.subnet import Lengths, Stack, Subnet

SHORT = Subnet(Stack((0, 2), Lengths((8, 4), 16)), Stack((1,)))


def point(share: float, score: float, around: float | None = 0.1) -> Point:
    ends = (None, None) if around is None else (score - around, score + around)
    return Point(SHORT, share, score, *ends, {}, "ldsearch export")


def explorer(*points: Point, error: float = math.nan, budget: float | None = None) -> Explorer:
    return Explorer(points, 0.8, error, budget, {"encoder": 4, "decoder": 2}, "MACs", "accuracy")


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", path)]


def test_places_are_linear_and_inside_the_frame() -> None:
    view = explorer(point(0.25, 0.6), point(0.5, 0.7), budget=0.2)
    frame = view.frame
    across, up = ([*map(view.x, (0.2, 0.4, 0.6, 0.8, 1.0))], [*map(view.y, (0.5, 0.6, 0.7, 0.8))])
    for places, step in ((across, 1), (up, -1)):
        gaps = [b - a for a, b in pairwise(places)]
        assert gaps == pytest.approx([gaps[0]] * len(gaps), abs=0.02)
        assert gaps[0] * step > 0  # cheap on the left, better above
    assert all(frame["left"] < view.x(share) < frame["right"] for share in (0.2, 1.0))
    assert all(frame["top"] < view.y(end) < frame["bottom"] for end in (0.5, 0.8))
    assert view.shares == {text: view.x(float(text)) for text in ("0.2", "0.4", "0.6", "0.8", "1.0")}
    assert set(view.scores) == {"0.50", "0.55", "0.60", "0.65", "0.70", "0.75", "0.80"}


def test_a_cost_buys_the_dearest_point_below_it_and_the_band_goes_around_the_intervals() -> None:
    view = explorer(point(0.25, 0.6), point(0.5, 0.7))
    (a, b), (c, d) = ((view.x(p.share), view.y(p.score)) for p in view.points)
    assert view.stairs == f"M{a} {b}H{c}V{d}"
    ends = [(a, 0.7), (c, 0.8), (c, 0.6), (a, 0.5)]
    assert numbers(view.band) == [value for x, end in ends for value in (x, view.y(end))]
    assert explorer(point(0.25, 0.6, None)).band == ""


def test_the_axis_is_as_wide_as_the_noise() -> None:
    narrow = explorer(point(0.5, 0.799, 0.001))
    wide = explorer(point(0.5, 0.799, 0.001), error=0.01)
    height = wide.frame["bottom"] - wide.frame["top"]
    unit = (wide.y(0.79) - wide.y(0.80)) / 0.01  # pixels
    assert height / unit == pytest.approx(LEAST_ERRORS * 0.01, rel=1e-2)
    assert (narrow.y(0.798) - narrow.y(0.8)) > 10 * (wide.y(0.798) - wide.y(0.8))


def test_the_picture_has_every_block_of_the_full_model() -> None:
    gone = "left out"
    assert explorer(point(0.5, 0.7)).bars(SHORT) == {
        "encoder": [Bar(0, 0.5, "8 of 16"), Bar(1, None, gone), Bar(2, 0.25, "4 of 16"), Bar(3, None, gone)],
        "decoder": [Bar(0, None, gone), Bar(1, 1.0, "all tokens")],
    }


def test_a_single_point_that_costs_and_scores_like_the_full_model_can_be_drawn() -> None:
    view = explorer(point(1.0, 0.8, None))
    assert all(map(math.isfinite, (view.x(1.0), view.y(0.8))))
    assert view.shares
    assert view.scores
