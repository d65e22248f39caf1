"""The trainings of a study: a table, and a figure of the best so far and of each hyperparameter."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def tuning_table(attempts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each training: its number, parameters, area with its interval, seconds, why it failed.

    Args:
        attempts: With ``number``, ``parameters``, ``area`` (None or ``mean``, ``low``, ``high``),
            ``seconds`` and ``reason``.
    """
    return pd.DataFrame(
        [
            {
                "trial": one["number"],
                **one["parameters"],
                **_area(one["area"]),
                "seconds": one["seconds"],
                "failed": one["reason"],
            }
            for one in attempts
        ]
    )


def _area(area: Mapping[str, float] | None) -> dict[str, float]:
    names = {"area": "mean", "area_low": "low", "area_high": "high"}
    return {name: float("nan") if area is None else area[end] for name, end in names.items()}


def draw_tuning(
    table: pd.DataFrame,
    parameters: Sequence[str],
    logarithmic: Collection[str],
    title: str,
    metric: str,
    higher_is_better: bool,
) -> Figure:
    """The area by training with its 95% interval and the best so far; beside it, by each hyperparameter.

    Args:
        table: Of ``tuning_table``; not all of its trainings failed.
        parameters: Columns of the hyperparameters.
        logarithmic: Those drawn on a logarithmic axis.
        title: Above the axes.
        metric: What the areas are means of.
        higher_is_better: Its direction.
    """
    figure = Figure(figsize=(4.2 + 3.2 * len(parameters), 4.2), layout="constrained")
    panels = figure.subplots(1, 1 + len(parameters), sharey=True, squeeze=False)[0]
    scored = table.dropna(subset=["area"])
    areas = scored["area"].to_numpy()
    best = scored.iloc[int(areas.argmax() if higher_is_better else areas.argmin())]
    _draw_history(panels[0], table, scored, higher_is_better)
    panels[0].set_ylabel(f"area: mean {metric} over cost, search rows")
    for axes, name in zip(panels[1:], parameters, strict=True):
        values = scored[name] if pd.api.types.is_numeric_dtype(scored[name]) else scored[name].astype(str)
        axes.scatter(values, scored["area"], s=22, color="tab:blue")
        axes.set_xlabel(name)
        if name in logarithmic:
            axes.set_xscale("log")
            axes.tick_params(axis="x", which="both", labelsize=7, labelrotation=45)
        mark = best[name] if pd.api.types.is_numeric_dtype(scored[name]) else str(best[name])
        axes.scatter([mark], [best["area"]], s=110, facecolors="none", edgecolors="tab:red", linewidths=1.8)
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    figure.suptitle(title)
    return figure


def _draw_history(axes: Axes, table: pd.DataFrame, scored: pd.DataFrame, higher_is_better: bool) -> None:
    area = scored["area"]
    axes.errorbar(
        scored["trial"],
        area,
        yerr=[area - scored["area_low"], scored["area_high"] - area],
        fmt="o",
        ms=4,
        lw=1,
        capsize=2,
        color="tab:blue",
        label="training, 95% interval",
    )
    so_far = area.cummax() if higher_is_better else area.cummin()
    axes.step(scored["trial"], so_far, where="post", color="tab:red", lw=1.4, label="best so far")
    failed = table[table["area"].isna()]
    if len(failed):
        bottom = [0.02] * len(failed)
        axes.plot(
            failed["trial"], bottom, "x", color="0.4", transform=axes.get_xaxis_transform(), label="failed"
        )
    axes.set_xlabel("trial")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(fontsize=8)
