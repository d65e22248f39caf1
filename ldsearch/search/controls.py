"""Controls: what any search has to beat with as many evaluations."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldsearch.search.loop import StrategyContext
from ldsearch.search.rules import Listed
from ldsearch.space import Space
from ldsearch.space.lengths import EVENLY
from ldsearch.subnet import Subnet

# The share of blocks before the first drop, where the head reads every token: what is dropped answers with
# the state that it had, and a later state says more.
LATE = Fraction(1, 3)
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
    return _line(context, EVENLY, count)


def regular_line(context: StrategyContext, count: int) -> list[Subnet]:
    """As ``constant_ratio_line``, in the shape that suits the space's head."""
    return _line(context, own_shape(context.space), count)


def own_shape(space: Space) -> Fraction:
    """The share of blocks that every token passes, in the regular shape that suits the space's head."""
    return LATE if _reads_every_token(space) else EVENLY


def start_line(context: StrategyContext, count: int) -> list[Subnet]:
    """Up to ``count`` regular configurations that a search starts from, each shape's costs evenly spread.

    Constant ratios; where the head reads every token half of them keep the first blocks whole instead.
    """
    own = count - count // 2 if _reads_every_token(context.space) else count
    return list(dict.fromkeys([*_line(context, EVENLY, own), *_line(context, LATE, count - own)]))


def dearest(context: StrategyContext, limit: float) -> list[Subnet]:
    """The regular configuration of the head's own shape that costs most within a limit; [] if none does."""
    subnets = _pool(context, own_shape(context.space))
    costs = context.cost(subnets)
    within = np.flatnonzero(costs <= limit)
    return [subnets[within[costs[within].argmax()]]] if len(within) else []


def _reads_every_token(space: Space) -> bool:
    return space.lengths is not None and not space.lengths.pin_last


def _pool(context: StrategyContext, whole: Fraction) -> list[Subnet]:
    """The regular configurations of a shape that may be proposed, and the space's ends."""
    space = context.space
    subnets = list(dict.fromkeys([space.smallest(), *space.regular(whole), space.largest()]))
    return [subnet for subnet, use in zip(subnets, context.allowed(subnets), strict=True) if use]


def _line(context: StrategyContext, whole: Fraction, count: int) -> list[Subnet]:
    subnets = _pool(context, whole)
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
