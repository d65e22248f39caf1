"""The strategies that search a space, by name, and how far each goes; others can add their own."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ldsearch.errors import RunError, SpaceError, unknown
from ldsearch.registry import Registry
from ldsearch.search.descent import Descent
from ldsearch.search.evolve import Evolve, EvolveSettings
from ldsearch.search.loop import PATIENCE, CostFunction, SearchStrategy
from ldsearch.search.random_search import RandomSearch
from ldsearch.search.reference import Reference
from ldsearch.search.surrogate import Surrogate
from ldsearch.space import EvolvingSpace
from ldsearch.space.lengths import LengthSpace


@dataclass(frozen=True)
class Asked:
    """What a strategy is made from.

    Args:
        space: The allowed sub-networks.
        cost: The cost that is minimised, as a function of sub-networks.
        seed: Of the proposals.
        evaluations: The most that are measured, the full model included.
        settings: Of strategies that evolve.
        others: Further costs that are minimised, for strategies that can; the others go by ``cost``.
    """

    space: EvolvingSpace
    cost: CostFunction
    seed: int
    evaluations: int
    settings: EvolveSettings = field(default_factory=EvolveSettings)
    others: tuple[CostFunction, ...] = ()


@dataclass(frozen=True)
class Search:
    """A strategy that can be asked for by name.

    Args:
        build: Makes it.
        evaluations: The most it measures, unless asked for another number.
        patience: Generations without a gain after which it ends; None: it runs to its own end.
    """

    build: Callable[[Asked], SearchStrategy]
    evaluations: int = 150
    patience: int | None = PATIENCE


def _reference(asked: Asked) -> SearchStrategy:
    if not isinstance(asked.space, LengthSpace):
        raise SpaceError("lat is the length-adaptive paper's own search: it chooses lengths only")
    return Reference(asked.space, asked.cost, asked.seed)


SEARCHES: Registry[Search] = Registry(
    "searches",
    {
        "surrogate": Search(
            lambda asked: Surrogate(asked.space, asked.cost, asked.seed, asked.settings, asked.others)
        ),
        "nsga": Search(
            lambda asked: Evolve(asked.space, asked.cost, asked.seed, asked.settings, asked.others)
        ),
        "greedy": Search(lambda asked: Descent(asked.space, asked.cost), 1_000, None),
        "random": Search(
            lambda asked: RandomSearch(asked.space, asked.cost, asked.seed, asked.evaluations - 1)
        ),
        # The reference keeps its own numbers: the full model, 22 configurations and 30 rounds of 60.
        "lat": Search(_reference, 1 + 22 + 30 * 60, None),
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
