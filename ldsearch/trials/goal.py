"""Goals: the objective of a search and the trial it takes, in one text form that is read and written here.

Objectives: ``score``, ``kl``, ``latency@batch=8,length=128``, ``kl+parameters``. Budgets: ``0.4``,
``2.1GMACs``, ``60Mparams``, ``12ms@batch=8,length=128``, ``2x@batch=8,length=128``.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ldsearch.costs.named import COSTS
from ldsearch.errors import BudgetError, RunError, unknown
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Score, Trial

SCORES = ("score", "kl")
# Of a sub-network: the most by which it may be worse than the full model, with 95% and on paired examples.
LossBound = Callable[[Subnet], float]
_COSTS = ("macs", "parameters", "latency")
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_UNITS = {"macs": "macs", "params": "parameters"}
_MILLISECONDS = {"ms": 1.0, "s": 1e3, "us": 1e-3}
_BUDGET_HELP = (
    "use a share of the full model's MACs (0.4), MACs (2.1GMACs), parameters (60Mparams), a latency "
    "(12ms@batch=8,length=128) or how many times as fast as the full model (2x@batch=8,length=128)"
)
_CELL_HELP = "the objective latency needs its batch and length: latency@batch=8,length=128"


@dataclass(frozen=True)
class Budget:
    """The most a sub-network may cost; takes the best score within it, of equal scores the cheaper.

    Args:
        cost: Which cost is limited (``macs``, ``parameters``, ``latency``, or a registered one).
        limit: The limit, in the cost's unit (of a latency milliseconds) or as a share of the full model.
        is_share: Whether ``limit`` is a share.
        source: What the user wrote.
        cell: Of a latency: batch size and tokens of each input.
    """

    cost: str
    limit: float
    is_share: bool
    source: str
    cell: tuple[int, int] | None = None

    @classmethod
    def parse(cls, text: str, cell: tuple[int, int] | None = None) -> "Budget":
        """Read a budget.

        Args:
            text: See above.
            cell: Batch size and length of a speed-up that names none: ``2x``.

        Raises:
            BudgetError: If it is no number above 0 with a known unit, a share above 1, or a speed-up below.
        """
        match = re.fullmatch(r"([0-9.eE+-]+|nan|inf)\s*([a-zA-Z_][\w-]*|)(@.*)?", text.strip())
        try:
            number, unit, condition = match.groups() if match else ("", "", None)
            limit = float(number)
        except ValueError:
            raise BudgetError(f"cannot read the budget {text!r}: {_BUDGET_HELP}") from None
        if not (math.isfinite(limit) and limit > 0):
            raise BudgetError(f"the budget {text!r} must be a positive number: {_BUDGET_HELP}")
        if unit.lower() == "x" or unit.lower() in _MILLISECONDS:
            return cls._of_time(text, limit, unit.lower(), condition, cell)
        if condition:
            raise BudgetError(f"cannot read the budget {text!r}: {_BUDGET_HELP}")
        if not unit and limit > 1:
            raise BudgetError(f"the budget {text!r} is a share of the full model, at most 1: {_BUDGET_HELP}")
        if not unit:
            return cls("macs", limit, True, text)
        for name, cost in {**_UNITS, **{name.lower(): name for name in COSTS}}.items():
            prefix = unit.lower().removesuffix(name)
            if unit.lower().endswith(name) and prefix in _PREFIXES:
                return cls(cost, limit * _PREFIXES[prefix], False, text)
        added = "".join(f", or {name}" for name in COSTS)
        raise BudgetError(f"unknown unit in the budget {text!r}: {_BUDGET_HELP}{added}")

    @classmethod
    def _of_time(
        cls, text: str, limit: float, unit: str, condition: str | None, cell: tuple[int, int] | None
    ) -> "Budget":
        speed_up = unit == "x"
        own = cell if speed_up and condition is None else _batch_and_length(condition or "")
        if own is None:
            which = "speed-up" if speed_up else "latency"
            raise BudgetError(f"the {which} {text!r} needs its batch and length: {_BUDGET_HELP}")
        if not speed_up:
            return cls("latency", limit * _MILLISECONDS[unit], False, text, own)
        if limit < 1:
            raise BudgetError(f"the budget {text!r} would be slower than the full model: {_BUDGET_HELP}")
        return cls("latency", 1 / limit, True, f"{limit:g}x@batch={own[0]},length={own[1]}", own)

    @property
    def text(self) -> str:
        """For messages and tables."""
        return f"budget {self.source}"

    @property
    def options(self) -> dict[str, Any]:
        """The option of the command line that asks for it."""
        return {"budget": self.source}

    def absolute(self, full_costs: Mapping[str, float]) -> float:
        """The limit in the cost's own unit, given what the full model costs."""
        return self.limit * full_costs[self.cost] if self.is_share else self.limit

    def check_reachable(
        self,
        cheapest_costs: Mapping[str, float],
        full_costs: Mapping[str, float],
        cheapest: str,
        otherwise: str = "",
    ) -> None:
        """Refuse a budget that not even the cheapest sub-network meets.

        Raises:
            BudgetError: Naming the cheapest sub-network and what it costs.
        """
        least = cheapest_costs[self.cost]
        if least > self.absolute(full_costs):
            share = least / full_costs[self.cost]
            number = f"{least:,.0f}" if self.cost in _COSTS else f"{least:.4g}"
            amount = f"{least:.2f} ms" if self.cost == "latency" else f"{number} {self.cost}"
            hint = f"; {otherwise}" if otherwise else ""
            if share == 1 and self.cost == "parameters":
                hint = "; only fewer blocks have fewer parameters: --genes depth"
            raise BudgetError(
                f"no sub-network meets the budget {self.source}: the cheapest ({cheapest}) costs "
                f"{share:.4f} of the full model ({amount}){hint}"
            )

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take. Under a parameter budget all lengths cost the same: MACs break the tie.

        Raises:
            BudgetError: If no trial is within the budget, or its cost was not measured.
        """
        cost = self.cost
        if any(cost not in trial.costs for trial in (full, *candidates)):
            raise BudgetError(
                f"the {cost} of these sub-networks is not known: {self.text} cannot choose among them"
            )
        limit = self.absolute(full.costs)
        scored = _scored(candidates)
        within = [trial for trial in scored if trial.costs[cost] <= limit]
        if within:
            return min(within, key=lambda t: (t.score.loss, t.costs[cost], t.costs["macs"]))
        nearest = min((trial.costs[cost] / full.costs[cost] for trial in scored), default=math.nan)
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks meets the budget {self.source}: "
            f"the cheapest costs {nearest:.3f} of the full model"
        )


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
        best = min(_scored(candidates), key=lambda t: t.score.loss, default=full)
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
        for trial in sorted(_scored(candidates), key=lambda t: (t.costs["macs"], t.score.loss)):
            bounds[trial.subnet] = 0.0 if trial.subnet == full.subnet else bound(trial.subnet)
            if bounds[trial.subnet] < margin:
                return trial
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks surely loses less than {margin:.4f} to the "
            f"full model: the nearest may lose {min(bounds.values(), default=math.nan):.4f}; more rows that "
            "choose would tell more"
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
        scored = _scored(candidates)
        if not scored:
            raise BudgetError("no sub-network has a score")
        return min(scored, key=lambda t: (t.score.loss, t.costs["macs"]))


def _scored(candidates: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in candidates if not math.isnan(trial.score.value)]


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
            cell: Batch size and length of a budget that names none: ``2x``.

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
        limited = take.cell if isinstance(take, Budget) else None
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
            cell = _batch_and_length(at + workload)
            if cell is None:
                raise RunError(_CELL_HELP)
            cells.append(cell)
        if name in SCORES:
            scores.append(name)
        elif name in _COSTS or name in COSTS:
            costs.append(name)
        else:
            known = unknown("objective", name, [*SCORES, *_COSTS, *COSTS])
            raise RunError(f"{known}, or several joined by +")
    if len(scores) > 1 or len(set(costs)) < len(costs):
        raise RunError(f"the objective {text!r} names one thing twice: one score, and each cost once")
    if len(set(cells)) > 1:
        raise RunError(f"the objective {text!r} and the budget ask for latencies of other batches")
    if "latency" in costs and not cells:
        raise RunError(_CELL_HELP)
    return (scores or ["score"])[0], tuple(costs), next(iter(cells), None)


def _batch_and_length(condition: str) -> tuple[int, int] | None:
    """``"@batch=8,length=128"`` as (8, 128); None for anything else."""
    match = re.fullmatch(r"@batch=([1-9]\d*),length=([1-9]\d*)", condition)
    return None if match is None else (int(match[1]), int(match[2]))
