"""Evolutionary search: NSGA-II's parts, the space's operators, and a Gaussian process in front.

Deb et al. 2002 for selection and survival (pymoo); Kim & Cho 2020, Sec. 3.2, for the initial population.
Objectives: score, and one cost or several. The cost of a child is known without running it; a Gaussian
process on what was measured predicts its score (Rasmussen & Williams 2006, Sec. 2.2 and 5.4.1), and only the
children that promise to add most area are measured.
"""

import copy
import warnings
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import binary_tournament
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from ldsearch.search.controls import start_line
from ldsearch.search.loop import StrategyContext, objectives
from ldsearch.space import Gene
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Trial

Array = NDArray[np.float64]
MEASURED = 8  # children that a generation of ``Surrogate`` measures
EXPLORED = 2  # of them, drawn from the children without looking at predictions
POOL = 15 * MEASURED  # children that they are chosen from
# The process is fitted to the newest trials: its time grows with the cube of their number.
FITTED = 300
_ROUNDS = 100  # of mating, to find as many new children as are wanted
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
        self._tournament = TournamentSelection(func_comp=binary_tournament)

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """Regular configurations first (``start_line``), then children of the best so far."""
        if generation == 0:
            return list(self.context.start) or start_line(self.context, self.settings.initial)
        return self.children(generation, ledger, self.settings.mutants + self.settings.crossovers)

    def children(self, generation: int, ledger: Sequence[Trial], wanted: int) -> list[Subnet]:
        """Up to so many children of the best so far, none of them measured yet; fewer where none are left."""
        rng = np.random.default_rng([self.context.seed, generation])
        measured = [trial for trial in ledger if self.space.contains(trial.subnet)]
        seen = {self.space.encode(trial.subnet) for trial in measured}
        parents = self._ranked(measured, rng)
        genes = self._mate(parents, seen, wanted, rng) if len(parents) > 1 else []
        if len(genes) < wanted:
            genes += self._left_over(seen | set(genes), wanted - len(genes), rng)
        return [self.space.decode(gene) for gene in genes]

    def survivors(self, measured: Sequence[Trial], rng: np.random.Generator) -> list[Subnet]:
        """Parents: the best of what was measured and lies in the space, as many as the settings say."""
        return [self.space.decode(tuple(map(int, one.X))) for one in self._ranked(measured, rng)]

    def _ranked(self, measured: Sequence[Trial], rng: np.random.Generator) -> Population:
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
        """Children by mutation of one parent and by crossover of two, in the settings' proportion."""
        genes = [tuple(map(int, parent.X)) for parent in parents]
        share = self.settings.mutants / (self.settings.mutants + self.settings.crossovers)
        children: dict[Gene, None] = {}
        for _ in range(_ROUNDS):
            missing = wanted - len(children)
            if not missing:
                break
            count = max(1, round(share * missing))
            singles = self._selected(parents, count, 1, rng)
            made = [self.space.mutate(genes[a], self.settings.mutation_probability, rng) for (a,) in singles]
            # Unused: pymoo's operators decide here whether to apply, and a seed keeps its proposals.
            rng.random(len(made))
            pairs = self._selected(parents, max(1, missing - count), 2, rng)
            rng.random(len(pairs))
            made += [self.space.cross(genes[a], genes[b], rng) for a, b in pairs]
            new = [gene for gene in dict.fromkeys(made) if gene not in seen and gene not in children]
            children.update(dict.fromkeys(self._allowed(new)[:missing]))
        return list(children)

    def _selected(
        self, parents: Population, matings: int, of_each: int, rng: np.random.Generator
    ) -> list[list[int]]:
        """Indices of parents that won a binary tournament, shape (matings, of_each)."""
        winners: list[list[int]] = self._tournament.do(
            self._problem,
            parents,
            matings,
            n_parents=of_each,
            to_pop=False,
            # pymoo's tournament reads these two from the algorithm it expects to be part of.
            algorithm=SimpleNamespace(tournament_type="comp_by_dom_and_crowding", random_state=rng),
            random_state=rng,
        ).tolist()
        return winners

    def _left_over(self, seen: set[Gene], wanted: int, rng: np.random.Generator) -> list[Gene]:
        if self.space.size() > _LISTABLE:
            return []
        rest = [gene for gene in map(self.space.encode, self.space.enumerate()) if gene not in seen]
        rest = self._allowed(rest)
        return [rest[i] for i in rng.permutation(len(rest))[:wanted]]

    def _allowed(self, genes: Sequence[Gene]) -> list[Gene]:
        """Drop those that cost less than the space's smallest."""
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
        known, unknown = (np.array([self.space.features(s) for s in subnets]) for subnets in (measured, pool))
        best, promised = self._predicted(known, scores, unknown)
        chosen = most_area(cost(pool), promised, costs, best, float(values[0, 0]), MEASURED - EXPLORED)
        rest = sorted(set(range(len(pool))) - set(chosen))
        rng = np.random.default_rng([self.seed, generation, 1])
        drawn = rng.choice(rest, MEASURED - len(chosen), replace=False)
        return [pool[i] for i in (*chosen, *drawn)]

    def _predicted(self, known: Array, scores: Array, unknown: Array) -> tuple[Array, Array]:
        """Scores of what is measured, and what the others promise; of both without the measurements' noise.

        The best of noisy scores is too high, and a deviation with the noise promises it to what is known.
        """
        process = fit_process(known[-FITTED:], scores[-FITTED:])
        mean, deviation = latent(process, unknown)
        return latent(process, known)[0], mean + deviation


def fit_process(features: Array, scores: Array) -> GaussianProcessRegressor:
    """A Gaussian process whose kernel is a signal's, ``k1``, plus the white noise of a measurement, ``k2``.

    Args:
        features: Shape (measured, features).
        scores: Shape (measured,).
    """
    kernel = ConstantKernel() * Matern(np.ones(features.shape[1]), (0.05, 50.0), nu=2.5) + WhiteKernel(
        1e-2, (1e-6, 1.0)
    )
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        # A length that does not matter drives its scale to the bound, which is what the bound is for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(features, scores)
    return process


def latent(process: GaussianProcessRegressor, features: Array) -> tuple[Array, Array]:
    """Posterior means and standard deviations of the scores without noise.

    Rasmussen & Williams 2006, eq. 2.25 and 2.26. A score measured once more would deviate by the noise too.

    Args:
        process: As ``fit_process`` returns it.
        features: Shape (sub-networks, features), of measured ones or others.

    Returns:
        Both of shape (sub-networks,), in the unit of the scores.
    """
    signal = copy.copy(process)
    signal.kernel_ = process.kernel_.k1
    mean, deviation = signal.predict(features, return_std=True)
    return mean, deviation


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
