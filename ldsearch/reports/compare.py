"""What strategies find for a budget, as a figure: held-out scores with intervals, supernets overlaid."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_WIDE = 4  # scores that differ by this factor (a perplexity beside a collapsed one) have a logarithmic axis
_WIDTH = 0.03  # of the band of budgets in which the strategies of one budget stand side by side


def draw_comparison(table: pd.DataFrame) -> Figure:
    """Held-out score against the budget, one line per strategy or run and supernet.

    Supernets with the same metric and examples share their axes, so that their lines can be compared: by
    budgets where their full models cost the same, else by the MACs of what was chosen.

    Args:
        table: Rows as ``ldsearch.commands.compare.Cell``; those of all evaluations are drawn.
    """
    drawn = table[table["limit"] == "evaluations"]
    panels = list(drawn.groupby(["metric", "split", "examples"], sort=False))
    figure = Figure(figsize=(7.5 * len(panels), 5.2), layout="constrained")
    for index, ((metric, split, examples), rows) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        alike = (rows["macs"] / rows["share"]).dropna().round().nunique() < 2
        _draw_lines(axes, rows, alike)
        scores = rows["score"].dropna()
        if len(scores) and 0 < _WIDE * scores.min() < scores.max():
            axes.set_yscale("log")
        words = "budget, share of the full model's MACs" if alike else "million MACs per example"
        axes.set_xlabel(words)
        axes.set_ylabel(f"{metric} on {examples} {split} examples, 95%")
        axes.legend(fontsize=7)
    return figure


def _draw_lines(axes: Axes, rows: pd.DataFrame, alike: bool) -> None:
    several = rows["supernet"].nunique() > 1
    lines = list(rows.groupby(["supernet", "strategy"], sort=False))
    # A run's random control has the run's colour.
    names = [(supernet, str(strategy).removesuffix(", random")) for (supernet, strategy), _ in lines]
    colours = {name: f"C{index % 10}" for index, name in enumerate(dict.fromkeys(names))}
    for index, ((supernet, strategy), line) in enumerate(lines):
        found = line[line["seeds"] > 0]
        if found.empty:
            continue
        spread = _WIDTH * (index / max(1, len(lines) - 1) - 0.5)
        axes.errorbar(
            found["budget"] + spread if alike else found["macs"] / 1e6,
            found["score"],
            yerr=[found["score"] - found["low"], found["high"] - found["score"]],
            label=f"{supernet}: {strategy}" if several else strategy,
            marker="o",
            ms=4,
            lw=1,
            capsize=2,
            ls="--" if str(strategy).rpartition(", ")[2].startswith("random") else "-",
            color=colours[names[index]],
            elinewidth=0.7,
        )
