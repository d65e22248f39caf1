"""Constant ratio: the same share of tokens leaves every block (Kim & Cho 2020, Sec. 3.2)."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ldsearch.length_drop import constant_ratio_lengths
from ldsearch.length_space import LengthSpace
from ldsearch.search.loop import CostFunction
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

_STEPS = 400  # candidate rates between 0 and the smallest configuration's


def constant_ratio_line(space: LengthSpace, cost: CostFunction, count: int) -> list[Subnet]:
    """Up to ``count`` constant-ratio configurations of the space, their costs evenly spread.

    Lengths are raised to the space's levels and pinned as the space pins, so that the line and a search
    of the same space are compared on equal terms.

    Args:
        space: Where the configurations come from.
        cost: The cost to spread.
        count: How many; fewer where the grid is too coarse to tell them apart.

    Returns:
        Cheapest first; the space's smallest and largest included.
    """
    rates = [Fraction(step, _STEPS) for step in range(_STEPS)]
    vectors = dict.fromkeys(
        space.snap(constant_ratio_lengths(space.reference, space.blocks, rate)) for rate in rates
    )
    subnets = list(dict.fromkeys([space.smallest(), *reversed(vectors), space.largest()]))
    costs = cost(subnets)
    usable = np.flatnonzero(costs >= costs[0])
    subnets, costs = [subnets[i] for i in usable], costs[usable]
    targets = np.linspace(costs.min(), costs.max(), count)
    nearest = dict.fromkeys(int(np.abs(costs - target).argmin()) for target in targets)
    return [subnets[i] for i in nearest]


class ConstantRatio:
    """Proposes the constant-ratio line, once.

    Args:
        space: Where the configurations come from.
        cost: The cost to spread.
        count: How many.
    """

    name = "constant-ratio"

    def __init__(self, space: LengthSpace, cost: CostFunction, count: int) -> None:
        self.subnets = constant_ratio_line(space, cost, count)

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The line in generation 0, then nothing."""
        return self.subnets if generation == 0 else []
