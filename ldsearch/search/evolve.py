"""Evolutionary search: NSGA-II's parts, the space's operators, and a Gaussian process in front.

Deb et al. 2002 for selection and survival (pymoo); Kim & Cho 2020, Sec. 3.2, for the initial population.
Objectives: score, and one cost or several. The cost of a child is known without running it; a Gaussian
process on what was measured predicts its score (Rasmussen & Williams 2006, Sec. 2.2 and 5.4.1), and only the
children that promise to add most area are measured.
"""

import warnings
from collections.abc import Callable, Sequence
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
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import EvolveSettings, StrategyContext, objectives
from ldsearch.space import Gene, Space
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

Array = NDArray[np.float64]
Genes = NDArray[np.int64]
MEASURED = 8  # children that a generation of ``Surrogate`` measures
EXPLORED = 2  # of them, drawn from the children without looking at predictions
POOL = 15 * MEASURED  # children that they are chosen from
# The process is fitted to the newest trials: its time grows with the cube of their number.
FITTED = 300
# A space of at most this size is finished by listing what is left when the operators run dry.
_LISTABLE = 20_000


class Evolve:
    """Proposes generations of sub-networks, none of them twice.

    Args:
        context: Space, costs, seed and the numbers of the search.
    """

    name = "evolve"

    def __init__(self, context: StrategyContext) -> None:
        self.context = context
        self.space = space = context.space
        self.costs = (context.cost, *context.others)
        self.settings = context.settings
        self._problem = Problem(
            n_var=len(space.encode(space.largest())), n_obj=1 + len(self.costs), vtype=int
        )

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The constant-ratio line first, then children of the best so far."""
        if generation == 0:
            return constant_ratio_line(self.context, self.settings.initial)
        return self.children(generation, ledger, self.settings.mutants + self.settings.crossovers)

    def children(self, generation: int, ledger: Sequence[Trial], wanted: int) -> list[Subnet]:
        """Up to so many children of the best so far, none of them measured yet; fewer where none are left."""
        rng = np.random.default_rng([self.context.seed, generation])
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
        mating = _Mating(self.space, self.settings, _NotSeen(seen, self._allowed))
        children = mating.do(self._problem, parents, wanted, random_state=rng)
        return [tuple(int(level) for level in child.X) for child in children]

    def _left_over(self, seen: set[Gene], wanted: int, rng: np.random.Generator) -> list[Gene]:
        if self.space.size() > _LISTABLE:
            return []
        rest = [gene for gene in map(self.space.encode, self.space.enumerate()) if gene not in seen]
        rest = self._allowed(rest)
        return [rest[i] for i in rng.permutation(len(rest))[:wanted]]

    def _allowed(self, genes: Sequence[Gene]) -> list[Gene]:
        """Those that cost no less than the space's smallest."""
        usable = self.context.allowed([self.space.decode(gene) for gene in genes])
        return [gene for gene, use in zip(genes, usable, strict=True) if use]


class Surrogate:
    """Proposes the children of ``Evolve`` that promise most, none of them twice.

    Args:
        context: As for ``Evolve``, but ``MEASURED`` children a generation are measured. Of several costs each
            generation adds to the area of another, in turn.
    """

    name = "surrogate"

    def __init__(self, context: StrategyContext) -> None:
        self.space = context.space
        self.seed = context.seed
        self.evolution = Evolve(context)

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The constant-ratio line first, then the most promising children of the best so far."""
        if generation == 0:
            return self.evolution.propose(0, ledger)
        pool = self.evolution.children(generation, ledger, POOL)
        turns = self.evolution.costs
        cost = turns[generation % len(turns)]
        values = objectives(ledger, [cost])
        usable = np.array([self.space.contains(trial.subnet) for trial in ledger])
        usable &= ~np.isnan(values).any(axis=1)
        if len(pool) <= MEASURED or not usable.any():
            return pool[:MEASURED]
        measured = [trial.subnet for trial, use in zip(ledger, usable, strict=True) if use]
        costs, scores = values[usable].T * [[1], [-1]]
        mean, deviation = self._predicted(measured[-FITTED:], scores[-FITTED:], pool)
        chosen = most_area(
            cost(pool), mean + deviation, costs, scores, float(values[0, 0]), MEASURED - EXPLORED
        )
        rest = sorted(set(range(len(pool))) - set(chosen))
        rng = np.random.default_rng([self.seed, generation, 1])
        drawn = rng.choice(rest, MEASURED - len(chosen), replace=False)
        return [pool[i] for i in (*chosen, *drawn)]

    def _predicted(
        self, measured: Sequence[Subnet], scores: Array, pool: Sequence[Subnet]
    ) -> tuple[Array, Array]:
        """Means and standard deviations of the pool's scores."""
        known = self._features(measured)
        kernel = ConstantKernel() * Matern(np.ones(known.shape[1]), (0.05, 50.0), nu=2.5) + WhiteKernel(
            1e-2, (1e-6, 1.0)
        )
        process = GaussianProcessRegressor(kernel, normalize_y=True)
        with warnings.catch_warnings():
            # A length that does not matter drives its scale to the bound, which is what the bound is for.
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(known, scores)
        mean, deviation = process.predict(self._features(pool), return_std=True)
        return mean, deviation

    def _features(self, subnets: Sequence[Subnet]) -> Array:
        """Shape (sub-networks, features of the space)."""
        return np.array([self.space.features(subnet) for subnet in subnets])


