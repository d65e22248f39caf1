"""Evolutionary search: NSGA-II's parts, the space's own operators.

Deb et al. 2002 for selection and survival (pymoo); Kim & Cho 2020, Sec. 3.2, for the initial population.
Objectives: score, and one cost or several.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import binary_tournament
from pymoo.core.crossover import Crossover
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.infill import InfillCriterion
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from ldsearch.search.constant_ratio import constant_ratio_line
from ldsearch.search.loop import CostFunction, objectives
from ldsearch.space import EvolvingSpace
from ldsearch.space.lengths import Gene
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

Genes = NDArray[np.int64]
# A space of at most this size is finished by listing what is left when the operators run dry.
_LISTABLE = 20_000


@dataclass(frozen=True)
class EvolveSettings:
    """The numbers of the search; ``parity`` gives the reference code's.

    Args:
        initial: Regular configurations in the initial population: of lengths, constant-ratio ones.
        population: Survivors that may become parents.
        mutants: Children by mutation per generation.
        crossovers: Children by crossover per generation.
        mutation_probability: Of each length, in mutants (p_m).
    """

    initial: int = 22
    population: int = 30
    mutants: int = 10
    crossovers: int = 10
    mutation_probability: float = 0.5

    @classmethod
    def parity(cls) -> "EvolveSettings":
        """30 mutants and 30 crossovers per generation."""
        return cls(mutants=30, crossovers=30)


class Evolve:
    """Proposes generations of sub-networks, none of them twice.

    Args:
        space: The allowed configurations.
        cost: The cost that is minimised, as a function of sub-networks.
        seed: Of the proposals; generation g draws from (seed, g) only.
        settings: The numbers of the search.
        others: Further costs that are minimised.
    """

    name = "evolve"

    def __init__(
        self,
        space: EvolvingSpace,
        cost: CostFunction,
        seed: int,
        settings: EvolveSettings | None = None,
        others: Sequence[CostFunction] = (),
    ) -> None:
        self.space = space
        self.cost = cost
        self.costs = (cost, *others)
        self.seed = seed
        self.settings = settings or EvolveSettings()
        self._least = float(cost([space.smallest()])[0])
        self._problem = Problem(
            n_var=len(space.encode(space.largest())), n_obj=1 + len(self.costs), vtype=int
        )

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The constant-ratio line first, then children of the best so far."""
        if generation == 0:
            return constant_ratio_line(self.space, self.cost, self.settings.initial)
        return self.children(generation, ledger, self.settings.mutants + self.settings.crossovers)

    def children(self, generation: int, ledger: Sequence[Trial], wanted: int) -> list[Subnet]:
        """Up to so many children of the best so far, none of them measured yet; fewer where none are left."""
        rng = np.random.default_rng([self.seed, generation])
        measured = [trial for trial in ledger if self.space.contains(trial.subnet)]
        seen = {self.space.encode(trial.subnet) for trial in measured}
        parents = self._survivors(measured, rng)
        genes = self._mate(parents, seen, wanted, rng) if len(parents) > 1 else []
        if len(genes) < wanted:
            genes += self._left_over(seen | set(genes), wanted - len(genes), rng)
        return [self.space.decode(gene) for gene in genes]

    def _survivors(self, measured: Sequence[Trial], rng: np.random.Generator) -> Population:
        values = objectives(measured, self.costs)
        usable = ~np.isnan(values).any(axis=1)
        genes = np.array([self.space.encode(trial.subnet) for trial in measured])
        population = Population.new("X", genes[usable])
        population.set("F", values[usable])
        for individual in population:
            individual.CV = np.zeros(1)
        survival = RankAndCrowding()
        return survival.do(self._problem, population, n_survive=self.settings.population, random_state=rng)

    def _mate(
        self, parents: Population, seen: set[Gene], wanted: int, rng: np.random.Generator
    ) -> list[Gene]:
        mating = _Mating(self.space, self.settings, _NotSeen(seen, self._dear_enough))
        children = mating.do(self._problem, parents, wanted, random_state=rng)
        return [tuple(int(level) for level in child.X) for child in children]

    def _left_over(self, seen: set[Gene], wanted: int, rng: np.random.Generator) -> list[Gene]:
        if self.space.size() > _LISTABLE:
            return []
        rest = [gene for gene in map(self.space.encode, self.space.enumerate()) if gene not in seen]
        rest = self._dear_enough(rest)
        return [rest[i] for i in rng.permutation(len(rest))[:wanted]]

    def _dear_enough(self, genes: Sequence[Gene]) -> list[Gene]:
        """Those that cost no less than the space's smallest."""
        costs = self.cost([self.space.decode(gene) for gene in genes])
        return [gene for gene, cost in zip(genes, costs, strict=True) if cost >= self._least]


