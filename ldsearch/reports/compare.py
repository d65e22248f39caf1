"""What strategies find for a budget, as a figure: held-out scores with intervals, supernets overlaid."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_WIDE = 4  # scores that differ by this factor (a perplexity beside a collapsed one) have a logarithmic axis
_WIDTH = 0.03  # of the band of budgets in which the strategies of one budget stand side by side


def draw_comparison(table: pd.DataFrame) -> Figure:
    """Held-out score against the budget, one line per strategy and supernet.

    Supernets with the same metric and examples share their axes, so that their lines can be compared.

    Args:
        table: Rows as ``ldsearch.workflows.compare.Cell``; those of all evaluations are drawn.
    """
    drawn = table[table["limit"] == "evaluations"]
    panels = list(drawn.groupby(["metric", "examples"], sort=False))
    figure = Figure(figsize=(7.5 * len(panels), 5.2), layout="constrained")
    for index, ((metric, examples), rows) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        _draw_lines(axes, rows)
        scores = rows["score"].dropna()
        if len(scores) and 0 < _WIDE * scores.min() < scores.max():
            axes.set_yscale("log")
        axes.set_xlabel("budget, share of the full model's MACs")
        axes.set_ylabel(f"{metric} on {examples} examples that chose nothing, 95%")
        axes.legend(fontsize=7)
    return figure


def _draw_lines(axes: Axes, rows: pd.DataFrame) -> None:
    several = rows["supernet"].nunique() > 1
    lines = list(rows.groupby(["supernet", "strategy"], sort=False))
    for index, ((supernet, strategy), line) in enumerate(lines):
        found = line[line["seeds"] > 0]
        if found.empty:
            continue
        spread = _WIDTH * (index / max(1, len(lines) - 1) - 0.5)
        axes.errorbar(
            found["budget"] + spread,
            found["score"],
            yerr=[found["score"] - found["low"], found["high"] - found["score"]],
            label=f"{supernet}: {strategy}" if several else strategy,
            marker="o",
            ms=4,
            lw=1,
            capsize=2,
            ls="--" if str(strategy).startswith("random") else "-",
            color=f"C{index % 10}",
        )
