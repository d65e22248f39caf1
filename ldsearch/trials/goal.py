"""Goals: the objective of a search and the trial it takes, in one text form that is read and written here.

Objectives: ``score``, ``kl``, ``latency@batch=8,length=128``, ``kl+parameters``.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ldsearch.costs.named import COSTS
from ldsearch.errors import BudgetError, RunError, unknown
from ldsearch.trials.budget import COUNTED, Budget, TimeBudget, batch_and_length
from ldsearch.trials.trial import LossBound, Score, Trial, scored_of

SCORES = ("score", "kl")
_CELL_HELP = "the objective latency needs its batch and length: latency@batch=8,length=128"


class _Least(ABC):
    """A choice by ``--at-least``."""

    @property
    @abstractmethod
    def source(self) -> str:
        """As ``read_least`` reads it."""

    @property
    def text(self) -> str:
        """For messages and tables."""
        return f"at least {self.source}"

    @property
    def options(self) -> dict[str, Any]:
        """The option of the command line that asks for it."""
        return {"at_least": self.source}


@dataclass(frozen=True)
class AtLeast(_Least):
    """The cheapest sub-network, in MACs, that scores no worse than a value (Kim & Cho 2020, Table 1, dagger).

    Args:
        value: The score; None: the full model's.
    """

    value: float | None

    @classmethod
    def parse(cls, text: str) -> "AtLeast":
        """Read a score, or ``full``.

        Raises:
            BudgetError: If it is neither.
        """
        if text.strip().lower() == "full":
            return cls(None)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BudgetError(
                f"cannot read --at-least {text!r}: give a score such as 0.9, full, or full-0.005"
            )
        return cls(value)

    @property
    def source(self) -> str:
        """As ``parse`` reads it."""
        return "full" if self.value is None else f"{self.value:g}"

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take; of equally cheap ones the better.

        Raises:
            BudgetError: If no trial scores so well.
        """
        least = full.score if self.value is None else Score(self.value, full.score.higher_is_better)
        enough = [trial for trial in candidates if trial.score.loss <= least.loss]
        if enough:
            return min(enough, key=lambda t: (t.costs["macs"], t.score.loss))
        best = min(scored_of(candidates), key=lambda t: t.score.loss, default=full)
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks has {full.metric} {self.text} "
            f"({least.value:.4f}): the best has {best.score.value:.4f} at "
            f"{best.costs['macs'] / full.costs['macs']:.3f} of the MACs"
        )


@dataclass(frozen=True)
class NoWorse(_Least):
    """The cheapest sub-network, in MACs, that surely loses less than a margin to the full model.

    Surely: the upper end of a one-sided 95% interval, paired on the examples that choose, lies below the
    margin. A score alone may be as good by luck, and of many that are tried some are.

    Args:
        margin: In the metric's unit, or as a share of the full model's score.
        is_share: Whether it is a share.
    """

    margin: float
    is_share: bool = False

    @property
    def source(self) -> str:
        """As ``read_least`` reads it."""
        return f"full-{100 * self.margin:g}%" if self.is_share else f"full-{self.margin:g}"

    def allowed(self, full: Trial) -> float:
        """The margin in the metric's unit."""
        return self.margin * abs(full.score.value) if self.is_share else self.margin

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take.

        Raises:
            BudgetError: If there is no bound, which takes each example's score, or no trial meets it.
        """
        if bound is None:
            raise BudgetError(f"{self.text} compares example by example: ask ldsearch evolve for it")
        margin = self.allowed(full)
        bounds = {}
        for trial in sorted(scored_of(candidates), key=lambda t: (t.costs["macs"], t.score.loss)):
            bounds[trial.subnet] = 0.0 if trial.subnet == full.subnet else bound(trial.subnet)
            if bounds[trial.subnet] < margin:
                return trial
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks loses less than {margin:.4f} to the full "
            f"model with 95% confidence: the nearest may lose {min(bounds.values(), default=math.nan):.4f}; "
            "more rows that choose would tell more"
        )


def read_least(text: str) -> AtLeast | NoWorse:
    """Read a score, ``full``, or a margin to the full model: ``full-0.005``, ``full-0.5%``.

    Raises:
        BudgetError: If it is none of these.
    """
    margin = re.fullmatch(r"full-([0-9.]+(?:e-?[0-9]+)?)(%?)", text.strip().lower())
    try:
        if margin is None:
            return AtLeast.parse(text)
        value = float(margin[1]) / (100 if margin[2] else 1)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise BudgetError(f"cannot read --at-least {text!r}: give a margin above 0, such as full-0.005")
    return NoWorse(value, bool(margin and margin[2]))


@dataclass(frozen=True)
class MostAccurate:
    """The best score at any cost; of equal scores the cheapest (Kim & Cho 2020, Table 1, star)."""

    text = "most accurate"

    @property
    def options(self) -> dict[str, Any]:
        """The option of the command line that asks for it."""
        return {"most_accurate": True}

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take.

        Raises:
            BudgetError: If no trial has a score.
        """
        scored = scored_of(candidates)
        if not scored:
            raise BudgetError("no sub-network has a score")
        return min(scored, key=lambda t: (t.score.loss, t.costs["macs"]))