def most_area(
    costs: Array, promised: Array, known_costs: Array, known_scores: Array, high: float, count: int
) -> list[int]:
    """Candidates that add most area to the staircase of what is known, one after the other.

    What one promises counts as known for the next, so that they do not crowd. Fewer than ``count`` where no
    other promises anything.

    Args:
        costs: Shape (candidates,).
        promised: Their scores, higher is better.
        known_costs: Shape (measured,).
        known_scores: Shape (measured,).
        high: The cost where the area ends; it begins at the cheapest known.
        count: How many.
    """
    chosen: list[int] = []
    for _ in range(count):
        order = np.argsort(known_costs, kind="stable")
        steps, best = known_costs[order], np.maximum.accumulate(known_scores[order])
        ends = np.append(steps[1:], max(high, steps[-1]))
        widths = np.clip(ends - np.maximum(steps, costs[:, None]), 0, None)
        gains = (widths * np.clip(promised[:, None] - best, 0, None)).sum(axis=1)
        gains[chosen] = 0.0
        if gains.max() <= 0:
            break
        chosen.append(int(gains.argmax()))
        known_costs = np.append(known_costs, costs[chosen[-1]])
        known_scores = np.append(known_scores, promised[chosen[-1]])
    return chosen


class _NotSeen(DuplicateElimination):  # type: ignore[misc]
    """Drops children that were measured before, stand twice among the children, or are not allowed."""

    def __init__(self, seen: set[Gene], allowed: Callable[[Sequence[Gene]], list[Gene]]) -> None:
        super().__init__()
        self.seen = seen
        self.allowed = allowed

    def do(self, pop: Population, *others: Population, to_itself: bool = True) -> Population:
        """Keep the first of each new gene; ``others`` holds the children accepted already."""
        taken = set(self.seen) | {tuple(map(int, child.X)) for other in others for child in other}
        genes = [tuple(map(int, child.X)) for child in pop]
        new = {gene: index for index, gene in reversed(list(enumerate(genes))) if gene not in taken}
        return pop[sorted(new[gene] for gene in self.allowed(list(new)))]


class _Mating(InfillCriterion):  # type: ignore[misc]
    """Children by mutation of one parent and by crossover of two, in the settings' proportion."""

    def __init__(self, space: Space, settings: EvolveSettings, duplicates: _NotSeen) -> None:
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

    def __init__(self, space: Space, probability: float) -> None:
        super().__init__(prob=1.0)
        self.space = space
        self.probability = probability

    def _do(self, problem: Problem, X: Genes, *_: Any, random_state: Any = None, **__: Any) -> Genes:  # noqa: N803
        return np.array([self.space.mutate(gene, self.probability, random_state) for gene in X])


class _Crossover(Crossover):  # type: ignore[misc]
    """The space's own crossover."""

    def __init__(self, space: Space) -> None:
        super().__init__(n_parents=2, n_offsprings=1, prob=1.0)
        self.space = space

    def _do(self, problem: Problem, X: Genes, *_: Any, random_state: Any = None, **__: Any) -> Genes:  # noqa: N803
        return np.array([[self.space.cross(a, b, random_state) for a, b in zip(X[0], X[1], strict=True)]])
