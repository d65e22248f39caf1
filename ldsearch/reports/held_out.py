"""A frontier scored once more, on rows that chose nothing: intervals, optimism, gains over the controls.

A search reports the best of many noisy scores, so its own scores flatter it. The numbers here do not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

from ldsearch.reports.tables import COST_WORDS, trials_table
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import (
    Interval,
    OfMeans,
    Statistics,
    Term,
    bootstrap,
    paired_bootstrap,
    score_of,
    simultaneous,
    surely_above,
)
from ldsearch.trials.pareto import staircase_weights
from ldsearch.trials.trial import Trial

StatisticsOf = Callable[[Subnet], Statistics]

# Columns of frontier.csv in addition to those of a trial.
HELD_OUT_COLUMNS: Mapping[str, str] = {
    "held_out_split": "split that nothing was chosen by",
    "held_out_examples": "its examples",
    "held_out_score": "score of the same sub-network there",
    "difference": "its `held_out_score` minus the full model's",
    "difference_low": "lower end of the 95% paired bootstrap interval of `difference`",
    "difference_high": "upper end of it",
}


@dataclass(frozen=True)
class HeldOutRow:
    """A frontier point on the held-out split.

    Args:
        trial: As the search measured it.
        score: Its score on the held-out split.
        difference: Held-out score minus the full model's.
        band: The same, with the interval that holds for all frontier points at once.
        step: Held-out score minus that of the next cheaper frontier point, with the interval that holds for
            all steps at once; None for the cheapest.
    """

    trial: Trial
    score: float
    difference: Interval
    band: Interval
    step: Interval | None


@dataclass(frozen=True)
class HeldOut:
    """A frontier on the held-out split.

    Args:
        split: Its name.
        full: The full model, as the search measured it.
        full_score: The full model's score on the held-out split.
        rows: The frontier, cheapest first.
        area: Mean held-out score over the cost range, where the search's own scores make the choice at
            each cost; NaN where the frontier spans no range.
        gains: Per control, ``area`` minus the control's, in the direction of better.
        cost: The cost that the frontier and the area go along.
        controls: Per control, the scores of its frontier on the held-out split.
    """

    split: str
    full: Trial
    full_score: float
    rows: tuple[HeldOutRow, ...]
    area: float
    gains: Mapping[str, Interval]
    cost: str = "macs"
    controls: Mapping[str, Mapping[Subnet, float]] = field(default_factory=dict)

    @property
    def optimism(self) -> float:
        """The optimism of the frontier on the rows that chose it; above 0 if the search flatters itself.

        Mean over the frontier of (score - full score) on the choosing split minus the same held out, in the
        direction of better.
        """
        searched, held_out = self._gains_over_full()
        return (searched - held_out) * (1 if self.full.score.higher_is_better else -1)

    def describe(self) -> list[str]:
        """State the numbers, one sentence each."""
        sentences = []
        full = self.full.costs[self.cost]
        share = {row.trial.subnet: f"{row.trial.costs[self.cost] / full:.3f}" for row in self.rows}
        if points := self._points:
            searched, held_out = self._gains_over_full()
            sentences.append(
                f"optimism: relative to the full model, the frontier's mean {self.full.metric} is "
                f"{searched:+.4f} on the {self.full.split} split, which chose it, and "
                f"{held_out:+.4f} on the {self.split} split"
            )
            alike = [row for row in points if not _significant(row.band)]
            higher = self.full.score.higher_is_better
            worst = max((-row.band.low if higher else row.band.high for row in alike), default=0.0)
            shares = ", ".join(share[row.trial.subnet] for row in alike)
            sentences.append(
                f"{len(alike)} of {len(points)} frontier points do not differ significantly from the full "
                f"model on {points[0].band.examples} rows, and are at most {worst:.4f} worse (95%, all at "
                f"once): {shares} of its {COST_WORDS.get(self.cost, self.cost)}"
                if alike
                else f"all {len(points)} frontier points differ significantly from the full model"
            )
        if (steps := len(self.rows) - 1) > 0:
            clear = [
                f"{share[a.trial.subnet]} to {share[b.trial.subnet]}"
                for a, b in pairwise(self.rows)
                if b.step and _significant(b.step)
            ]
            sentences.append(
                f"{len(clear)} of {steps} steps along the frontier are significant: {', '.join(clear)}"
                if clear
                else f"none of the {steps} steps from one frontier point to the next is significant"
            )
        for name, gain in self.gains.items():
            verdict = "" if _significant(gain) else ": not significant"
            sentences.append(
                f"area over {name}, with no more evaluations, on the {self.split} split: {gain.mean:+.4f} "
                f"(95% interval over rows {gain.low:+.4f} to {gain.high:+.4f}; one seed of each){verdict}"
            )
        return sentences

    @property
    def _points(self) -> list[HeldOutRow]:
        """The frontier without the full model."""
        return [row for row in self.rows if row.trial.subnet != self.full.subnet]

    def _gains_over_full(self) -> tuple[float, float]:
        """Mean over the frontier of score - full score: on the choosing split, and held out."""
        if not self._points:
            return 0.0, 0.0
        searched = [row.trial.score.value - self.full.score.value for row in self._points]
        held_out = [row.score - self.full_score for row in self._points]
        return float(np.mean(searched)), float(np.mean(held_out))


def hold_out(
    frontier: Sequence[Trial],
    full: Trial,
    split: str,
    statistics_of: StatisticsOf,
    controls: Mapping[str, Sequence[Trial]] | None = None,
    of_means: OfMeans | None = None,
    cost: str = "macs",
) -> HeldOut:
    """Score a frontier on rows that chose nothing.

    Args:
        frontier: Non-dominated trials and what was chosen, cheapest first.
        full: The full model's trial.
        split: Name of the held-out split.
        statistics_of: Per-example statistics of a sub-network there, shape (examples,) or
            (examples, parts).
        controls: Frontiers of the controls, by name.
        of_means: Turns means of statistics into scores (``ldsearch.trials.intervals``); None: the mean is
            the score.
        cost: The cost that frontier and area go along.
    """
    full_statistics = statistics_of(full.subnet)
    statistics = [statistics_of(trial.subnet) for trial in frontier]
    # The full model itself differs from itself by nothing, and is no comparison.
    points = [index for index, trial in enumerate(frontier) if trial.subnet != full.subnet]
    against = [[(1.0, statistics[index]), (-1.0, full_statistics)] for index in points]
    bands = dict(zip(points, simultaneous(against, of_means), strict=True))
    steps = simultaneous([[(1.0, b), (-1.0, a)] for a, b in pairwise(statistics)], of_means)
    rows = []
    for index, (trial, own, step) in enumerate(zip(frontier, statistics, [None, *steps], strict=True)):
        difference = paired_bootstrap(own, full_statistics, of_means=of_means)
        band = bands.get(index, difference)
        rows.append(HeldOutRow(trial, score_of([(1.0, own)], of_means), difference, band, step))
    full_score = score_of([(1.0, full_statistics)], of_means)
    fronts = {name: front for name, front in (controls or {}).items() if front}
    others = {
        name: {trial.subnet: score_of([(1.0, statistics_of(trial.subnet))], of_means) for trial in front}
        for name, front in fronts.items()
    }
    low = max(front[0].costs[cost] for front in (frontier, *fronts.values()))
    high = full.costs[cost]
    if not low < high:
        return HeldOut(split, full, full_score, tuple(rows), float("nan"), {}, cost, others)
    area = area_terms(frontier, statistics_of, low, high, cost)
    sign = 1 if full.score.higher_is_better else -1
    gains = {}
    for name, front in fronts.items():
        other = area_terms(front, statistics_of, low, high, cost)
        terms = [(sign * weight, rows) for weight, rows in area]
        terms += [(-sign * weight, rows) for weight, rows in other]
        gains[name] = bootstrap(terms, of_means)
    return HeldOut(split, full, full_score, tuple(rows), score_of(area, of_means), gains, cost, others)


def significant_gains(
    frontier: Sequence[Trial], statistics_of: StatisticsOf, of_means: OfMeans | None = None
) -> list[Trial]:
    """The points of a frontier whose gains over a cheaper one are significant.

    The cheapest, then each time the next one that is significantly better than the one before, by paired
    intervals that hold for all pairs at once: what lies between costs more, and the rows show no gain.

    Args:
        frontier: Cheapest first.
        statistics_of: Per-example statistics of a sub-network, as for ``hold_out``.
        of_means: As for ``hold_out``.
    """
    above = surely_above([statistics_of(trial.subnet) for trial in frontier], of_means)
    better = above if frontier[0].score.higher_is_better else above.T
    kept = [0]
    for at in range(1, len(frontier)):
        if better[at, kept[-1]]:
            kept.append(at)
    return [frontier[at] for at in kept]


def area_terms(
    trials: Sequence[Trial], statistics_of: StatisticsOf, low: float, high: float, cost: str = "macs"
) -> list[Term]:
    """The area under the choices that the trials' own scores make, as a weighted sum of scores.

    Returns:
        The share of the cost range that each choice covers, and its statistics. Where a score is a mean,
        their ``weighted_sum`` is each example's part in the area, shape (examples,).
    """
    weights = staircase_weights(
        [trial.costs[cost] for trial in trials], [-trial.score.loss for trial in trials], low, high
    )
    used = zip(weights.tolist(), trials, strict=True)
    return [(weight, statistics_of(trial.subnet)) for weight, trial in used if weight]


def held_out_table(held: HeldOut) -> pd.DataFrame:
    """One row per frontier point, the columns of ``HELD_OUT_COLUMNS``."""
    rows = [
        {
            "held_out_split": held.split,
            "held_out_examples": row.difference.examples,
            "held_out_score": row.score,
            "difference": row.difference.mean,
            "difference_low": row.difference.low,
            "difference_high": row.difference.high,
        }
        for row in held.rows
    ]
    return pd.DataFrame(rows, columns=list(HELD_OUT_COLUMNS))


def controls_table(
    controls: Mapping[str, Sequence[Trial]], held: HeldOut | None, costs: Sequence[str]
) -> pd.DataFrame:
    """The controls' trials; those of a control's frontier also with their ``held_out_score``.

    Args:
        controls: Trials by the control's name.
        held: None: there are no other rows, and no such column.
        costs: Names of the costs that were minimised.
    """
    tables = []
    for name, trials in controls.items():
        table = trials_table(trials, name, costs)
        if held is not None:
            scores = held.controls.get(name, {})
            table["held_out_score"] = [scores.get(trial.subnet, float("nan")) for trial in trials]
        tables.append(table)
    return pd.concat(tables)


def _significant(interval: Interval) -> bool:
    """Whether the interval excludes 0."""
    return interval.low > 0 or interval.high < 0
