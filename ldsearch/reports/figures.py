"""Figures drawn from tables: the frontier with the full model, the constant-ratio line and the budget."""

import io
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ldsearch.files import write_atomic
from ldsearch.reports.tables import frontier_table


@dataclass(frozen=True)
class Marks:
    """What a frontier figure points out beside the trials.

    Args:
        title: Above the axes.
        best: Row of the chosen trial in the table; None marks nothing.
        budget_share: The budget as a share of the full model's MACs; None draws no line.
    """

    title: str
    best: int | None = None
    budget_share: float | None = None


def draw_frontier(table: pd.DataFrame, marks: Marks) -> Figure:
    """Score against the share of the full model's MACs.

    Args:
        table: Of ``trials_table``; its first row is the full model.
        marks: What to point out.
    """
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(table["macs_share"], table["score"], s=12, color="0.75", label=f"{len(table)} trials")
    front = frontier_table(table)
    axes.step(front["macs_share"], front["score"], where="post", color="tab:blue", lw=1.6)
    axes.scatter(front["macs_share"], front["score"], s=20, color="tab:blue", label="frontier", zorder=3)
    line = table[table["constant_ratio"]].sort_values("macs_share")
    if not line.empty:
        axes.plot(line["macs_share"], line["score"], "--", color="tab:orange", lw=1.3, label="constant ratio")
    full = table.iloc[0]
    # Without it, a zoomed axis makes noise look like a trade-off.
    noise = 1.96 * full["standard_error"]
    if noise > 0:
        axes.axhspan(
            full["score"] - noise,
            full["score"] + noise,
            color="0.93",
            zorder=0,
            label="full model ± 1.96 standard errors",
        )
    axes.scatter(
        [full["macs_share"]], [full["score"]], marker="*", s=130, color="black", label="full model", zorder=4
    )
    if marks.budget_share is not None:
        axes.axvline(
            marks.budget_share, color="tab:red", ls=":", lw=1.4, label=f"budget {marks.budget_share:.3g}"
        )
    if marks.best is not None:
        best = table.iloc[marks.best]
        axes.scatter(
            [best["macs_share"]],
            [best["score"]],
            s=110,
            facecolors="none",
            edgecolors="tab:red",
            linewidths=1.8,
            label="chosen",
            zorder=5,
        )
    axes.set_xlabel("share of the full model's MACs at true lengths")
    axes.set_ylabel(f"{full['metric']} on {full['examples']} {full['split']} examples")
    axes.set_title(marks.title)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Atomic PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_atomic(path, buffer.getvalue())
