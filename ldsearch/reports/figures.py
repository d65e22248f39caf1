"""Figures of searches: frontiers, convergence, comparisons; health of a supernet and importance of blocks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ldsearch.reports.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    NARROW,
    PURPLE,
    SOFT,
    STYLE,
    VERMILLION,
    WIDE,
    Label,
    draw_band,
    mark_budget,
    mark_chosen,
    mark_full,
    place_labels,
    series,
    show_noise,
)
from ldsearch.reports.tables import COST_WORDS, frontier_table
from ldsearch.trials.pareto import staircase_weights

Scores = tuple[str, str, int]  # metric, split, number of examples

# Colour and dash of the line that every search has to beat, whatever the space calls it, and of the other.
_CONTROL_LINES = {
    "constant-ratio": (VERMILLION, "--"),
    "regular": (VERMILLION, "--"),
    "random": (GREEN, "-."),
}
_LOG_FACTOR = 4  # scores that differ by more than this factor (perplexities of collapsed models): log axis
_MOST_LABELS = 5  # of a panel: more lines have a legend
_MOST_BANDS = 3  # of a panel: more intervals are bars


@dataclass(frozen=True)
class RunFrontier:
    """The frontier of one run.

    Args:
        label: The run's.
        front: Its ``frontier.csv``, cheapest first.
        full: The full model's row of ``trials.csv``.
        ends: Lower and upper ends of the scores' own 95% intervals; None: intervals are those of the
            difference to the full model, which say little of how far two models are apart.
    """

    label: str
    front: pd.DataFrame
    full: "pd.Series[Any]"
    ends: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def held_out(self) -> bool:
        """Whether it was scored on rows that chose nothing."""
        return "held_out_score" in self.front.columns

    @property
    def rows(self) -> Scores:
        """Metric, split and number of the examples behind ``scores``."""
        first = self.front.iloc[0]
        column = "held_out_" if self.held_out else ""
        return str(first["metric"]), str(first[f"{column}split"]), int(first[f"{column}examples"])

    @property
    def scores(self) -> "pd.Series[Any]":
        """Held-out scores where there are such rows, else those of the rows that chose."""
        return self.front["held_out_score" if self.held_out else "score"]

    @property
    def intervals(self) -> "tuple[Sequence[float], Sequence[float]] | None":
        """Lower and upper ends around ``scores``; None without held-out rows."""
        if self.ends is not None or not self.held_out:
            return self.ends
        gap = self.scores - self.front["difference"]
        return (gap + self.front["difference_low"]).tolist(), (gap + self.front["difference_high"]).tolist()

    @property
    def standard_error(self) -> float:
        """Of one of ``scores``: the full model's where it chose, scaled to as many rows."""
        measured = float(self.full["standard_error"])
        return measured * math.sqrt(float(self.full["examples"]) / self.rows[2])

    @property
    def full_score(self) -> float:
        """The full model's score on the same rows."""
        if not self.held_out:
            return float(self.full["score"])
        first = self.front.iloc[0]
        return float(first["held_out_score"] - first["difference"])


@rc_context(STYLE)
def draw_frontier(
    table: pd.DataFrame,
    title: str,
    *,
    best: int | None = None,
    budget_share: float | None = None,
    costs: Sequence[str] = ("macs",),
    controls: pd.DataFrame | None = None,
    held_out: pd.DataFrame | None = None,
) -> Figure:
    """Score against a share of the full model's cost; in a second panel, the frontier on held-out rows.

    Args:
        table: Of ``trials_table``; its first row is the full model.
        title: Above the axes.
        best: Row of the chosen trial in the table; None marks nothing.
        budget_share: The budget as a share of what the full model costs; None draws no line.
        costs: Names of the costs that were minimised; the first is drawn along, as a share.
        controls: Of ``trials_table`` too, of the controls; with ``held_out_score`` also in that panel.
        held_out: The frontier's rows with the columns of ``HELD_OUT_COLUMNS``; None leaves the second
            panel out.
    """
    full, cost = table.iloc[0], costs[0]
    total, chosen = float(full[cost]), None if best is None else table.iloc[best]
    panels = 1 if held_out is None or held_out.empty else 2
    figure = Figure(figsize=(WIDE if panels > 1 else NARROW, 4.8), layout="constrained")
    figure.suptitle(title)
    # One axis of scores: what the search says too well of its own choices is then to be seen.
    left, *others = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
    named = _draw_searched(left, table, controls, costs)
    left.set_ylabel(str(full["metric"]))
    left.set_title(f"{full['examples']} {full['split']} rows, which chose")
    place = None if chosen is None else (chosen[cost] / total, chosen["score"])
    drawn = [(left, named, float(full["score"]), place)]
    for right in others:
        assert held_out is not None
        again = RunFrontier("frontier", held_out, full)
        places = held_out[cost] / total
        named = [
            _draw_points(right, again, places, series(0), stairs=len(costs) == 1),
            *_draw_controls(right, controls, costs, total, "held_out_score"),
        ]
        right.set_title(
            f"{again.rows[2]} {again.rows[1]} rows, which chose nothing\nband: 95% of the difference to full"
        )
        there = None if chosen is None else held_out.index[held_out["subnet"] == chosen["subnet"]]
        place = None if there is None or not len(there) else (places[there[0]], again.scores[there[0]])
        drawn.append((right, named, again.full_score, place))
    where = " at true lengths" if cost == "macs" else ""
    show_noise(left, float(full["standard_error"]))
    for axes, named, full_score, place in drawn:
        marks = [mark_full(axes, 1.0, full_score)]
        marks += [mark_chosen(axes, *place)] if place is not None else []
        marks += [mark_budget(axes, budget_share)] if budget_share is not None else []
        named[:0] = marks
        axes.set_xlabel(f"share of the full model's {COST_WORDS.get(cost, cost)}{where}")
    for axes, named, _, _ in drawn:  # once the layout is settled
        place_labels(axes, named)
    return figure


