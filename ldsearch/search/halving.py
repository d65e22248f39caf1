"""Successive halving: many candidates on few rows, the best of them on more (Jamieson & Talwalkar 2016)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ldsearch.errors import RunError
from ldsearch.search.controls import random_search, start_line
from ldsearch.search.evolve import Evolve
from ldsearch.search.loop import Ask, StrategyContext
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Trial


@dataclass(frozen=True)
class HalvingOptions:
    """Settings that ``--option`` gives.

    Args:
        eta: One of so many goes on, to so many times the rows.
        rungs: How often candidates are measured; the last time on all rows.

    Raises:
        RunError: If they make no sense.
    """

    eta: int = 3
    rungs: int = 3

    def __post_init__(self) -> None:
        if self.eta < 2 or self.rungs < 1:
            raise RunError(f"halving takes eta from 2 and rungs from 1 on, not {self.eta} and {self.rungs}")


class Halving:
    """Regular configurations and random ones on a share of the rows; one of ``eta`` goes on to the next rung.

    There is a best at every cost: NSGA-II's rank and crowding say which go on. Every rung measures as many
    rows in all, so of 150 evaluations 49 sub-networks get all rows, of 441 that were tried.

    Args:
        context: Space, costs, seed, how many evaluations, and ``HalvingOptions``.
    """

    name = "halving"

    def __init__(self, context: StrategyContext) -> None:
        self.context = context
        own: HalvingOptions = context.options
        most = max(1, context.evaluations - 1)  # but for the full model
        rungs = min(own.rungs, most)
        self.shares = [own.eta ** -(rungs - 1.0 - rung) for rung in range(rungs)]
        self.counts = [most // rungs * own.eta ** (rungs - 1 - rung) for rung in range(rungs)]

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Ask]:
        """The candidates of a rung: those that did best on the last one's rows."""
        if generation >= len(self.shares):
            return []
        full, share = ledger[0].subnet, self.shares[generation]  # the full model has all rows already
        if generation == 0:
            subnets = self._candidates(self.counts[0], full)
        else:
            before = [trial for trial in ledger[1:] if trial.generation == generation - 1]
            subnets = self._best(before, -(-len(before) // self.context.options.eta), generation)
        return [Ask(subnet, share) for subnet in ([*subnets, full] if share == 1 else subnets)]

    def _candidates(self, count: int, full: Subnet) -> list[Subnet]:
        regular = start_line(self.context, min(count, self.context.settings.initial))
        drawn = random_search(replace(self.context, evaluations=count + 2)).subnets
        return [subnet for subnet in dict.fromkeys([*regular, *drawn]) if subnet != full][:count]

    def _best(self, trials: Sequence[Trial], count: int, generation: int) -> list[Subnet]:
        told = [trial for trial in trials if not math.isnan(trial.score.value)]
        if len(told) <= count:
            # So few rows may leave a metric undefined; the first are regular.
            return list(dict.fromkeys(trial.subnet for trial in [*told, *trials]))[:count]
        settings = replace(self.context.settings, population=count)
        rng = np.random.default_rng([self.context.seed, generation])
        return Evolve(replace(self.context, settings=settings)).survivors(told, rng)
