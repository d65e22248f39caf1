"""Budgets: the most that a sub-network may cost, in one text form that is read and written here.

``0.4``, ``2.1GMACs``, ``60Mparams``, ``12ms@batch=8,length=128``, ``2x@batch=8,length=128``.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ldsearch.costs.named import COSTS
from ldsearch.errors import BudgetError
from ldsearch.trials.trial import LossBound, Trial, scored_of

COUNTED = ("macs", "parameters", "latency")
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_UNITS = {"macs": "macs", "params": "parameters"}
_MILLISECONDS = {"ms": 1.0, "s": 1e3, "us": 1e-3}
_BUDGET_HELP = (
    "use a share of the full model's MACs (0.4), MACs (2.1GMACs), parameters (60Mparams), a latency "
    "(12ms@batch=8,length=128) or how many times as fast as the full model (2x@batch=8,length=128)"
)


def batch_and_length(condition: str, default: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """``"@batch=8,length=128"`` as (8, 128); what is left out is the default's; None for anything else."""
    number = r"([1-9]\d*)"
    match = re.fullmatch(rf"@batch={number},length={number}|@batch={number}|@length={number}|", condition)
    if match is None or (match[1] is None and default is None):
        return None
    batch, length = default or (0, 0)
    return int(match[1] or match[3] or batch), int(match[2] or match[4] or length)


@dataclass(frozen=True)
class Budget:
    """The most a sub-network may cost; takes the best score within it, of equal scores the cheaper.

    Args:
        cost: Which cost is limited (``macs``, ``parameters``, ``latency``, or a registered one).
        limit: The limit, in the cost's unit (of a latency milliseconds) or as a share of the full model.
        is_share: Whether ``limit`` is a share.
        source: What the user wrote.
    """

    cost: str
    limit: float
    is_share: bool
    source: str

    @classmethod
    def parse(cls, text: str, cell: tuple[int, int] | None = None) -> "Budget":
        """Read a budget.

        Args:
            text: See above.
            cell: Batch size and length where a time or a speed-up names none: ``2x``, ``2x@batch=1``.

        Raises:
            BudgetError: If it is no number above 0 with a known unit, a share above 1, or a speed-up below.
        """
        numbers = r"[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|nan|inf)"
        match = re.fullmatch(rf"({numbers})\s*([a-zA-Z_][\w-]*|)(@.*)?", text.strip())
        try:
            number, unit, condition = match.groups() if match else ("", "", None)
            limit = float(number)
        except ValueError:
            raise BudgetError(f"cannot read the budget {text!r}: {_BUDGET_HELP}") from None
        if not (math.isfinite(limit) and limit > 0):
            raise BudgetError(f"the budget {text!r} must be a positive number: {_BUDGET_HELP}")
        if unit.lower() == "x" or unit.lower() in _MILLISECONDS:
            return _of_time(text, limit, unit.lower(), condition, cell)
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
        """Refuse a budget that neither the cheapest sub-network nor the full model meets.

        By predicted milliseconds the full model may be the faster one; it is always measured.

        Raises:
            BudgetError: Naming the cheapest sub-network and what it costs.
        """
        least = cheapest_costs[self.cost]
        if min(least, full_costs[self.cost]) > self.absolute(full_costs):
            share = least / full_costs[self.cost]
            number = f"{least:,.0f}" if self.cost in COUNTED else f"{least:.4g}"
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
        scored = scored_of(candidates)
        within = [trial for trial in scored if trial.costs[cost] <= limit]
        if within:
            return min(within, key=lambda t: (t.score.loss, t.costs[cost], t.costs["macs"]))
        nearest = min((trial.costs[cost] / full.costs[cost] for trial in scored), default=math.nan)
        raise BudgetError(
            f"none of the {len(candidates)} measured sub-networks meets the budget {self.source}: "
            f"the cheapest costs {nearest:.3f} of the full model"
        )


@dataclass(frozen=True)
class TimeBudget(Budget):
    """The most milliseconds that a batch may take, or as a share of the full model's.

    Args:
        cell: Batch size and tokens of each input.
    """

    cell: tuple[int, int]


def _of_time(
    text: str, limit: float, unit: str, condition: str | None, cell: tuple[int, int] | None
) -> TimeBudget:
    speed_up = unit == "x"
    own = batch_and_length(condition or "", cell)
    if own is None:
        which = "speed-up" if speed_up else "latency"
        raise BudgetError(f"the {which} {text!r} needs its batch and length: {_BUDGET_HELP}")
    source = "{}@batch={},length={}".format(text.partition("@")[0].strip(), *own)
    if not speed_up:
        return TimeBudget("latency", limit * _MILLISECONDS[unit], False, source, own)
    if limit < 1:
        raise BudgetError(f"the budget {text!r} would be slower than the full model: {_BUDGET_HELP}")
    return TimeBudget("latency", 1 / limit, True, source, own)
