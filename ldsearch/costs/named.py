"""Registry of additional costs: measured joules, a price, any number per sub-network."""

from collections.abc import Callable
from typing import Any

from ldsearch.costs.macs import Cost
from ldsearch.costs.workload import Workload
from ldsearch.errors import LdsearchError
from ldsearch.registry import Registry

# From a supernet (``ldsearch.supernet.Supernet``) and the lengths of the rows that choose.
MakeCost = Callable[[Any, Workload], Cost]

# What every trial has, or may have, without anybody adding it.
OWN = ("macs", "padded_macs", "parameters", "latency")

COSTS: Registry[MakeCost] = Registry("costs", {})


def added_costs(supernet: Any, workload: Workload) -> tuple[Cost, ...]:
    """Every registered cost of a supernet.

    Raises:
        LdsearchError: If one is not called what it was registered as, or as one of ours.
    """
    costs = []
    for name, make in COSTS.items():
        cost = make(supernet, workload)
        if cost.name != name or name in OWN:
            raise LdsearchError(
                f"the cost registered as {name!r} calls itself {cost.name!r}: both must be one name, "
                f"and none of {', '.join(OWN)}"
            )
        costs.append(cost)
    return tuple(costs)
