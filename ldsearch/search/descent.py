"""Greedy descent: from the longest configuration down, one level of one block at a time."""

from collections.abc import Mapping, Sequence

from ldsearch.length_space import Gene, LengthSpace
from ldsearch.search.loop import CostFunction
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial


class Descent:
    """Proposes every way to shorten the current configuration by one level; the cheapest loss goes on.

    Of the children it takes the one that loses least score for each cost that it saves (marginal analysis,
    Fox 1966): where blocks add up and each loses more with every level, every configuration on the way is the
    best of its cost. About blocks^2 * levels evaluations, of which those of a step share long prefixes. It
    needs a score that moves with every token: the divergence from the full model, not an accuracy.

    Args:
        space: The allowed configurations.
        cost: The cost that is saved, as a function of sub-networks.
    """

    name = "greedy"

    def __init__(self, space: LengthSpace, cost: CostFunction) -> None:
        self.space = space
        self.cost = cost
        self._least = float(cost([space.smallest()])[0])

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The longest configuration, then children of what every generation before has chosen."""
        if generation == 0:
            return [self.space.largest()]
        losses = {trial.subnet: trial.score.loss for trial in ledger}
        current = self.space.largest()
        for _ in range(generation - 1):
            best = self._best(current, losses)
            if best is None:
                return []
            current = best
        return self._children(current)

    def _best(self, parent: Subnet, losses: Mapping[Subnet, float]) -> Subnet | None:
        """The measured child that pays least for what it saves; of equals the one shortened first."""
        children = [child for child in self._children(parent) if losses[child] == losses[child]]
        if not children:
            return None
        before, *after = self.cost([parent, *children])
        prices = [
            (losses[child] - losses[parent]) / (before - cost)
            for child, cost in zip(children, after, strict=True)
        ]
        return children[prices.index(min(prices))]

    def _children(self, parent: Subnet) -> list[Subnet]:
        """One block shortened by one level, and those behind it as far as they must be; none too cheap."""
        gene = self.space.encode(parent)
        shorter = (self._lowered(gene, block) for block in range(len(gene)))
        children = [self.space.decode(one) for one in dict.fromkeys(shorter) if one != gene]
        costs = self.cost(children)
        return [child for child, cost in zip(children, costs, strict=True) if cost >= self._least]

    def _lowered(self, gene: Gene, block: int) -> Gene:
        return self.space.repair([level - (place == block) for place, level in enumerate(gene)])
