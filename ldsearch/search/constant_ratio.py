"""Constant ratio: the same share of tokens leaves every block (Kim & Cho 2020, Sec. 3.2)."""

import numpy as np

from ldsearch.search.listed import Listed
from ldsearch.search.loop import CostFunction
from ldsearch.space import EvolvingSpace
from ldsearch.subnet import Subnet


def constant_ratio_line(space: EvolvingSpace, cost: CostFunction, count: int) -> list[Subnet]:
    """Up to ``count`` of the space's regular configurations, their costs evenly spread.

    Of lengths those are the constant-ratio configurations; of depths too, each at every depth with its
    blocks evenly spaced.

    Args:
        space: Where the configurations come from.
        cost: The cost to spread.
        count: How many; fewer where the grid is too coarse to tell them apart.

    Returns:
        Cheapest first; the space's smallest and largest included.
    """
    subnets = list(dict.fromkeys([space.smallest(), *space.regular(), space.largest()]))
    costs = cost(subnets)
    usable = np.flatnonzero(costs >= costs[0])
    subnets, costs = [subnets[i] for i in usable], costs[usable]
    targets = np.linspace(costs.min(), costs.max(), count)
    nearest = dict.fromkeys(int(np.abs(costs - target).argmin()) for target in targets)
    return [subnets[i] for i in nearest]


class ConstantRatio(Listed):
    """Proposes the line of the space's regular configurations, once.

    Args:
        space: Where the configurations come from.
        cost: The cost to spread.
        count: How many.
        name: For reports: of other spaces than lengths the line is no constant ratio alone.
    """

    def __init__(
        self, space: EvolvingSpace, cost: CostFunction, count: int, name: str = "constant-ratio"
    ) -> None:
        super().__init__(name, constant_ratio_line(space, cost, count))
