"""What leaving each block out costs, drawn as bars (Fig. 5 of Fan, Grave & Joulin 2019)."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def draw_importance(table: pd.DataFrame, title: str, metric: str) -> Figure:
    """The loss of score by block with one standard error; below it the scores that it is the difference of.

    Args:
        table: Columns ``block``, ``loss``, ``standard_error``, ``without`` and ``restored``, a row for each
            block that was left out.
        title: Above the axes.
        metric: What the scores are.
    """
    figure = Figure(figsize=(max(5.4, 1.6 + 0.32 * len(table)), 5.6), layout="constrained")
    losses, scores = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    losses.bar(
        table["block"],
        table["loss"],
        yerr=table["standard_error"].fillna(0.0),
        color="tab:blue",
        ecolor="0.3",
        capsize=2,
    )
    losses.axhline(0, color="black", lw=0.8)
    losses.set_ylabel(f"loss of {metric} without the block\n(one standard error)")
    losses.set_title(title)
    scores.plot(table["block"], table["restored"], "o-", ms=4, lw=1.2, color="0.5", label="with the block")
    scores.plot(table["block"], table["without"], "o-", ms=4, lw=1.2, color="tab:red", label="without it")
    scores.set_ylabel(f"mean {metric}")
    scores.set_xlabel("block (0-based)")
    scores.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    scores.legend(fontsize=8)
    for axes in (losses, scores):
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure
