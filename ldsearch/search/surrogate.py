"""Evolution with a Gaussian process in front: many children, of which only the most promising are measured.

The cost of a child is known without running it; a Gaussian process on what was measured predicts its score
(Rasmussen & Williams 2006, Sec. 2.2 and 5.4.1). Measured are those that promise to add most area.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from ldsearch.search.evolve import Evolve, EvolveSettings
from ldsearch.search.loop import CostFunction, objectives
from ldsearch.space import EvolvingSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

Array = NDArray[np.float64]

MEASURED = 8  # per generation
EXPLORED = 2  # of them, drawn from the children without looking at predictions
POOL = 15 * MEASURED  # children that they are chosen from
# The process is fitted to the newest trials: its time grows with the cube of their number.
FITTED = 300


class Surrogate:
    """Proposes the children of ``Evolve`` that promise most, none of them twice.

    Args:
        space: The allowed configurations.
        cost: The cost that is minimised, as a function of sub-networks.
        seed: Of the proposals; generation g draws from (seed, g) only.
        settings: Of the evolution that names the children; how many are measured is not among them.
        others: Further costs that are minimised; each generation adds to the area of another, in turn.
    """

    name = "surrogate"

    def __init__(
        self,
        space: EvolvingSpace,
        cost: CostFunction,
        seed: int,
        settings: EvolveSettings | None = None,
        others: Sequence[CostFunction] = (),
    ) -> None:
        self.space = space
        self.seed = seed
        self.evolution = Evolve(space, cost, seed, settings, others)

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
