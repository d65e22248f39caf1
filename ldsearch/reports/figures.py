"""Figures drawn from tables: the frontier beside its controls, and on rows that chose nothing."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ldsearch.files import write_atomic
from ldsearch.reports.tables import COST_WORDS, frontier_table

_CONTROL_COLOURS = {"constant-ratio": "tab:orange", "random": "tab:green"}


@dataclass(frozen=True)
class Marks:
    """What a frontier figure points out beside the trials.

    Args:
        title: Above the axes.
        best: Row of the chosen trial in the table; None marks nothing.
        budget_share: The budget as a share of what the full model costs; None draws no line.
        costs: Names of the costs that were minimised; the first is drawn along, as a share.
    """

    title: str
    best: int | None = None
    budget_share: float | None = None
    costs: tuple[str, ...] = ("macs",)


def draw_frontier(
    table: pd.DataFrame,
    marks: Marks,
    controls: pd.DataFrame | None = None,
    held_out: pd.DataFrame | None = None,
) -> Figure:
    """Score against a share of the full model's cost; beside it, what is left of it on held-out rows.

    Args:
        table: Of ``trials_table``; its first row is the full model.
        marks: What to point out.
        controls: Of ``trials_table`` too, of the controls.
        held_out: The frontier's rows with the columns of ``HELD_OUT_COLUMNS``; None leaves the second
            panel out.
    """
    panels = 1 if held_out is None else 2
    figure = Figure(figsize=(6.2 * panels, 4.6), layout="constrained")
    left = figure.add_subplot(1, panels, 1)
    full = table.iloc[0]
    total = float(full[marks.costs[0]])
    _draw_searched(left, table, controls, marks.costs, total)
    best = None if marks.best is None else table.iloc[marks.best]
    _draw_marks(left, full["score"], best, marks, total)
    left.set_ylabel(f"{full['metric']} on {full['examples']} {full['split']} examples, which chose")
    left.legend(loc="lower right", fontsize=8)
    if held_out is not None and not held_out.empty:
        right = figure.add_subplot(1, panels, 2)
        _draw_held_out(right, held_out, held_out[marks.costs[0]] / total)
        first = held_out.iloc[0]
        if best is not None:
            found = held_out[held_out["subnet"] == best["subnet"]]
            best = found.iloc[0].rename({"score": "", "held_out_score": "score"}) if len(found) else None
        _draw_marks(right, _full_held_out(first), best, marks, total)
        right.set_ylabel(
            f"{full['metric']} on {first['held_out_examples']} {first['held_out_split']} examples"
        )
        right.legend(loc="lower right", fontsize=8)
    figure.suptitle(marks.title)
    return figure


def _full_held_out(row: "pd.Series[Any]") -> float:
    return float(row["held_out_score"] - row["difference"])


def _draw_searched(
    axes: Axes, table: pd.DataFrame, controls: pd.DataFrame | None, costs: Sequence[str], total: float
) -> None:
    cost = costs[0]
    axes.scatter(table[cost] / total, table["score"], s=12, color="0.75", label=f"{len(table)} trials")
    front = frontier_table(table, cost)
    # Of several costs the frontier is a surface: seen along one of them its points make no stairs.
    width = 1.6 if len(costs) == 1 else 0.0
    axes.step(front[cost] / total, front["score"], where="post", color="tab:blue", lw=width)
    axes.scatter(front[cost] / total, front["score"], s=20, color="tab:blue", label="frontier", zorder=3)
    if controls is None:
        return
    for name, rows in controls.groupby("strategy", sort=True):
        line = frontier_table(rows, cost)
        axes.step(
            line[cost] / total,
            line["score"],
            where="post",
            ls="--",
            marker="" if len(costs) == 1 else ".",
            lw=1.3 if len(costs) == 1 else 0,
            color=_CONTROL_COLOURS.get(str(name), "tab:purple"),
            label=f"{name}, {len(rows)} trials",
        )


def _draw_held_out(axes: Axes, held_out: pd.DataFrame, shares: "pd.Series[float]") -> None:
    scores, differences = held_out["held_out_score"], held_out["difference"]
    errors = [differences - held_out["difference_low"], held_out["difference_high"] - differences]
    axes.errorbar(
        shares,
        scores,
        yerr=errors,
        fmt="o",
        ms=4,
        lw=1.2,
        capsize=2,
        color="tab:blue",
        label="frontier, 95% interval of the difference to full",
    )
    axes.axhline(_full_held_out(held_out.iloc[0]), color="black", lw=0.8)


def _draw_marks(
    axes: Axes, full_score: float, best: "pd.Series[Any] | None", marks: Marks, total: float
) -> None:
    cost = marks.costs[0]
    axes.scatter([1.0], [full_score], marker="*", s=130, color="black", label="full model", zorder=4)
    if marks.budget_share is not None:
        axes.axvline(
            marks.budget_share, color="tab:red", ls=":", lw=1.4, label=f"budget {marks.budget_share:.3g}"
        )
    if best is not None:
        axes.scatter(
            [best[cost] / total],
            [best["score"]],
            s=110,
            facecolors="none",
            edgecolors="tab:red",
            linewidths=1.8,
            label="chosen",
            zorder=5,
        )
    where = " at true lengths" if cost == "macs" else ""
    axes.set_xlabel(f"share of the full model's {COST_WORDS.get(cost, cost)}{where}")
    axes.grid(alpha=0.25)


def draw_health(table: pd.DataFrame, name: str, tau: float) -> Figure:
    """Inherited against fine-tuned scores, one point per sub-network, coloured by cost.

    Args:
        table: Columns ``inherited``, ``fine_tuned`` and ``macs_share``.
        name: The supernet's.
        tau: Kendall's rank correlation, for the title.
    """
    figure = Figure(figsize=(5.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    points = axes.scatter(
        table["inherited"], table["fine_tuned"], c=table["macs_share"], s=45, cmap="viridis"
    )
    ends = [table[["inherited", "fine_tuned"]].min().min(), table[["inherited", "fine_tuned"]].max().max()]
    axes.plot(ends, ends, color="0.7", lw=1, label="equal")
    axes.set_xlabel("inherited score")
    axes.set_ylabel("score after fine-tuning on its own")
    axes.set_title(f"{name}: Kendall's tau {tau:.2f}")
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.25)
    figure.colorbar(points, label="share of the full model's MACs")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Atomic PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_atomic(path, buffer.getvalue())
