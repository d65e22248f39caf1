"""The strategies that ``evolve`` can run, by name, and how far each goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ldsearch.errors import RunError
from ldsearch.search.descent import Descent
from ldsearch.search.evolve import Evolve, EvolveSettings
from ldsearch.search.loop import PATIENCE, CostFunction, SearchStrategy
from ldsearch.search.reference import Reference
from ldsearch.search.surrogate import Surrogate
from ldsearch.space import LengthSpace


@dataclass(frozen=True)
class Search:
    """What ``evolve`` runs.

    Args:
        build: Makes the strategy.
        evaluations: The most it measures, unless asked for another number.
        patience: Generations without a gain after which it ends; None: it runs to its own end.
    """

    build: Callable[[LengthSpace, CostFunction, int, EvolveSettings], SearchStrategy]
    evaluations: int = 150
    patience: int | None = PATIENCE


_SEARCHES: Mapping[str, Search] = {
    "nsga": Search(Evolve),
    "surrogate": Search(Surrogate),
    "greedy": Search(lambda space, cost, seed, settings: Descent(space, cost), 1_000, None),
    # The reference keeps its own numbers: the full model, 22 configurations and 30 rounds of 60.
    "lat": Search(lambda space, cost, seed, settings: Reference(space, cost, seed), 1 + 22 + 30 * 60, None),
}


def search_named(strategy: str | None, parity: bool = False) -> Search:
    """The search of that name; None: ``surrogate``, or ``nsga`` with the reference code's numbers.

    Raises:
        RunError: If there is none.
    """
    if strategy is None:
        strategy = "nsga" if parity else "surrogate"
    if strategy not in _SEARCHES:
        raise RunError(f"unknown strategy {strategy!r}: use one of {', '.join(_SEARCHES)}")
    return _SEARCHES[strategy]
