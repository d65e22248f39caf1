"""What a comparison asks, strategies at budgets, and the rows that answer it."""

import math
from dataclasses import dataclass

from ldsearch.costs.budget import Budget
from ldsearch.errors import RunError
from ldsearch.search.searches import SEARCHES
from ldsearch.workflows.select import RULES
from ldsearch.workflows.spaces import kinds_of

RANDOM = "random"


@dataclass(frozen=True)
class Entry:
    """A strategy, and the genes that it searches.

    Args:
        strategy: A key of ``SEARCHES`` or ``RULES``.
        genes: As for ``evolve``; None: of a search what it has by default, of a rule what it chooses.
    """

    strategy: str
    genes: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Entry":
        """Read ``"surrogate"``, ``"surrogate:depth+lengths"`` or ``"every-other"``.

        Raises:
            RunError: If there is no such strategy, or a rule is given genes.
            SpaceError: If a gene is unknown.
        """
        strategy, _, genes = text.partition(":")
        if strategy not in SEARCHES and strategy not in RULES:
            raise RunError(f"unknown strategy {strategy!r}: use one of {', '.join([*SEARCHES, *RULES])}")
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
    def control(self) -> "Entry":
        """Random search of the same genes; of a rule's, of depths or of lengths."""
        if self.strategy in SEARCHES:
            return Entry(RANDOM, self.genes)
        # What a constant ratio shortens is what a search has by default.
        return Entry(RANDOM, None if self.strategy == "constant-ratio" else "depth")


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Args:
        entries: The strategies; random search of the same genes is added to each.
        budgets: Shares of the full model's MACs.
        evaluations: The most of each search, the full model included.
        seeds: How many searches of each strategy that draws.
    """

    entries: tuple[Entry, ...]
    budgets: tuple[float, ...] = (0.4, 0.55, 0.7)
    evaluations: int = 150
    seeds: int = 3

    def __post_init__(self) -> None:
        if not self.entries or not self.budgets or self.evaluations < 2 or self.seeds < 1:
            raise RunError("a comparison needs strategies, budgets, 2 evaluations and a seed at least")
        for budget in self.budgets:
            Budget.parse(f"{budget:g}")

    @property
    def all_entries(self) -> list[Entry]:
        """The entries and their controls, each once."""
        return list(dict.fromkeys([*self.entries, *(entry.control for entry in self.entries)]))


@dataclass(frozen=True)
class Cell:
    """What a strategy found for a budget. A row of compare.csv; without a choice its numbers are NaN.

    Args:
        supernet: The supernet's folder name.
        strategy: ``Entry.text``.
        limit: ``"evaluations"``: all that the search measured; ``"passes"``: its first trials, up to the
            one-by-one cost of the cheapest seeded search.
        budget: Share of the full model's MACs.
        seeds: Searches that found something within it.
        share: The choices' mean share.
        score: Their mean held-out score.
        low: Lower end of its 95% bootstrap interval over examples.
        high: Upper end.
        gain: ``score`` minus that of random search over the same genes, in the direction of better.
        gain_low: Lower end of its 95% paired bootstrap interval.
        gain_high: Upper end.
        evaluations: Mean number of measured sub-networks.
        passes: Their mean cost in passes of the full model over the split, were they run one by one.
        metric: Name of the score.
        examples: Held-out examples.
        subnets: The choices, as JSON.
    """

    supernet: str
    strategy: str
    limit: str
    budget: float
    seeds: int = 0
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
    examples: int = 0
    subnets: str = ""
