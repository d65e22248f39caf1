"""Figures of searches: frontiers, convergence, comparisons; health of a supernet and importance of blocks."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ldsearch.files import write_atomic
from ldsearch.pareto import staircase_weights
from ldsearch.reports.tables import COST_WORDS, frontier_table

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "errorbar.capsize": 2,
    "grid.alpha": 0.25,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
}

Scores = tuple[str, str, int]  # metric, split, number of examples

_CONTROL_COLOURS = {"constant-ratio": "tab:orange", "random": "tab:green"}
_LOG_FACTOR = 4  # scores that differ by more than this factor (perplexities of collapsed models): log axis
_BUDGET_SPREAD = 0.03  # of the budget axis, over which the strategies at one budget are spread


def save_figure(figure: Figure, path: Path) -> None:
    """Atomic PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_atomic(path, buffer.getvalue())


def plain(text: str) -> str:
    """Escape a name that Matplotlib would otherwise typeset as mathematics."""
    return text.replace("$", r"\$")


@dataclass(frozen=True)
class RunFrontier:
    """The frontier of one run.

    Args:
        label: The run's.
        front: Its ``frontier.csv``, cheapest first.
        full: The full model's row of ``trials.csv``.
        ends: Lower and upper ends of the scores' own 95% intervals; None: error bars are those of the
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
    def bars(self) -> "list[pd.Series[Any]] | None":
        """Length of the error bars below and above ``scores``; None without held-out rows."""
        if self.ends is not None:
            low, high = self.ends
            return [self.scores - low, high - self.scores]
        if not self.held_out:
            return None
        differences = self.front["difference"]
        return [differences - self.front["difference_low"], self.front["difference_high"] - differences]

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
        controls: Of ``trials_table`` too, of the controls.
        held_out: The frontier's rows with the columns of ``HELD_OUT_COLUMNS``; None leaves the second
            panel out.
    """
    full, cost = table.iloc[0], costs[0]
    total, chosen = float(full[cost]), None if best is None else table.iloc[best]
    panels = 1 if held_out is None or held_out.empty else 2
    figure = Figure(figsize=(6.2 * panels, 4.6), layout="constrained")
    figure.suptitle(title)
    left, *others = figure.subplots(1, panels, squeeze=False)[0]
    _draw_searched(left, table, controls, costs)
    left.set_ylabel(f"{full['metric']} on {full['examples']} {full['split']} examples, which chose")
    marked = [
        (left, float(full["score"]), None if chosen is None else (chosen[cost] / total, chosen["score"]))
    ]
    for right in others:
        assert held_out is not None
        again = RunFrontier("frontier, 95% interval of the difference to full", held_out, full)
        places = held_out[cost] / total
        right.errorbar(places, again.scores, yerr=again.bars, fmt="o", color="tab:blue", label=again.label)
        right.axhline(again.full_score, color="black", lw=0.8)
        metric, split, examples = again.rows
        right.set_ylabel(f"{metric} on {examples} {split} examples")
        there = None if chosen is None else held_out.index[held_out["subnet"] == chosen["subnet"]]
        place = None if there is None or not len(there) else (places[there[0]], again.scores[there[0]])
        marked.append((right, again.full_score, place))
    where = " at true lengths" if cost == "macs" else ""
    for axes, full_score, place in marked:
        axes.scatter([1.0], [full_score], marker="*", s=130, color="black", label="full model", zorder=4)
        if budget_share is not None:
            axes.axvline(budget_share, color="tab:red", ls=":", lw=1.4, label=f"budget {budget_share:.3g}")
        if place is not None:
            ring = {"facecolors": "none", "edgecolors": "tab:red", "linewidths": 1.8}
            axes.scatter(*place, s=110, label="chosen", zorder=5, **ring)
        axes.set_xlabel(f"share of the full model's {COST_WORDS.get(cost, cost)}{where}")
        axes.legend(loc="lower right")
    return figure


def _draw_searched(
    axes: Axes, table: pd.DataFrame, controls: pd.DataFrame | None, costs: Sequence[str]
) -> None:
    """All trials, their frontier, and the frontier of each control."""
    cost, total = costs[0], float(table[costs[0]].iloc[0])
    # Of several costs the frontier is a surface: seen along one of them its points make no stairs.
    stairs = len(costs) == 1
    axes.scatter(table[cost] / total, table["score"], s=12, color="0.75", label=f"{len(table)} trials")
    front = frontier_table(table, cost)
    shares = front[cost] / total
    axes.step(shares, front["score"], where="post", color="tab:blue", lw=1.6 if stairs else 0.0)
    axes.scatter(shares, front["score"], s=20, color="tab:blue", label="frontier", zorder=3)
    for name, rows in [] if controls is None else controls.groupby("strategy", sort=True):
        line = frontier_table(rows, cost)
        axes.step(
            line[cost] / total,
            line["score"],
            where="post",
            ls="--",
            marker="" if stairs else ".",
            lw=1.3 if stairs else 0,
            color=_CONTROL_COLOURS.get(str(name), "tab:purple"),
            label=f"{name}, {len(rows)} trials",
        )


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
    figure = Figure(figsize=(6.2, 0.4 + 3.8 * len(panels)), layout="constrained")
    columns = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, ((metric, split, examples), members) in zip(columns, panels.items(), strict=True):
        same_cost = len({round(float(each.full["macs"])) for each in members}) == 1
        stars = Counter((float(each.full["macs"]), each.full_score) for each in members)
        for number, each in enumerate(members):
            full_macs, scores = float(each.full["macs"]), each.scores
            unit = full_macs if same_cost else 1e6
            costs, end, colour = each.front["macs"] / unit, full_macs / unit, f"C{number}"
            axes.errorbar(costs, scores, yerr=each.bars, fmt="o", color=colour, label=each.label)
            axes.plot([*costs, max(end, *costs)], [*scores, scores.iloc[-1]], ds="steps-post", color=colour)
            # A star that several frontiers share has none of their colours.
            shared = len(members) == 1 or stars[full_macs, each.full_score] > 1
            star = "black" if shared else colour
            axes.scatter([end], [each.full_score], marker="*", s=110, c=star, zorder=4)
        axes.scatter([], [], marker="*", s=110, c="black", label="full model")
        axes.set_xlabel(
            "share of the full model's MACs at true lengths" if same_cost else "million MACs per example"
        )
        axes.set_ylabel(f"{metric} on {examples} {split} examples")
        axes.legend()
    return figure


