"""Trials as tables: trials.csv and frontier.csv with documented columns, written and read."""

from collections.abc import Collection, Mapping, Sequence
from io import StringIO
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from ldsearch.disk.files import read_text, write_atomic
from ldsearch.errors import RunError, of_system, one_line
from ldsearch.trials.pareto import staircase_area
from ldsearch.trials.trial import Trial, pareto_front

# docs/runs.md prints this table; a test compares the two.
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "strategy": "what proposed it: the search, or one of its controls",
        "generation": "generation of the search that proposed it; the full model is measured first",
        "blocks": "executed blocks, 0-based",
        "lengths": "tokens that leave each executed block for an input of `reference` tokens; empty: all",
        "reference": "reference input length in tokens; empty where no token is dropped",
        "length_mode": "`ratio`: the same share of shorter inputs; `absolute`: at most so many",
        "score": "value of `metric` on `examples` examples of `split`",
        "standard_error": "of `score` alone; two sub-networks share its examples: compare `difference`",
        "metric": "name of the score",
        "examples": "examples the score rests on",
        "split": "split they come from",
        "macs": "multiply-accumulates per example at the true lengths of the split, matrix products only",
        "macs_share": "`macs` over the full model's",
        "padded_macs": "the same at the reference length, in the length-adaptive paper's convention",
        "padded_share": "`padded_macs` over the full model's",
        "parameters": "parameters of the exported model",
        "seconds": "wall-clock time of the measurement; 0 when it was known from before",
        "on_frontier": "no other trial is both cheaper and better, of the costs that were minimised",
        "fingerprint": "what the measurement belongs to: weights, data, preprocessing, precision",
        "subnet": "the sub-network as JSON, as `--subnet` takes it",
    }
)

# Columns that hold text, and those of which every trial has a number; the others hold numbers or nothing.
WORDS = frozenset(
    {
        *("strategy", "blocks", "lengths", "length_mode", "metric", "split", "fingerprint", "subnet"),
        "held_out_split",
    }
)
FINITE = frozenset({"generation", "examples", "macs", "macs_share", "padded_macs", "parameters"})

# Further columns, where the search knew the cost; registered costs stand under their own names.
COST_COLUMNS: Mapping[str, str] = MappingProxyType(
    {"latency": "milliseconds of a batch, predicted from the device's table, where a latency was asked for"}
)
# What shares of a cost are shares of, in words.
COST_WORDS: Mapping[str, str] = MappingProxyType({"macs": "MACs", "latency": "predicted latency"})


def trials_table(trials: Sequence[Trial], strategy: str, costs: Sequence[str] = ("macs",)) -> pd.DataFrame:
    """One row per trial of a strategy in measured order; the first trial is the full model.

    Args:
        trials: In measured order.
        strategy: What proposed them.
        costs: Names of those that were minimised.

    Raises:
        ValueError: If there are no trials.
    """
    if not trials:
        raise ValueError("a table needs at least one trial")
    full = trials[0]
    best = {trial.subnet for trial in pareto_front(trials, costs)}
    rows = []
    for trial in trials:
        encoder = trial.subnet.encoder
        lengths = encoder.lengths if encoder else None
        row = {
            "strategy": strategy,
            "generation": trial.generation,
            "blocks": " | ".join(" ".join(map(str, s.blocks)) for s in trial.subnet.stacks().values()),
            "lengths": " ".join(map(str, lengths.tokens)) if lengths else "",
            "reference": lengths.reference if lengths else "",
            "length_mode": lengths.mode if lengths else "",
            "score": trial.score.value,
            "macs_share": trial.costs["macs"] / full.costs["macs"],
            "padded_share": trial.costs["padded_macs"] / full.costs["padded_macs"],
            "on_frontier": trial.subnet in best,
            "subnet": trial.subnet.to_json(),
        }
        fields = ("standard_error", "metric", "examples", "split", "seconds", "fingerprint")
        row |= {**trial.costs, "parameters": int(trial.costs["parameters"])}
        rows.append(row | {name: getattr(trial, name) for name in fields})
    added = [name for name in full.costs if name not in COLUMNS]
    return pd.DataFrame(rows, columns=[*COLUMNS, *added])


def frontier_table(table: pd.DataFrame, cost: str = "macs") -> pd.DataFrame:
    """The rows on the frontier, cheapest first by a cost."""
    chosen = table[table["on_frontier"]]
    return chosen.sort_values(cost, kind="stable").reset_index(drop=True)


def higher_is_better(table: pd.DataFrame, cost: str = "macs") -> bool:
    """Read the direction of the score from a frontier; True where all scores are equal.

    Args:
        table: Of ``trials_table``; its ``on_frontier`` tells.
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
        Columns ``strategy``, ``generation``, ``evaluations`` and ``area``; the area is NaN until something
        at the start of the range is measured, and throughout where the range is empty.
    """
    strategies = [trials, *([] if controls is None else [rows for _, rows in controls.groupby("strategy")])]
    low, high = max(rows[cost].min() for rows in strategies), float(trials[cost].iloc[0])
    sign = 1 if higher_is_better(trials, cost) else -1
    areas = []
    for rows in strategies:
        for generation in rows["generation"].unique():
            known = rows[rows["generation"] <= generation]
            area = np.nan
            if low < high:
                area = sign * staircase_area(known[cost], sign * known["score"], low, high)
            areas.append((rows["strategy"].iloc[0], int(generation), len(known), area))
    return pd.DataFrame(areas, columns=["strategy", "generation", "evaluations", "area"])


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Atomic CSV; floats with ten significant digits."""
    write_atomic(path, table.to_csv(index=False, float_format="%.10g"))


def read_table(path: Path, columns: Sequence[str], words: Collection[str] = WORDS) -> pd.DataFrame:
    """A CSV file that has these columns and at least one row.

    Args:
        path: The file.
        columns: The columns.
        words: Those that hold text; the others hold numbers.

    Raises:
        RunError: If it is missing, or has not.
    """
    try:
        text = read_text(path)
    except FileNotFoundError as error:
        raise of_system(f"cannot read {path}", error) from error
    try:
        table = pd.read_csv(StringIO(text), dtype=dict.fromkeys({*words} & {*columns}, str))
    except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
        raise RunError(f"{path} is damaged: {one_line(error)}") from error
    if missing := [name for name in columns if name not in table.columns]:
        raise RunError(f"{path} is damaged: it has no column {missing[0]}")
    if table.empty:
        raise RunError(f"{path} is damaged: it has no rows")
    for name in columns:
        if name not in words and not pd.api.types.is_numeric_dtype(table[name]):
            raise RunError(f"{path} is damaged: its column {name} holds more than numbers")
        if name in FINITE and not np.isfinite(table[name]).all():
            raise RunError(f"{path} is damaged: a row has no {name}")
    if "subnet" in columns and table["subnet"].isna().any():
        raise RunError(f"{path} is damaged: a row has no sub-network")
    return table
