"""The search loop, written once: propose, evaluate, record.

``propose`` is a pure function of (generation, what was recorded before it), so a killed search goes on by
running the same command again: the measurement cache answers what was measured already.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ldsearch.space import Space
from ldsearch.space.lengths import Shape
from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import staircase_area
from ldsearch.trials.trial import Trial, pareto_front

CostFunction = Callable[[Sequence[Subnet]], NDArray[np.float64]]
Evaluate = Callable[[Sequence[Subnet], int], list[Trial]]

# A search has converged when this many generations in a row together added no more than this share of the
# range of scores to the area, which is a mean score: of accuracies from 0.8 to 0.9 a hundredth of a point.
PATIENCE = 5
LEAST_GAIN = 1e-3
# Where a search ends in time, so many sub-networks are measured between two looks at the clock.
_PART = 16
_ROUNDING = 1e-6  # of sums of shares


@dataclass(frozen=True)
class Ask:
    """A sub-network to measure.

    Args:
        subnet: Which.
        rows: On what share of the rows that choose. Below 1 the trial is for the strategy alone: it is in
            no result, and no measurement of all rows.
    """

    subnet: Subnet
    rows: float = 1.0


class SearchStrategy(Protocol):
    """Names the sub-networks to measure next."""

    name: str

    def propose(self, generation: int, ledger: Sequence[Trial]) -> Sequence[Subnet | Ask]:
        """Sub-networks for this generation; none ends the search.

        Args:
            generation: Counts from 0.
            ledger: Every trial of the generations before, in order; first the full model's.
        """


@dataclass(frozen=True)
class EvolveSettings:
    """The numbers of an evolution; ``parity`` gives the reference code's.

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


@dataclass(frozen=True)
class StrategyContext:
    """Arguments for building a search strategy.

    Args:
        space: The allowed sub-networks.
        cost: The cost that is minimised, as a function of sub-networks.
        seed: Of the proposals; generation g draws from (seed, g) only.
        evaluations: The most that are measured, the full model included.
        settings: Of strategies that evolve.
        others: Further costs that are minimised, for strategies that can; the others go by ``cost``.
        floor: The cost in which nothing cheaper than the space's smallest is proposed: MACs, whatever is
            minimised, since a widened space has no other bound. None: ``cost``.
        signal: A signal of the blocks by its name, shape (blocks,), higher for those that matter more;
            computed when a strategy calls it.
        start: What an evolution begins with, and may choose outside the space; (): regular configurations.
        shape: Of those, what suits the model's head.
        options: The strategy's own, an instance of its ``Search.options``.
    """

    space: Space
    cost: CostFunction
    seed: int = 0
    evaluations: int = 150
    settings: EvolveSettings = field(default_factory=EvolveSettings)
    others: tuple[CostFunction, ...] = ()
    floor: CostFunction | None = None
    signal: Callable[[str], NDArray[np.float64]] | None = None
    start: tuple[Subnet, ...] = ()
    shape: Shape = Shape.EVEN
    options: Any = None

    def allowed(self, subnets: Sequence[Subnet]) -> NDArray[np.bool_]:
        """Whether each costs no less than the space's smallest, shape (sub-networks,)."""
        if not subnets:
            return np.zeros(0, dtype=bool)
        # A cost may differ in its last bits with what it is computed beside.
        return np.asarray((self.floor or self.cost)(subnets) >= self._least * (1 - 1e-12))

    @cached_property
    def _least(self) -> float:
        return float((self.floor or self.cost)([self.space.smallest()])[0])


@dataclass
class SearchResult:
    """Trials of a search, and why it ended.

    Args:
        trials: In the order they were measured; the first is the full model.
        stopped: ``"evaluations"``, ``"converged"``, ``"time"``, or ``"exhausted"`` where the strategy had
            nothing new to propose.
        areas: ``areas_under`` the frontier after each generation; of several costs the mean of theirs.
        proposed: The proposals that may be chosen; the full model is measured for reference, whether or
            not it is one.
        costs: Names of the costs that were minimised beside the score's loss.
        spent: What it measured, in evaluations on all rows.
    """

    trials: list[Trial]
    stopped: str
    areas: list[float] = field(default_factory=list)
    proposed: set[Subnet] = field(default_factory=set)
    costs: tuple[str, ...] = ("macs",)
    spent: float = 0.0

    @property
    def candidates(self) -> list[Trial]:
        """The trials that a choice is made among: ``proposed``, in the order they were measured."""
        return [trial for trial in self.trials if trial.subnet in self.proposed]

    @property
    def frontier(self) -> list[Trial]:
        """The non-dominated trials, cheapest first."""
        return pareto_front(self.trials, self.costs)


def objectives(trials: Sequence[Trial], costs: Sequence[CostFunction]) -> NDArray[np.float64]:
    """Shape (trials, costs + 1): every cost, and the score as something to minimise."""
    subnets = [trial.subnet for trial in trials]
    losses = [trial.score.loss for trial in trials]
    return np.column_stack([*(np.asarray(cost(subnets), dtype=np.float64) for cost in costs), losses])


