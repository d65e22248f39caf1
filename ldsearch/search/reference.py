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

from ldsearch.pareto import frontier
from ldsearch.search.evolve import EvolveSettings
from ldsearch.search.loop import CostFunction, objectives
from ldsearch.space.length_drop import constant_ratio_lengths
from ldsearch.space.lengths import Gene, LengthSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

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
    found = (
        bisect_left(steps, -target, key=lambda step: -_share(Fraction(step, _STEPS))) for target in targets
    )
    return [Fraction(step, _STEPS) for step in found]


class Reference:
    """Proposes the reference's rounds: 30 mutants and 30 crossovers each, 30 times.

    Parents are drawn from the frontier, the dearest configuration and the children that the same round has
    so far. The least MACs are the only bound: single lengths may fall below the smallest configuration's.
    Children that were measured before do not count (in the reference they do, once they left the frontier).

    Args:
        space: Its levels, its pinning, and its smallest configuration for the least cost.
        cost: The cost that is minimised, as a function of sub-networks.
        seed: Of the proposals; round g draws from (seed, g) only.
        rounds: After the first configurations.
    """

    name = "lat"

    def __init__(self, space: LengthSpace, cost: CostFunction, seed: int, rounds: int = ROUNDS) -> None:
        self.space = space.widened()
        self.cost = cost
        self.seed = seed
        self.rounds = rounds
        self.settings = EvolveSettings.parity()
        self.first = _first(space, self.settings.initial)
        self._least = float(cost([space.smallest()])[0])

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The constant-ratio configurations, then children round by round, then nothing."""
        if generation == 0:
            return self.first
        if generation > self.rounds:
            return []
        rng = np.random.default_rng([self.seed, generation])
        measured = [trial for trial in ledger if self.space.contains(trial.subnet)]
        genes = [self.space.encode(trial.subnet) for trial in measured]
        values = objectives(measured, [self.cost])
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
            if float(self.cost([child])[0]) < self._least:
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


def _first(space: LengthSpace, count: int) -> list[Subnet]:
    """Smallest, ``count`` - 2 ratios between, largest; fewer where the grid cannot tell them apart."""

    def at(rate: Fraction) -> Subnet:
        return space.snap(constant_ratio_lengths(space.reference, space.blocks, rate))

    # A space does not say what bound it was built for: the lowest that gives its smallest configuration.
    smallest = space.smallest()
    least = space.encode(smallest)

    def reaches_least(step: int) -> bool:
        return all(map(operator.le, space.encode(at(Fraction(step, _STEPS))), least))

    step = bisect_left(range(_STEPS), True, key=reaches_least)
    bound = Fraction(step, _STEPS)
    return list(dict.fromkeys([smallest, *map(at, spaced_rates(bound, count - 2)), space.largest()]))