@dataclass(frozen=True)
class Goal:
    """The objective of a search, and which of its trials is taken.

    Args:
        score: ``"score"``: the task's; ``"kl"``: the divergence from the full model's outputs.
        costs: Names of the costs that are minimised with it; figures and areas go along the first.
        cell: Batch size and input length of the latency that is predicted; None where none is needed.
        take: Which trial: within a budget, at least a score, or the most accurate; it chooses, and refuses
            with ``BudgetError`` where none will do.
    """

    score: str = "score"
    costs: tuple[str, ...] = ("macs",)
    cell: tuple[int, int] | None = None
    take: Budget | AtLeast | NoWorse | MostAccurate = field(default_factory=MostAccurate)

    @classmethod
    def parse(
        cls,
        objective: str = "score",
        budget: str | None = None,
        at_least: str | None = None,
        most_accurate: bool = False,
        cell: tuple[int, int] | None = None,
    ) -> "Goal":
        """Read what the options ``--objective``, ``--budget``, ``--at-least`` and ``--most-accurate`` say.

        Args:
            objective: A score, a cost or several, joined by ``+``. Left out, the score is ``score``, and the
                cost is latency under a latency budget, else MACs.
            budget: See ``Budget``; a latency budget also gives batch and length of the objective's latency.
            at_least: See ``read_least``.
            most_accurate: The default.
            cell: As of ``Budget.parse``.

        Raises:
            BudgetError: If a budget or score cannot be read, or more than one of the three is given.
            RunError: If the objective names an unknown quantity, two scores, or a latency without its cell.
        """
        given = {
            "--budget": budget is not None,
            "--at-least": at_least is not None,
            "--most-accurate": most_accurate,
        }
        flags = [flag for flag, is_given in given.items() if is_given]
        if len(flags) > 1:
            raise BudgetError(f"{' and '.join(flags)} ask for different sub-networks: give one of them")
        take: Budget | AtLeast | NoWorse | MostAccurate = MostAccurate()
        if budget is not None:
            take = Budget.parse(budget, cell)
        elif at_least is not None:
            take = read_least(at_least)
        limited = take.cell if isinstance(take, TimeBudget) else None
        score, costs, cell = _read_objective(objective, limited)
        return cls(score, costs or (("macs",) if limited is None else ("latency",)), cell, take)

    @property
    def options(self) -> dict[str, Any]:
        """The options that ``parse`` reads as this goal; those with their defaults are left out."""
        terms = [self.score] if self.score != "score" else []
        for cost in self.costs if self.costs != ("macs",) or self.cell else ():
            at = "" if cost != "latency" or self.cell is None else "@batch={},length={}".format(*self.cell)
            terms.append(f"{cost}{at}")
        return {**({"objective": "+".join(terms)} if terms else {}), **self.take.options}

    @property
    def name_parts(self) -> list[str]:
        """Parts of the objective that differ from the default, for names of runs."""
        return [
            *([self.score] if self.score != "score" else []),
            *(self.costs if self.costs != ("macs",) else []),
        ]

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that two runs of one search share, whichever trial is taken; empty for MACs."""
        if self.costs == ("macs",):
            return {}
        return {"costs": list(self.costs), "cell": None if self.cell is None else list(self.cell)}

    @property
    def budget(self) -> Budget | None:
        """The budget, if one limits the choice."""
        return self.take if isinstance(self.take, Budget) else None

    @property
    def in_time(self) -> TimeBudget | None:
        """The budget, if it limits the time of a batch."""
        return self.take if isinstance(self.take, TimeBudget) else None

    def budget_share(self, full_costs: Mapping[str, float]) -> float | None:
        """The budget as a share of the full model's cost; None where it limits another than the first."""
        if self.budget is None or self.budget.cost != self.costs[0]:
            return None
        return self.budget.absolute(full_costs) / full_costs[self.budget.cost]


def _read_objective(
    text: str, limited: tuple[int, int] | None
) -> tuple[str, tuple[str, ...], tuple[int, int] | None]:
    """The score, the costs as far as they are named, and the latency's cell."""
    cells = [] if limited is None else [limited]
    scores, costs = [], []
    for term in text.split("+"):
        name, at, workload = term.strip().partition("@")
        if at and name != "latency":
            raise RunError(f"cannot read the objective {text!r}: only a latency has batch and length")
        if at:
            cell = batch_and_length(at + workload)
            if cell is None:
                raise RunError(_CELL_HELP)
            cells.append(cell)
        if name in SCORES:
            scores.append(name)
        elif name in COUNTED or name in COSTS:
            costs.append(name)
        else:
            known = unknown("objective", name, [*SCORES, *COUNTED, *COSTS])
            raise RunError(f"{known}, or several joined by +")
    if len(scores) > 1 or len(set(costs)) < len(costs):
        raise RunError(f"the objective {text!r} names one thing twice: one score, and each cost once")
    if len(set(cells)) > 1:
        raise RunError(f"the objective {text!r} and the budget ask for latencies of other batches")
    if "latency" in costs and not cells:
        raise RunError(_CELL_HELP)
    return (scores or ["score"])[0], tuple(costs), next(iter(cells), None)
