"""One supernet beside specialists: what each budget gets, and what all of them cost to train."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from recipe_arms import SPECIALIST

from ldsearch.reports.style import (
    STYLE,
    WIDE,
    Label,
    mark_full,
    place_labels,
    series,
    show_noise,
)

MOST = 8  # budgets served


def draw_nested(result: Mapping[str, Any], arms: tuple[str, str]) -> Figure:
    """Accuracy by share of the MACs, and compute by the number of budgets.

    Args:
        result: Of ``recipe.json``.
        arms: The two supernets that are drawn, the base first.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDE, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_accuracy(left, result, arms)
        _draw_compute(right)
        return figure


def _draw_accuracy(axes: Axes, result: Mapping[str, Any], arms: tuple[str, str]) -> None:
    plain = result["plain"]["accuracy"] / 100
    labels = [replace(mark_full(axes, 1.0, plain), text="plain fine-tuning, whole")]
    for index, (name, label) in enumerate(
        zip(arms, ("supernet, base", "supernet, best recipe"), strict=True)
    ):
        by = {
            float(key.split()[1]): value / 100
            for key, value in result["arms"][name]["by"].items()
            if key.startswith("all ")
        }
        look = series(index)
        axes.plot(list(by), list(by.values()), **look)
        labels.append(Label(label, list(by)[2:], list(by.values())[2:], look["color"], look["marker"]))
    alone = sorted((row["share"], row["accuracy"] / 100) for row in result["specialists"].values())
    xs, ys = zip(*alone, strict=True)
    look = series(2)
    axes.plot(xs, ys, ls="", ms=8, **look)
    labels.append(Label("specialists", xs, ys, look["color"], look["marker"], ""))
    rows = result["options"]["rows"]
    show_noise(axes, (plain * (1 - plain) / rows) ** 0.5)
    axes.set(xlabel="share of the full model's MACs", ylabel=f"accuracy, {rows:,} held-out rows")
    axes.set_title("constant ratio of all blocks")
    place_labels(axes, labels)


def _draw_compute(axes: Axes) -> None:
    budgets = range(1, MOST + 1)
    nested, alone = series(1), series(2)  # as beside it
    axes.plot(budgets, [1] * MOST, **nested)
    axes.plot(budgets, [SPECIALIST * count for count in budgets], ls="--", **alone)
    axes.set_ylim(0, None)
    axes.set(xlabel="budgets served", ylabel="training compute, supernets")
    axes.set_title("after the same plain fine-tuning")
    place_labels(
        axes,
        [
            Label("one supernet", [6], [1], nested["color"], nested["marker"]),
            Label("a specialist for each", [5], [5 * SPECIALIST], alone["color"], alone["marker"], "--"),
        ],
    )