class _NotSeen(DuplicateElimination):  # type: ignore[misc]
    """Drops children that were measured before, stand twice among the children, or are not allowed."""

    def __init__(self, seen: set[Gene], allowed: Callable[[Sequence[Gene]], list[Gene]]) -> None:
        super().__init__()
        self.seen = seen
        self.allowed = allowed

    def do(self, pop: Population, *others: Population, to_itself: bool = True) -> Population:
        """Keep the first of each new gene; ``others`` holds the children accepted already."""
        taken = set(self.seen) | {tuple(map(int, one.X)) for other in others for one in other}
        genes = [tuple(map(int, child.X)) for child in pop]
        new = {gene: index for index, gene in reversed(list(enumerate(genes))) if gene not in taken}
        return pop[sorted(new[gene] for gene in self.allowed(list(new)))]


class _Mating(InfillCriterion):  # type: ignore[misc]
    """Children by mutation of one parent and by crossover of two, in the settings' proportion."""

    def __init__(self, space: EvolvingSpace, settings: EvolveSettings, duplicates: _NotSeen) -> None:
        super().__init__(eliminate_duplicates=duplicates, n_max_iterations=100)
        self.selection = TournamentSelection(func_comp=binary_tournament)
        self.mutation = _Mutation(space, settings.mutation_probability)
        self.crossover = _Crossover(space)
        self.share = settings.mutants / (settings.mutants + settings.crossovers)

    def _do(
        self, problem: Problem, pop: Population, n_offsprings: int, random_state: Any = None, **_: Any
    ) -> Population:
        # pymoo's tournament reads these two from the algorithm it expects to be part of.
        algorithm = SimpleNamespace(tournament_type="comp_by_dom_and_crowding", random_state=random_state)

        def parents(matings: int, of_each: int) -> Any:
            return self.selection.do(
                problem,
                pop,
                matings,
                n_parents=of_each,
                to_pop=False,
                algorithm=algorithm,
                random_state=random_state,
            )

        mutants = max(1, round(self.share * n_offsprings))
        single = Population.new("X", pop[parents(mutants, 1)[:, 0]].get("X"))
        mutated = self.mutation.do(problem, single, random_state=random_state)
        pairs = parents(max(1, n_offsprings - mutants), 2)
        crossed = self.crossover.do(problem, pop, pairs, random_state=random_state)
        return Population.merge(mutated, crossed)


class _Mutation(Mutation):  # type: ignore[misc]
    """The space's own mutation."""

    def __init__(self, space: EvolvingSpace, probability: float) -> None:
        super().__init__(prob=1.0)
        self.space = space
        self.probability = probability

    def _do(self, problem: Problem, X: Genes, *_: Any, random_state: Any = None, **__: Any) -> Genes:  # noqa: N803
        return np.array([self.space.mutate(gene, self.probability, random_state) for gene in X])


class _Crossover(Crossover):  # type: ignore[misc]
    """The space's own crossover."""

    def __init__(self, space: EvolvingSpace) -> None:
        super().__init__(n_parents=2, n_offsprings=1, prob=1.0)
        self.space = space

    def _do(self, problem: Problem, X: Genes, *_: Any, random_state: Any = None, **__: Any) -> Genes:  # noqa: N803
        return np.array([[self.space.cross(a, b, random_state) for a, b in zip(X[0], X[1], strict=True)]])
