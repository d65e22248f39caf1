"""How the area under the frontier grew with the evaluations, of a search and its controls."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ldsearch.pareto import staircase_area

COLUMNS = ("strategy", "generation", "evaluations", "area")


def higher_is_better(table: pd.DataFrame, cost: str = "macs") -> bool:
    """Which direction of the score made this frontier; True where every score is the same.

    Args:
        table: With the columns of ``ldsearch.reports.tables``; its ``on_frontier`` tells.
        cost: The cost that was minimised.
    """
    front, others = (table[table["on_frontier"] == on].sort_values(cost)["score"] for on in (True, False))
    if len(front) > 1:
        # Along a frontier, what costs more is better.
        return bool(front.iloc[-1] > front.iloc[0])
    return bool(others.dropna().empty or front.mean() >= others.mean())


def area_table(
    trials: pd.DataFrame, controls: pd.DataFrame | None = None, cost: str = "macs"
) -> pd.DataFrame:
    """The area after each generation (length-adaptive paper, Fig. 5): mean best score over cost.

    All over one range, from the dearest of the strategies' cheapest sub-networks up to the full model, so
    that an area never falls.

    Args:
        trials: The search's, in measured order; the first is the full model.
        controls: Of one or several strategies; None where there were none.
        cost: The cost that the area goes along.

    Returns:
        Columns of ``COLUMNS``; the area is NaN until something at the start of the range is measured, and
        throughout where the range is empty.
    """
    everyone = [trials, *([] if controls is None else [own for _, own in controls.groupby("strategy")])]
    low, high = max(own[cost].min() for own in everyone), float(trials[cost].iloc[0])
    sign = 1 if higher_is_better(trials, cost) else -1
    rows = []
    for own in everyone:
        for generation in own["generation"].unique():
            known = own[own["generation"] <= generation]
            area = np.nan
            if low < high:
                area = sign * staircase_area(known[cost], sign * known["score"], low, high)
            rows.append((own["strategy"].iloc[0], int(generation), len(known), area))
    return pd.DataFrame(rows, columns=list(COLUMNS))


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
        last = rows.iloc[-1]
        if len(rows) == 1:
            axes.axhline(last["area"], color=colour, ls=":", lw=1.2)
        axes.plot(rows["evaluations"], rows["area"], "o-", ms=4, lw=1.5, color=colour, label=str(name))
    axes.set_xlabel("sub-networks measured, the full model included")
    axes.set_ylabel(f"area: mean best {metric} over cost")
    axes.legend(loc="best", fontsize=8)
    axes.grid(alpha=0.25)
    return figure