def _draw_searched(
    axes: Axes, table: pd.DataFrame, controls: pd.DataFrame | None, costs: Sequence[str]
) -> list[Label]:
    """All trials, their frontier, and the frontier of each control; what names them."""
    cost, total = costs[0], float(table[costs[0]].iloc[0])
    # Of several costs the frontier is a surface: seen along one of them its points make no stairs.
    stairs = len(costs) == 1
    axes.scatter(table[cost] / total, table["score"], s=16, color=FAINT)
    named = _draw_controls(axes, controls, costs, total, "score")
    front = frontier_table(table, cost)
    shares, scores = front[cost] / total, front["score"]
    axes.plot(shares, scores, "o-" if stairs else "o", ds="steps-post", color=BLUE, zorder=3)
    return [Label(f"frontier of {len(table)} trials", shares.tolist(), scores.tolist(), BLUE), *named]


def _draw_controls(
    axes: Axes, controls: pd.DataFrame | None, costs: Sequence[str], total: float, column: str
) -> list[Label]:
    """The scores of each control's frontier, by shares of the total cost; what names them."""
    cost, stairs, named = costs[0], len(costs) == 1, list[Label]()
    if controls is None or column not in controls:  # tables of before have no held-out scores
        return []
    for name, rows in controls.groupby("strategy", sort=True):
        line = frontier_table(rows, cost).dropna(subset=[column])
        colour, dashes = _CONTROL_LINES.get(str(name), (PURPLE, "--"))
        shares = line[cost] / total
        style: dict[str, Any] = {"ls": dashes if stairs else "", "marker": "" if stairs else "s"}
        text = f"{name}, {len(rows)} trials"
        axes.plot(shares, line[column], ds="steps-post", color=colour, label=text, **style)
        named.append(Label(text, shares.tolist(), line[column].tolist(), colour))
    return named


def _draw_points(
    axes: Axes,
    frontier: RunFrontier,
    places: "pd.Series[Any]",
    style: Mapping[str, Any],
    *,
    stairs: bool,
    band: bool = True,
) -> Label:
    """A frontier's scores at their places, with their intervals as a band, or as bars; what names it."""
    colour = style["color"]
    if (intervals := frontier.intervals) is not None and band:
        draw_band(axes, places, *intervals, colour)
    elif intervals is not None:
        axes.vlines(places, *intervals, color=colour, alpha=0.6)
    axes.plot(places, frontier.scores, ls="-" if stairs else "", ds="steps-post", **style)
    return Label(frontier.label, places.tolist(), frontier.scores.tolist(), colour, style["marker"])


def group_by_rows(frontiers: Sequence[RunFrontier]) -> dict[Scores, list[RunFrontier]]:
    """Group frontiers that can be compared: same metric, split and number of examples."""
    groups: dict[Scores, list[RunFrontier]] = {}
    for frontier in frontiers:
        groups.setdefault(frontier.rows, []).append(frontier)
    return groups


def common_areas(frontiers: Sequence[RunFrontier]) -> tuple[list[float], float, float]:
    """Mean score over the costs that every frontier reaches, where each run's own search makes its choices.

    Args:
        frontiers: Of one panel.

    Returns:
        The areas (NaN where the frontiers have no range in common), and the range in MACs per example.
    """
    low = max(float(frontier.front["macs"].min()) for frontier in frontiers)
    high = min(float(frontier.full["macs"]) for frontier in frontiers)
    if not low < high:
        return [float("nan")] * len(frontiers), low, high
    areas = []
    for frontier in frontiers:
        # Along a frontier whatever costs more was better where it was chosen, in whichever direction.
        weights = staircase_weights(frontier.front["macs"], np.arange(len(frontier.front)), low, high)
        areas.append(float(weights @ frontier.scores.to_numpy(dtype=np.float64)))
    return areas, low, high


@rc_context(STYLE)
def draw_overlay(frontiers: Sequence[RunFrontier]) -> Figure:
    """A panel for each kind of rows; shares of MACs where the full models cost the same, else MACs."""
    panels = group_by_rows(frontiers)
    figure = Figure(figsize=(NARROW, 0.4 + 4.2 * len(panels)), layout="constrained")
    columns = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, ((metric, split, examples), members) in zip(columns, panels.items(), strict=True):
        same_cost = len({round(float(each.full["macs"])) for each in members}) == 1
        stars = Counter((float(each.full["macs"]), each.full_score) for each in members)
        named, full_models = [], {}
        for number, each in enumerate(members):
            full_macs = float(each.full["macs"])
            unit = full_macs if same_cost else 1e6
            costs, end = each.front["macs"] / unit, full_macs / unit
            style = series(number)
            named.append(
                _draw_points(axes, each, costs, style, stairs=True, band=len(members) <= _MOST_BANDS)
            )
            last = max(end, *costs)
            axes.plot([costs.iloc[-1], last], [each.scores.iloc[-1]] * 2, color=style["color"])
            # A star that several frontiers share has none of their colours.
            shared = len(members) == 1 or stars[full_macs, each.full_score] > 1
            full_models[end, each.full_score] = INK if shared else style["color"]
        for (end, score), colour in full_models.items():
            axes.scatter([end], [score], marker="*", s=190, c=colour, zorder=4)
        axes.set_xlabel(
            "share of the full model's MACs at true lengths" if same_cost else "million MACs per example"
        )
        axes.set_ylabel(f"{metric} on {examples} {split} examples")
        show_noise(axes, max(each.standard_error for each in members))
        stars_at = [Label("full model", [x], [y], colour) for (x, y), colour in full_models.items()]
        name_lines(axes, [*stars_at, *named])
    return figure


def name_lines(axes: Axes, labels: Sequence[Label]) -> None:
    """Labels beside the lines where they can be told apart there, else a legend below the axes."""
    if len(labels) <= _MOST_LABELS:
        place_labels(axes, labels)
        return
    for label in labels:
        axes.plot([], [], marker=label.marker, ls=label.dashes, color=label.colour, label=label.text)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


@rc_context(STYLE)
def draw_convergence(areas: pd.DataFrame, metric: str, standard_error: float) -> Figure:
    """A line for what proposed in several generations; what proposed once is a point, and its level a line.

    Args:
        areas: Of ``area_table``.
        metric: What the scores are.
        standard_error: Of one of them; NaN: not known.
    """
    figure = Figure(figsize=(NARROW, 4.4), layout="constrained")
    axes, named = figure.add_subplot(), []
    for number, (name, rows) in enumerate(areas.groupby("strategy", sort=False)):
        style = series(number)
        if len(rows) == 1:
            axes.axhline(rows["area"].iloc[-1], color=style["color"], ls=":")
        axes.plot(rows["evaluations"], rows["area"], ls="-", **style)
        known = rows.dropna(subset="area")
        places, heights = known["evaluations"].tolist()[::-1], known["area"].tolist()[::-1]
        named += [Label(str(name), places, heights, style["color"])] if places else []
    axes.set_xlabel("sub-networks measured, the full model included")
    axes.set_ylabel(f"area: mean best {metric} over cost")
    show_noise(axes, standard_error)
    name_lines(axes, named)
    return figure


