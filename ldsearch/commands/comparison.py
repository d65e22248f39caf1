"""Comparisons: strategies and runs at budgets, and the rows of their tables."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ldsearch.commands.spaces import kinds_of
from ldsearch.errors import RunError, unknown
from ldsearch.goal import Budget
from ldsearch.search.loop import SearchResult
from ldsearch.search.strategies import RULES, SEARCHES
from ldsearch.trial import Trial

RANDOM = "random"


@dataclass(frozen=True)
class StrategyEntry:
    """A strategy, and the genes that it searches.

    Args:
        strategy: A key of ``SEARCHES`` or ``RULES``.
        genes: As for ``evolve``; None: of a search what it has by default, of a rule what it chooses.
    """

    strategy: str
    genes: str | None = None

    @classmethod
    def parse(cls, text: str) -> "StrategyEntry":
        """Read ``"surrogate"``, ``"surrogate:depth+lengths"`` or ``"every-other"``.

        Raises:
            RunError: If there is no such strategy, or a rule is given genes.
            SpaceError: If a gene is unknown.
        """
        strategy, _, genes = text.partition(":")
        if strategy not in SEARCHES and strategy not in RULES:
            raise RunError(unknown("strategy", strategy, [*SEARCHES, *RULES]))
        if genes and strategy not in SEARCHES:
            raise RunError(f"{strategy} is a rule that knows what it chooses: it takes no genes")
        if genes:
            kinds_of(genes)
        return cls(strategy, genes or None)

    @property
    def text(self) -> str:
        """As ``parse`` reads it."""
        return f"{self.strategy}:{self.genes}" if self.genes else self.strategy

    @property
    def control(self) -> "StrategyEntry":
        """Random search of the same genes; of a rule's, of depths or of lengths."""
        if self.strategy in SEARCHES:
            return StrategyEntry(RANDOM, self.genes)
        # What a constant ratio shortens is what a search has by default.
        return StrategyEntry(RANDOM, None if self.strategy == "constant-ratio" else "depth")


@dataclass(frozen=True)
class Comparison:
    """Options of a comparison.

    Args:
        entries: The strategies, searched on every supernet; random search of the same genes is added.
        budgets: Shares of the full model's MACs.
        evaluations: The most of each search, the full model included.
        seeds: How many searches of each strategy that draws.
        runs: Folders of finished runs.
    """

    entries: tuple[StrategyEntry, ...] = ()
    budgets: tuple[float, ...] = (0.4, 0.55, 0.7)
    evaluations: int = 150
    seeds: int = 3
    runs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.entries or self.runs) or not self.budgets or self.evaluations < 2 or self.seeds < 1:
            raise RunError(
                "a comparison needs strategies or runs, budgets, 2 evaluations and a seed at least"
            )
        for budget in self.budgets:
            Budget.parse(f"{budget:g}")

    @property
    def all_entries(self) -> list[StrategyEntry]:
        """The entries and their controls, each once."""
        return list(dict.fromkeys([*self.entries, *(entry.control for entry in self.entries)]))


@dataclass(frozen=True)
class Contender:
    """One line of a comparison: the searches of a supernet by a strategy, a finished run, or its control.

    Args:
        text: As the tables name it.
        results: What was measured, for each seed.
        control: The ``text`` of what it is to be better than; None where there is nothing.
        seeded: Whether it is a search that draws, by whose cost others are limited; rules are not.
        finished: Whether it was finished before: of such, others have no more evaluations either.
    """

    text: str
    results: tuple[SearchResult, ...]
    control: str | None
    seeded: bool
    finished: bool = False


@dataclass(frozen=True)
class Limit:
    """How far into every search a choice looks.

    Args:
        name: ``"evaluations"`` or ``"passes"``.
        evaluations: The most trials.
        macs: The most multiply-accumulates, per example and one sub-network after the other.
    """

    name: str
    evaluations: float
    macs: float

    @staticmethod
    def of(contenders: Sequence[Contender]) -> "tuple[Limit, Limit]":
        """Equal evaluations and equal cost among what is measured on the same rows."""
        seeded = [(own, result) for own in contenders if own.seeded for result in own.results]
        counts = [len(result.trials) for own, result in seeded if own.finished]
        spent = [sum(trial.costs["macs"] for trial in result.trials) for _, result in seeded]
        return (
            Limit("evaluations", min(counts, default=math.inf), math.inf),
            Limit("passes", math.inf, min(spent, default=math.inf)),
        )

    def first(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """The trials within it, in the order they were measured."""
        spent = itertools.accumulate(trial.costs["macs"] for trial in trials)
        affordable = sum(cost <= self.macs * (1 + 1e-9) for cost in spent)
        return trials[: int(min(self.evaluations, affordable))]


@dataclass(frozen=True)
class ComparisonRow:
    """The choice of a strategy for a budget. A row of compare.csv; without a choice its numbers are NaN.

    Args:
        supernet: The supernet's folder name.
        strategy: ``StrategyEntry.text``, or the run's name.
        limit: ``"evaluations"``: all that the search measured, or its first trials, as many as the shortest
            seeded run or control of one; ``"passes"``: its first trials, up to the one-by-one cost of the
            cheapest seeded search. Both of all that is compared on the same rows, of whichever supernet.
        budget: Share of the full model's MACs.
        seeds: Searches that found something within it.
        macs: The choices' mean MACs per example.
        share: Their mean share of the full model's.
        score: Their mean held-out score.
        low: Lower end of its 95% bootstrap interval over examples.
        high: Upper end.
        gain: ``score`` minus that of random search over the same genes, in the direction of better; of a run
            minus that of its own random control.
        gain_low: Lower end of its 95% paired bootstrap interval.
        gain_high: Upper end.
        evaluations: Mean number of measured sub-networks.
        passes: Their mean cost in passes of the full model over the split, were they run one by one; not in
            it is what was measured by another score first (``--objective kl``).
        metric: Name of the score.
        chosen_on: Split that the choices were made on.
        split: Split of ``score``; that of the choices where there is no other.
        examples: Its examples.
        subnets: The choices, as JSON.
    """

    supernet: str
    strategy: str
    limit: str
    budget: float
    seeds: int = 0
    macs: float = math.nan
    share: float = math.nan
    score: float = math.nan
    low: float = math.nan
    high: float = math.nan
    gain: float = math.nan
    gain_low: float = math.nan
    gain_high: float = math.nan
    evaluations: float = math.nan
    passes: float = math.nan
    metric: str = ""
    chosen_on: str = ""
    split: str = ""
    examples: int = 0
    subnets: str = ""
