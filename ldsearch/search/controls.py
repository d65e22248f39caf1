"""Controls: what any search has to beat with as many evaluations."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldsearch.search.loop import StrategyContext
from ldsearch.search.rules import Listed
from ldsearch.subnet import Subnet

_POOL = 50  # uniform draws per proposal, so that every part of the cost range has some


def constant_ratio_line(context: StrategyContext, count: int) -> list[Subnet]:
    """Up to ``count`` of the space's regular configurations, their costs evenly spread.

    Of lengths those are the constant-ratio configurations; of depths too, each at every depth with its
    blocks evenly spaced.

    Args:
        context: The space, and the cost to spread.
        count: How many; fewer where the grid is too coarse to tell them apart.

    Returns:
        Cheapest first; the space's smallest and largest included.
    """
    space = context.space
    subnets = list(dict.fromkeys([space.smallest(), *space.regular(), space.largest()]))
    subnets = [subnet for subnet, use in zip(subnets, context.allowed(subnets), strict=True) if use]
    costs = context.cost(subnets)
    targets = np.linspace(costs.min(), costs.max(), count)
    nearest = dict.fromkeys(int(np.abs(costs - target).argmin()) for target in targets)
    return [subnets[i] for i in nearest]


def constant_ratio(context: StrategyContext) -> Listed:
    """A strategy that proposes the line of the space's regular configurations (``constant_ratio_line``).

    Where more than lengths is chosen it is called ``"regular"``: it is no constant ratio alone.

    Args:
        context: The space, the cost to spread, and how many evaluations, the full model's not included.
    """
    name = "constant-ratio" if context.space.varies == ("lengths",) else "regular"
    return Listed(name, constant_ratio_line(context, context.evaluations - 1))


def random_search(context: StrategyContext) -> Listed:
    """A strategy that proposes uniform draws from the space, their costs spread evenly; all at once.

    Uniform draws alone crowd in the middle of the cost range. The space's two ends are proposed too, as
    the constant-ratio line that an evolution starts from has them.

    Args:
        context: Space, cost, seed, and how many evaluations, the full model's not included.
    """
    space, cost, count = context.space, context.cost, context.evaluations - 1
    rng = np.random.default_rng([context.seed, 0])
    ends = list(dict.fromkeys([space.smallest(), space.largest()]))
    drawn = dict.fromkeys(space.sample(rng) for _ in range(_POOL * count))
    pool = [subnet for subnet in drawn if subnet not in ends]
    pool = [subnet for subnet, use in zip(pool, context.allowed(pool), strict=True) if use]
    costs = cost(pool) if pool else np.array([])
    low, high = cost(ends)[[0, -1]]
    wanted = max(0, min(count - len(ends), len(pool)))
    # One draw from each of as many equal parts of the cost range.
    targets = low + (high - low) * (np.arange(wanted) + rng.random(wanted)) / max(1, wanted)
    chosen = [pool[index] for index in nearest_costs(costs, targets)]
    return Listed("random", list(dict.fromkeys([*ends[:count], *chosen])))


def nearest_costs(costs: ArrayLike, targets: Sequence[float] | NDArray[np.float64]) -> list[int]:
    """For one target after the other the index of the nearest cost that is left; none twice.

    Args:
        costs: Shape (sub-networks,).
        targets: Shape (targets,); those beyond the number of costs get none.
    """
    left, chosen = np.array(costs, dtype=np.float64), []
    for target in targets[: len(left)]:
        chosen.append(int(np.abs(left - target).argmin()))
        left[chosen[-1]] = np.inf
    return chosen