@rc_context(STYLE)
def draw_comparison(table: pd.DataFrame) -> Figure:
    """Held-out score against the budget, one line per strategy or run and supernet.

    Supernets with the same metric and examples share their axes, so that their lines can be compared: by
    budgets where their full models cost the same, else by the MACs of what was chosen.

    Args:
        table: Rows as ``ldsearch.commands.compare.ComparisonRow``; those of all evaluations are drawn.
    """
    drawn = table[table["limit"] == "evaluations"]
    panels = list(drawn.groupby(["metric", "split", "examples"], sort=False))
    longest = max((rows.groupby(["supernet", "strategy"]).ngroups for _, rows in panels), default=0)
    height = 5.2 + 0.15 * longest * (longest > _MOST_LABELS)  # of the legend
    figure = Figure(figsize=(NARROW * max(1, len(panels)), height), layout="constrained")
    columns = figure.subplots(1, len(panels), squeeze=False)[0] if panels else []
    for axes, ((metric, split, examples), rows) in zip(columns, panels, strict=True):
        same_cost = bool((rows["macs"] / rows["share"]).dropna().round().nunique() < 2)
        several = rows["supernet"].nunique() > 1
        lines = list(rows.groupby(["supernet", "strategy"], sort=False))
        # A run's random control has the run's colour and marker.
        names = [(supernet, str(strategy).removesuffix(", random")) for (supernet, strategy), _ in lines]
        styles = {name: series(at) for at, name in enumerate(dict.fromkeys(names))}
        named = []
        for at, ((supernet, strategy), line) in enumerate(lines):
            scored = line[line["seeds"] > 0]
            if scored.empty:
                continue
            places = scored["budget"] if same_cost else scored["macs"] / 1e6
            style = styles[names[at]]
            dashes = "--" if str(strategy).rpartition(", ")[2].startswith("random") else "-"
            axes.plot(places, scored["score"], ls=dashes, **style)
            if len(lines) <= _MOST_BANDS:
                draw_band(axes, places, scored["low"], scored["high"], style["color"])
            else:
                axes.vlines(places, scored["low"], scored["high"], color=style["color"], alpha=0.6)
            text = f"{supernet}: {strategy}" if several else str(strategy)
            order = [*places][::-1], [*scored["score"]][::-1]
            named.append(Label(text, *order, style["color"], style["marker"], dashes))
        scores = rows["score"].dropna()
        if len(scores) and 0 < _LOG_FACTOR * scores.min() < scores.max():
            axes.set_yscale("log")
        # Of a score, as far as its interval tells: 95% are nearly four of them.
        show_noise(axes, float(((rows["high"] - rows["low"]) / 3.92).median()))
        axes.set_xlabel("budget, share of the full model's MACs" if same_cost else "million MACs per example")
        axes.set_ylabel(f"{metric} on {examples} {split} examples, 95%")
        if len(scores):  # no budget bought anything: nothing was drawn
            name_lines(axes, named)
    return figure


@rc_context(STYLE)
def draw_health(table: pd.DataFrame, name: str, tau: float | None) -> Figure:
    """Inherited against fine-tuned scores, one point per sub-network, coloured by cost.

    Args:
        table: Columns ``inherited``, ``fine_tuned`` and ``macs_share``.
        name: The supernet's.
        tau: Kendall's rank correlation at equal cost, for the title; None: it is undefined.
    """
    figure = Figure(figsize=(NARROW, 4.8), layout="constrained")
    axes = figure.add_subplot()
    inherited, tuned = table["inherited"], table["fine_tuned"]
    points = axes.scatter(inherited, tuned, c=table["macs_share"], s=45, cmap="viridis")
    both = np.concatenate([inherited, tuned])
    ends = float(both.min()), float(both.max())
    axes.plot(ends, ends, color=SOFT, lw=1.0)
    axes.set_xlabel("inherited score")
    axes.set_ylabel("score after fine-tuning on its own")
    axes.set_title(f"{name}\nKendall's tau at equal cost " + ("undefined" if tau is None else f"{tau:.2f}"))
    figure.colorbar(points, label="share of the full model's MACs")
    along = np.linspace(*ends, 9)[::-1].tolist()
    place_labels(axes, [Label("equal", along, along, SOFT)])
    return figure


@rc_context(STYLE)
def draw_importance(table: pd.DataFrame, title: str, metric: str) -> Figure:
    """Loss of score without each block, with one standard error (Fig. 5 of Fan, Grave & Joulin 2019).

    Below it the scores that it is the difference of.

    Args:
        table: Columns ``block``, ``loss``, ``standard_error``, ``without`` and ``restored``, a row for each
            block that was left out.
        title: Above the axes.
        metric: What the scores are.
    """
    figure = Figure(figsize=(max(NARROW, 1.6 + 0.32 * len(table)), 6.0), layout="constrained")
    losses, scores = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    errors = table["standard_error"].fillna(0.0)
    losses.bar(table["block"], table["loss"], yerr=errors, color=BLUE, ecolor=INK)
    losses.axhline(0, color=INK, lw=0.8)
    losses.set_ylabel(f"loss of {metric} without the block\n(one standard error)")
    losses.set_title(title)
    named = []
    for column, text, style in (
        ("restored", "with the block", series(0)),
        ("without", "without it", series(1)),
    ):
        scores.plot(table["block"], table[column], ls="-", **style)
        named.append(Label(text, table["block"].tolist(), table[column].tolist(), style["color"]))
    scores.set_ylabel(f"mean {metric}")
    scores.set_xlabel("block (0-based)")
    scores.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    place_labels(scores, named)
    return figure