@rc_context(STYLE)
def draw_convergence(areas: pd.DataFrame, metric: str) -> Figure:
    """A line for what proposed in several generations; what proposed once is a point, and its level a line.

    Args:
        areas: Of ``area_table``.
        metric: What the scores are.
    """
    figure = Figure(figsize=(6.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, rows) in enumerate(areas.groupby("strategy", sort=False)):
        colour = f"C{number}"
        if len(rows) == 1:
            axes.axhline(rows["area"].iloc[-1], color=colour, ls=":")
        axes.plot(rows["evaluations"], rows["area"], "o-", color=colour, label=str(name))
    axes.set_xlabel("sub-networks measured, the full model included")
    axes.set_ylabel(f"area: mean best {metric} over cost")
    axes.legend()
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
    figure = Figure(figsize=(7.5 * len(panels), 5.2), layout="constrained")
    columns = figure.subplots(1, len(panels), squeeze=False)[0] if panels else []
    for axes, ((metric, split, examples), rows) in zip(columns, panels, strict=True):
        same_cost = bool((rows["macs"] / rows["share"]).dropna().round().nunique() < 2)
        several = rows["supernet"].nunique() > 1
        lines = list(rows.groupby(["supernet", "strategy"], sort=False))
        # A run's random control has the run's colour.
        names = [(supernet, str(strategy).removesuffix(", random")) for (supernet, strategy), _ in lines]
        colours = {name: f"C{at % 10}" for at, name in enumerate(dict.fromkeys(names))}
        for at, ((supernet, strategy), line) in enumerate(lines):
            scored = line[line["seeds"] > 0]
            if scored.empty:
                continue
            spread = _BUDGET_SPREAD * (at / max(1, len(lines) - 1) - 0.5)
            axes.errorbar(
                scored["budget"] + spread if same_cost else scored["macs"] / 1e6,
                scored["score"],
                yerr=[scored["score"] - scored["low"], scored["high"] - scored["score"]],
                label=f"{supernet}: {strategy}" if several else strategy,
                marker="o",
                ls="--" if str(strategy).rpartition(", ")[2].startswith("random") else "-",
                color=colours[names[at]],
            )
        scores = rows["score"].dropna()
        if len(scores) and 0 < _LOG_FACTOR * scores.min() < scores.max():
            axes.set_yscale("log")
        axes.set_xlabel("budget, share of the full model's MACs" if same_cost else "million MACs per example")
        axes.set_ylabel(f"{metric} on {examples} {split} examples, 95%")
        if len(scores):  # no budget bought anything: nothing was drawn
            axes.legend()
    return figure


@rc_context(STYLE)
def draw_health(table: pd.DataFrame, name: str, tau: float | None) -> Figure:
    """Inherited against fine-tuned scores, one point per sub-network, coloured by cost.

    Args:
        table: Columns ``inherited``, ``fine_tuned`` and ``macs_share``.
        name: The supernet's.
        tau: Kendall's rank correlation at equal cost, for the title; None: it is undefined.
    """
    figure = Figure(figsize=(5.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    inherited, tuned = table["inherited"], table["fine_tuned"]
    points = axes.scatter(inherited, tuned, c=table["macs_share"], s=45, cmap="viridis")
    ends = [min(inherited.min(), tuned.min()), max(inherited.max(), tuned.max())]
    axes.plot(ends, ends, color="0.7", label="equal")
    axes.set_xlabel("inherited score")
    axes.set_ylabel("score after fine-tuning on its own")
    axes.set_title(f"{name}: Kendall's tau at equal cost " + ("undefined" if tau is None else f"{tau:.2f}"))
    axes.legend(loc="lower right")
    figure.colorbar(points, label="share of the full model's MACs")
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
    figure = Figure(figsize=(max(5.4, 1.6 + 0.32 * len(table)), 5.6), layout="constrained")
    losses, scores = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    errors = table["standard_error"].fillna(0.0)
    losses.bar(table["block"], table["loss"], yerr=errors, color="tab:blue", ecolor="0.3")
    losses.axhline(0, color="black", lw=0.8)
    losses.set_ylabel(f"loss of {metric} without the block\n(one standard error)")
    losses.set_title(title)
    for column, colour, label in (
        ("restored", "0.5", "with the block"),
        ("without", "tab:red", "without it"),
    ):
        scores.plot(table["block"], table[column], "o-", color=colour, label=label)
    scores.set_ylabel(f"mean {metric}")
    scores.set_xlabel("block (0-based)")
    scores.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    scores.legend()
    return figure
