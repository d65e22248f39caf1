"""Budgets as users write them: 0.4, 2.1GMACs, 60Mparams, 12ms@batch=8,length=128."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ldsearch.costs.named import COSTS
from ldsearch.errors import BudgetError

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_UNITS = {"macs": "macs", "params": "parameters"}
_MILLISECONDS = {"ms": 1.0, "s": 1e3, "us": 1e-3}
_HELP = (
    "use a share of the full model's MACs (0.4), MACs (2.1GMACs), parameters (60Mparams) or a latency "
    "(12ms@batch=8,length=128)"
)


@dataclass(frozen=True)
class Budget:
    """The most a sub-network may cost.

    Args:
        cost: Which cost is limited (``macs``, ``parameters``, ``latency``, or one that was registered).
        limit: The limit, in the cost's unit (of a latency milliseconds) or as a share of the full model.
        is_share: Whether ``limit`` is a share.
        text: What the user wrote.
        batch: Of a latency: examples at once.
        length: Of a latency: their tokens.
    """

    cost: str
    limit: float
    is_share: bool
    text: str
    batch: int = 0
    length: int = 0

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a budget.

        Raises:
            BudgetError: If it is no number above 0 with a known unit, or a share above 1.
        """
        match = re.fullmatch(r"([0-9.eE+-]+|nan|inf)\s*([a-zA-Z]*)(@.*)?", text.strip())
        if match is None:
            raise BudgetError(f"cannot read the budget {text!r}: {_HELP}")
        number, unit, condition = match.groups()
        try:
            limit = float(number)
        except ValueError as error:
            raise BudgetError(f"cannot read the budget {text!r}: {_HELP}") from error
        if not (math.isfinite(limit) and limit > 0):
            raise BudgetError(f"the budget {text!r} must be a positive number: {_HELP}")
        if unit.lower() in _MILLISECONDS:
            return cls._of_latency(text, limit * _MILLISECONDS[unit.lower()], condition or "")
        if condition:
            raise BudgetError(f"cannot read the budget {text!r}: {_HELP}")
        if not unit:
            if limit > 1:
                raise BudgetError(f"the budget {text!r} is a share of the full model, at most 1: {_HELP}")
            return cls("macs", limit, True, text)
        for name, cost in (*_UNITS.items(), *((own, own) for own in COSTS)):
            prefix = unit.lower().removesuffix(name)
            if unit.lower().endswith(name) and prefix in _PREFIXES:
                return cls(cost, limit * _PREFIXES[prefix], False, text)
        raise BudgetError(f"unknown unit in the budget {text!r}: {_HELP}")

    @classmethod
    def _of_latency(cls, text: str, milliseconds: float, condition: str) -> "Budget":
        cell = batch_and_length(condition)
        if cell is None:
            raise BudgetError(f"the latency {text!r} needs its batch and length: {_HELP}")
        return cls("latency", milliseconds, False, text, *cell)

    def absolute(self, full_costs: Mapping[str, float]) -> float:
        """The limit in the cost's own unit, given what the full model costs."""
        return self.limit * full_costs[self.cost] if self.is_share else self.limit

    def check_reachable(
        self, cheapest_costs: Mapping[str, float], full_costs: Mapping[str, float], cheapest: str
    ) -> None:
        """Refuse a budget that not even the cheapest sub-network meets.

        Raises:
            BudgetError: Naming the cheapest sub-network and what it costs.
        """
        least = cheapest_costs[self.cost]
        if least > self.absolute(full_costs):
            share = least / full_costs[self.cost]
            amount = f"{least:.2f} ms" if self.cost == "latency" else f"{least:,.0f} {self.cost}"
            hint = "; only fewer blocks have fewer parameters: select --strategy every-other"
            raise BudgetError(
                f"no sub-network meets the budget {self.text}: the cheapest ({cheapest}) costs "
                f"{share:.4f} of the full model ({amount})"
                f"{hint if share == 1 and self.cost == 'parameters' else ''}"
            )


def batch_and_length(condition: str) -> tuple[int, int] | None:
    """``"@batch=8,length=128"`` as (8, 128); None for anything else."""
    found = re.fullmatch(r"@batch=([1-9]\d*),length=([1-9]\d*)", condition)
    return None if found is None else (int(found[1]), int(found[2]))
