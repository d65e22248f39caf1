"""Greedy descent: from the dearest configuration down, one step in one place at a time."""

import math
from collections.abc import Mapping, Sequence

from ldsearch.search.loop import CostFunction
from ldsearch.space import EvolvingSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial


class Descent:
    """Proposes every way to lower the current configuration by one step; the cheapest loss goes on.

    A step shortens one block by one level or, where the space chooses those, leaves one block out or one
    group off.

    Of the children it takes the one that loses least score for each cost that it saves (marginal analysis,
    Fox 1966): where blocks add up and each loses more with every level, every configuration on the way is the
    best of its cost. About blocks^2 * levels evaluations, of which those of a step share long prefixes. It
    needs a score that moves with every token: the divergence from the full model, not an accuracy.

    Args:
        space: The allowed configurations.
        cost: The cost that is saved, as a function of sub-networks.
    """

    name = "greedy"

    def __init__(self, space: EvolvingSpace, cost: CostFunction) -> None:
        self.space = space
        self.cost = cost
        self._least = float(cost([space.smallest()])[0])

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """Children of what every generation before has chosen; in the first the dearest too."""
        current = self.space.largest()
        if generation == 0:
            return [current, *self._children(current)]
        losses = {trial.subnet: trial.score.loss for trial in ledger}
        for _ in range(generation):
            best = self._best(current, losses)
            if best is None:
                return []
            current = best
        return self._children(current)

    def _best(self, parent: Subnet, losses: Mapping[Subnet, float]) -> Subnet | None:
        """The measured child that pays least for what it saves; of equals the one shortened first."""
        children = [child for child in self._children(parent) if not math.isnan(losses[child])]
        if not children:
            return None
        before, *after = self.cost([parent, *children])
        prices = [
            (losses[child] - losses[parent]) / (before - cost)
            for child, cost in zip(children, after, strict=True)
        ]
        return children[prices.index(min(prices))]

    def _children(self, parent: Subnet) -> list[Subnet]:
        """One step further down each; none too cheap."""
        children = self.space.lowered(parent)
        costs = self.cost(children)
        return [child for child, cost in zip(children, costs, strict=True) if cost >= self._least]
