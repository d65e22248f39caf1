"""The strategies that search a space, by name, and how far each goes; others can add their own."""

from collections.abc import Callable
from dataclasses import dataclass

from ldsearch.errors import RunError, unknown
from ldsearch.registry import Registry
from ldsearch.search.climbing import Descent
from ldsearch.search.controls import RandomSearch
from ldsearch.search.evolve import Evolve, Surrogate
from ldsearch.search.loop import PATIENCE, SearchStrategy, StrategyContext
from ldsearch.search.reference import Reference


@dataclass(frozen=True)
class Search:
    """A registered strategy.

    Args:
        build: Makes it.
        evaluations: The most it measures by default.
        patience: Generations without a gain after which it ends; None: it runs to its own end.
    """

    build: Callable[[StrategyContext], SearchStrategy]
    evaluations: int = 150
    patience: int | None = PATIENCE


SEARCHES: Registry[Search] = Registry(
    "searches",
    {
        "surrogate": Search(Surrogate),
        "nsga": Search(Evolve),
        "greedy": Search(Descent, 1_000, None),
        "random": Search(RandomSearch),
        # The reference keeps its own numbers: the full model, 22 configurations and 30 rounds of 60.
        "lat": Search(Reference, 1 + 22 + 30 * 60, None),
    },
)


def search_named(strategy: str | None, parity: bool = False) -> Search:
    """The search of that name; None: ``surrogate``, or ``nsga`` with the reference code's numbers.

    Raises:
        RunError: If there is none.
    """
    if strategy is None:
        strategy = "nsga" if parity else "surrogate"
    if strategy not in SEARCHES:
        raise RunError(unknown("strategy", strategy, SEARCHES))
    return SEARCHES[strategy]