def search(
    strategy: SearchStrategy,
    evaluate: Evaluate,
    full: Subnet,
    *,
    evaluations: int | None = None,
    patience: int | None = PATIENCE,
    deadline: float = math.inf,
    selectable: Callable[[Subnet], bool] = lambda subnet: True,
    costs: Sequence[str] = ("macs",),
    on_generation: Callable[[SearchResult], None] | None = None,
    on_rows: Callable[[float], Evaluate] | None = None,
    foreign: bool = False,
) -> SearchResult:
    """Run a strategy until it has nothing more to propose, has converged, or has used its evaluations.

    Args:
        strategy: What proposes.
        evaluate: Measures sub-networks of a generation, in order.
        full: The full model, measured first: the denominator of every share.
        evaluations: The most trials, the full model included; None: until the strategy is done. One on a
            share of the rows counts as that share.
        patience: Generations without a gain after which it ends; None: it never ends for that.
        deadline: When it ends, if in the middle of a generation, by ``time.monotonic``.
        selectable: Whether a proposal may be chosen; others are stepping stones, measured all the same.
        costs: Names of the trials' costs that are minimised: they make the frontier and its area.
        on_generation: Called after each generation (reports that are written as the search goes).
        on_rows: Measures on that share of the rows, for strategies that ask for it.
        foreign: Whether the full model is another's, of which the strategy does not learn.

    Raises:
        ValueError: If ``evaluations`` is below 1, or a share of the rows is asked for and not measured.
    """
    if evaluations is not None and evaluations < 1:
        raise ValueError(f"a search needs at least one evaluation, not {evaluations}")
    trials = evaluate([full], 0)
    result, counts = SearchResult(trials, "exhausted", costs=tuple(costs), spent=1.0), list[int]()
    ledger, known = [] if foreign else list(trials), {Ask(full)}
    for generation in itertools.count():
        named = strategy.propose(generation, tuple(ledger))
        asked = list(dict.fromkeys(one if isinstance(one, Ask) else Ask(one) for one in named))
        result.proposed.update(ask.subnet for ask in asked if ask.rows == 1 and selectable(ask.subnet))
        fresh = [ask for ask in asked if ask not in known]
        if evaluations is not None:
            spent = result.spent + np.cumsum([ask.rows for ask in fresh])
            fresh = fresh[: np.count_nonzero(spent <= evaluations + _ROUNDING)]
        if not fresh:
            break
        for part in _parts(fresh, deadline):
            for rows, own in itertools.groupby(part, key=lambda ask: ask.rows):
                subnets = [ask.subnet for ask in own]
                ledger += (found := _measured(evaluate, on_rows, rows)(subnets, generation))
                trials += found if rows == 1 else []
                result.spent += rows * len(subnets)
            known.update(part)
        if len(trials) == (counts or [1])[-1]:
            continue  # on few rows: what goes on to all of them does so past a deadline too
        counts.append(len(trials))
        result.areas = np.mean([areas_under(trials, counts, cost) for cost in costs], axis=0).tolist()
        if on_generation is not None:
            on_generation(result)
        ends = {
            "converged": patience is not None and _has_converged(result.areas, patience, trials),
            "evaluations": evaluations is not None and result.spent > evaluations - _ROUNDING,
            "time": time.monotonic() >= deadline,
        }
        if any(ends.values()):
            result.stopped = next(reason for reason, holds in ends.items() if holds)
            break
    return result


def _measured(evaluate: Evaluate, on_rows: Callable[[float], Evaluate] | None, rows: float) -> Evaluate:
    if rows == 1:
        return evaluate
    if on_rows is None:
        raise ValueError(f"this search measures on all rows, not on {rows:.3g} of them")
    return on_rows(rows)


def _parts(asked: list[Ask], deadline: float) -> Iterator[list[Ask]]:
    """All of them at once; where there is a deadline, a few at a time until it passes."""
    if deadline == math.inf:
        yield asked
        return
    for first in range(0, len(asked), _PART):
        yield asked[first : first + _PART]
        if time.monotonic() >= deadline:
            return


def areas_under(trials: Sequence[Trial], counts: Sequence[int], cost: str) -> list[float]:
    """Mean best score after each generation, over one range: the cheapest of all trials up to the full model.

    Where nothing that cheap is measured yet the worst score of all stands in: areas never fall, also where
    a generation reaches a new cheapest sub-network.

    Args:
        trials: In the order they were measured, the full model first.
        counts: Trials after each generation.
        cost: The cost that the range is of.
    """
    costs, scores = [trial.costs[cost] for trial in trials], [-trial.score.loss for trial in trials]
    low, high, (worst, _) = min(costs), costs[0], _range(scores)
    if not low < high:
        return [_range(scores[:count])[1] for count in counts]
    return [staircase_area([low, *costs[:n]], [worst, *scores[:n]], low, high) for n in counts]


def _has_converged(areas: Sequence[float], patience: int, trials: Sequence[Trial]) -> bool:
    """Whether the last generations gained next to nothing of the scores' range."""
    low, high = _range([trial.score.loss for trial in trials])
    return len(areas) > patience and areas[-1] - areas[-1 - patience] <= LEAST_GAIN * (high - low)


def _range(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)] or [math.nan]
    return min(known), max(known)
