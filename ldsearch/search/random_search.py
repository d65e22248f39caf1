"""Random search: the control that any search has to beat with as many evaluations."""

from collections.abc import Sequence

import numpy as np

from ldsearch.search.loop import CostFunction
from ldsearch.space import SearchSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

_POOL = 50  # uniform draws per proposal, so that every part of the cost range has some


class RandomSearch:
    """Proposes uniform draws from the space, their costs spread evenly; all of them at once.

    Uniform draws alone crowd in the middle of the cost range. The space's two ends are proposed too, as
    the constant-ratio line that an evolution starts from has them.

    Args:
        space: Where the draws come from.
        cost: The cost to spread.
        seed: Of the draws.
        count: How many proposals.
    """

    name = "random"

    def __init__(self, space: SearchSpace, cost: CostFunction, seed: int, count: int) -> None:
        self.space = space
        self.cost = cost
        self.seed = seed
        self.count = count

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """Everything in generation 0, then nothing."""
        if generation > 0:
            return []
        rng = np.random.default_rng([self.seed, generation])
        ends = list(dict.fromkeys([self.space.smallest(), self.space.largest()]))
        drawn = (self.space.sample(rng) for _ in range(_POOL * self.count))
        costs = self.cost(ends)
        low, high = costs[0], costs[-1]
        pool = [subnet for subnet in dict.fromkeys(drawn) if subnet not in ends]
        costs = self.cost(pool) if pool else np.array([])
        pool = [subnet for subnet, cost in zip(pool, costs, strict=True) if cost >= low]
        costs = costs[costs >= low]
        wanted = max(0, min(self.count - len(ends), len(pool)))
        chosen: list[Subnet] = []
        # One draw from each of as many equal parts of the cost range: the nearest that is left.
        for target in low + (high - low) * (np.arange(wanted) + rng.random(wanted)) / max(1, wanted):
            nearest = int(np.abs(costs - target).argmin())
            chosen.append(pool[nearest])
            costs[nearest] = np.inf
        return list(dict.fromkeys([*ends[: self.count], *chosen]))
