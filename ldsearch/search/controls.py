"""Controls: what any search has to beat with as many evaluations."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldsearch.search.loop import StrategyContext
from ldsearch.search.rules import Listed
from ldsearch.space.lengths import Shape
from ldsearch.subnet import Subnet
from ldsearch.supernet.heads import Head

_POOL = 50  # uniform draws per proposal, so that every part of the cost range has some


def shape_for(head: Head, reads_first: bool) -> Shape:
    """The shape of regular lengths that suits a model's head."""
    if reads_first:
        return Shape.EVEN
    return Shape.EARLY if head.embeds else Shape.LATE


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
    return _line(context, Shape.EVEN, count)


def regular_line(context: StrategyContext, count: int) -> list[Subnet]:
    """As ``constant_ratio_line``, in the context's shape."""
    return _line(context, context.shape, count)


def start_line(context: StrategyContext, count: int) -> list[Subnet]:
    """Up to ``count`` regular configurations that a search starts from, each shape's costs evenly spread.

    Constant ratios; where another shape suits the head, half of them have that.
    """
    own = count if context.shape is Shape.EVEN else count - count // 2
    return list(
        dict.fromkeys([*_line(context, Shape.EVEN, own), *_line(context, context.shape, count - own)])
    )


def dearest(context: StrategyContext, limit: float) -> list[Subnet]:
    """The regular configuration of the context's shape that costs most within a limit; [] if none does."""
    subnets = _pool(context, context.shape)
    costs = context.cost(subnets)
    within = np.flatnonzero(costs <= limit)
    return [subnets[within[costs[within].argmax()]]] if len(within) else []


def _pool(context: StrategyContext, shape: Shape) -> list[Subnet]:
    """The regular configurations of a shape that may be proposed, and the space's ends."""
    space = context.space
    subnets = list(dict.fromkeys([space.smallest(), *space.regular(shape), space.largest()]))
    return [subnet for subnet, use in zip(subnets, context.allowed(subnets), strict=True) if use]


def _line(context: StrategyContext, shape: Shape, count: int) -> list[Subnet]:
    if not count:
        return []
    subnets = _pool(context, shape)
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
