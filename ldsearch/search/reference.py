"""The length-adaptive reference code's own search (clovaai; Kim & Cho 2020, Sec. 3.2), under our laws.

It differs from ``Evolve`` in where parents come from, in its first configurations and in its bounds. Ours
are that a proposal is a function of seed, generation and ledger, that nothing is measured twice, and that it
ends where a space is too small: the reference draws for ever there.
"""

import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from ldsearch.errors import SpaceError
from ldsearch.search.loop import EvolveSettings, StrategyContext, objectives
from ldsearch.space import Gene
from ldsearch.space.lengths import LengthGenes, Levels, constant_ratio_lengths
from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import frontier
from ldsearch.trials.trial import Trial

ROUNDS = 30
# The reference spaces its first ratios by the token count of this model, whatever the model.
_SPACED_BY = (384, 12)
_STEPS = 10_000  # rates tried between 0 and 1
_ATTEMPTS = 100  # draws for each child that is wanted


def spaced_rates(bound: Fraction, count: int) -> list[Fraction]:
    """Drop rates between 0 and ``bound``, both left out, whose token counts are evenly spaced; falling.

    Args:
        bound: The rate of the smallest configuration.
        count: How many.
    """
    targets = np.linspace(_share(bound), 1.0, count + 2)[1:-1]
    steps = range(_STEPS)
    steps_found = (
        bisect_left(steps, -target, key=lambda step: -_share(Fraction(step, _STEPS))) for target in targets
    )
    return [Fraction(step, _STEPS) for step in steps_found]


class Reference:
    """Proposes the reference's rounds: 30 mutants and 30 crossovers each, 30 times.

    Parents are drawn from the frontier, the dearest configuration and the children that the same round has
    so far. Children that were measured before do not count (in the reference they do, once they left the
    frontier).

    Args:
        context: Space, cost and seed. The reference searches a widened space: the least MACs are its only
            bound.
        rounds: After the first configurations.

    Raises:
        SpaceError: If the space chooses anything but lengths.
    """

    name = "lat"

    def __init__(self, context: StrategyContext, rounds: int = ROUNDS) -> None:
        lengths = context.space.lengths
        if lengths is None or context.space.varies != ("lengths",):
            raise SpaceError("lat is the length-adaptive paper's own search: it chooses lengths only")
        self.context = context
        self.space = context.space
        self.rounds = rounds
        self.settings = EvolveSettings.parity()
        # A gene of lengths alone ends with the levels; all before is the same for every one.
        self._head = context.space.encode(context.space.largest())[: -len(lengths.floors)]
        vectors = _first(lengths, self.settings.initial)
        self.first = list(dict.fromkeys(context.space.decode((*self._head, *levels)) for levels in vectors))

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The constant-ratio configurations, then children round by round, then nothing."""
        if generation == 0:
            return self.first
        if generation > self.rounds:
            return []
        rng = np.random.default_rng([self.context.seed, generation])
        measured = [trial for trial in ledger if self.space.contains(trial.subnet)]
        genes = [self.space.encode(trial.subnet) for trial in measured]
        values = objectives(measured, [self.context.cost])
        # The reference keeps its last gene, the dearest, where it is dominated too.
        parents = [genes[i] for i in dict.fromkeys([*frontier(values), int(values[:, 0].argmax())])]
        seen = set(genes)

        def mutant() -> Gene:
            parent = parents[rng.integers(len(parents))]
            return self.space.mutate(parent, self.settings.mutation_probability, rng)

        def cross() -> Gene:
            first, second = (parents[i] for i in rng.choice(len(parents), 2, replace=False))
            return self.space.cross(first, second, rng)

        children = self._grow(mutant, self.settings.mutants, parents, seen)
        if len(parents) > 1:
            children += self._grow(cross, self.settings.crossovers, parents, seen)
        return children

    def _grow(
        self, draw: Callable[[], Gene], wanted: int, parents: list[Gene], seen: set[Gene]
    ) -> list[Subnet]:
        """Children that are new and dear enough; each is a parent from then on."""
        children: list[Subnet] = []
        for _ in range(_ATTEMPTS * wanted):
            gene = draw()
            if gene in seen:
                continue
            seen.add(gene)
            child = self.space.decode(gene)
            if not self.context.allowed([child])[0]:
                continue
            parents.append(gene)
            children.append(child)
            if len(children) == wanted:
                break
        return children


def _share(rate: Fraction) -> float:
    """Tokens that leave the blocks, of all that could."""
    tokens, blocks = _SPACED_BY
    return sum(constant_ratio_lengths(tokens, blocks, rate)) / (tokens * blocks)


def _first(lengths: LengthGenes, count: int) -> list[Levels]:
    """Smallest, ``count`` - 2 ratios between, largest; fewer where the grid cannot tell them apart."""
    blocks = len(lengths.floors)

    def at(rate: Fraction) -> Levels:
        return lengths.snap(constant_ratio_lengths(lengths.reference, blocks, rate))

    # A space does not say what bound it was built for: the lowest that gives its smallest configuration.
    least = lengths.smallest(blocks)

    def reaches_least(step: int) -> bool:
        return all(map(operator.le, at(Fraction(step, _STEPS)), least))

    step = bisect_left(range(_STEPS), True, key=reaches_least)
    bound = Fraction(step, _STEPS)
    largest = lengths.repair((lengths.top,) * blocks)
    return list(dict.fromkeys([least, *map(at, spaced_rates(bound, count - 2)), largest]))
