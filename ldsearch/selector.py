"""Which of the measured sub-networks to take: a budget, a score to hold, or the best score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ldsearch.costs.budget import Budget
from ldsearch.errors import BudgetError
from ldsearch.trial import Score, Trial


class Selector(Protocol):
    """Takes one of the measured sub-networks."""

    @property
    def text(self) -> str:
        """As the command line says it."""

    def choose(self, candidates: Sequence[Trial], full: Trial) -> Trial:
        """The trial to take.

        Args:
            candidates: What may be taken.
            full: The full model.

        Raises:
            BudgetError: If none will do; it says how near the nearest comes.
        """


@dataclass(frozen=True)
class WithinBudget:
    """The best score that the budget pays for; of equal scores the cheaper."""

    budget: Budget

    @property
    def text(self) -> str:
        """The budget's."""
        return f"budget {self.budget.text}"

    def choose(self, candidates: Sequence[Trial], full: Trial) -> Trial:
        """See ``Selector``. With a parameter budget all lengths cost the same: MACs decide then."""
        cost = self.budget.cost
        if cost not in full.costs:
            raise BudgetError(
                f"no {cost} of these sub-networks is known: {self.text} cannot choose among them"
            )
        limit = self.budget.absolute(full.costs)
        scored = [trial for trial in candidates if not math.isnan(trial.score.value)]
        within = [trial for trial in scored if trial.costs[cost] <= limit]
        if within:
            return min(within, key=lambda t: (t.score.loss, t.costs[cost], t.costs["macs"]))
        nearest = min((trial.costs[cost] / full.costs[cost] for trial in scored), default=math.nan)
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks meets the budget {self.budget.text}: "
            f"the cheapest costs {nearest:.3f} of the full model"
        )


@dataclass(frozen=True)
class AtLeast:
    """The cheapest sub-network, in MACs, that scores no worse than a value; None: than the full model."""

    value: float | None

    @property
    def text(self) -> str:
        """As ``--at-least`` takes it."""
        return f"at least {'full' if self.value is None else f'{self.value:g}'}"

    def choose(self, candidates: Sequence[Trial], full: Trial) -> Trial:
        """See ``Selector``. This is the dagger row of Kim & Cho 2020, Table 1."""
        wanted = full.score if self.value is None else Score(self.value, full.score.higher_is_better)
        enough = [trial for trial in candidates if trial.score.loss <= wanted.loss]
        if enough:
            return min(enough, key=lambda t: (t.costs["macs"], t.score.loss))
        scored = [trial for trial in candidates if not math.isnan(trial.score.value)]
        best = min(scored, key=lambda t: t.score.loss, default=full)
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks has {full.metric} {self.text} "
            f"({wanted.value:.4f}): the best has {best.score.value:.4f} at "
            f"{best.costs['macs'] / full.costs['macs']:.3f} of the MACs"
        )


@dataclass(frozen=True)
class MostAccurate:
    """The best score at any cost; of equal scores the cheapest. The star row of Kim & Cho 2020, Table 1."""

    text = "most accurate"

    def choose(self, candidates: Sequence[Trial], full: Trial) -> Trial:
        """See ``Selector``."""
        scored = [trial for trial in candidates if not math.isnan(trial.score.value)]
        if not scored:
            raise BudgetError("no sub-network has a score")
        return min(scored, key=lambda t: (t.score.loss, t.costs["macs"]))


def parse_selector(
    budget: str | None = None, at_least: str | None = None, most_accurate: bool = False
) -> Selector:
    """What the user asked for; nothing asks for the best score at any cost.

    Raises:
        BudgetError: If it cannot be read, or more than one thing is asked for.
    """
    asked = [
        flag
        for flag, given in (
            ("--budget", budget is not None),
            ("--at-least", at_least is not None),
            ("--most-accurate", most_accurate),
        )
        if given
    ]
    if len(asked) > 1:
        raise BudgetError(f"{' and '.join(asked)} ask for different sub-networks: give one of them")
    if budget is not None:
        return WithinBudget(Budget.parse(budget))
    if at_least is None:
        return MostAccurate()
    if at_least.strip().lower() == "full":
        return AtLeast(None)
    try:
        value = float(at_least)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BudgetError(f"cannot read --at-least {at_least!r}: give a score such as 0.9, or full")
    return AtLeast(value)
