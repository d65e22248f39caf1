"""The strategies by name: searches of a space, and rules with a space of their own; others can add theirs."""

from collections.abc import Callable
from dataclasses import dataclass

from ldsearch.errors import RunError, unknown
from ldsearch.registry import Registry
from ldsearch.search.climbing import Beam, Descent, Swaps
from ldsearch.search.controls import constant_ratio, random_search
from ldsearch.search.evolve import Evolve, Surrogate
from ldsearch.search.loop import PATIENCE, EvolveSettings, SearchStrategy, StrategyContext
from ldsearch.search.reference import Reference
from ldsearch.search.rules import (
    PLACES,
    build_every_other_literal,
    by_signal,
    every_choice,
    every_other,
    per_stack,
    without_chunk,
)


@dataclass(frozen=True)
class Search:
    """A registered strategy.

    Args:
        build: Makes it.
        evaluations: The most it measures by default; None: all it proposes.
        patience: Generations without a gain after which it ends; None: it runs to its own end.
        draws: Whether its proposals depend on the seed.
        chooses: Of a rule: ``"depth"``, any blocks; ``"assignment"``, the listed depths that were trained;
            ``"lengths"``. A search chooses among the genes that the user names.
        genes: Of a search, where the user names none; None: what was trained.
    """

    build: Callable[[StrategyContext], SearchStrategy]
    evaluations: int | None = 150
    patience: int | None = PATIENCE
    draws: bool = True
    chooses: str = "depth"
    genes: str | None = None


SEARCHES: Registry[Search] = Registry(
    "searches",
    {
        "surrogate": Search(Surrogate),
        "nsga": Search(Evolve),
        "greedy": Search(Descent, 1_000, None),
        "random": Search(random_search),
        # The reference keeps its own numbers: the full model, 22 configurations and 30 rounds of 60.
        "lat": Search(Reference, 1 + 22 + 30 * 60, None, genes="lengths"),
    },
    of=Search,
)


def _rule(build: Callable[[StrategyContext], SearchStrategy], chooses: str = "depth") -> Search:
    return Search(build, None, draws=False, chooses=chooses)


RULES: Registry[Search] = Registry(
    "rules",
    {
        "every-other": _rule(
            per_stack("every-other", lambda depth, keep: every_other(depth.blocks, keep, depth.pinned))
        ),
        "every-other-literal": _rule(build_every_other_literal),
        **{f"chunk-{place}": _rule(per_stack(f"chunk-{place}", without_chunk(place))) for place in PLACES},
        "assignment": _rule(every_choice("assignment"), "assignment"),
        "validation": _rule(every_choice("validation")),
        # Each shallower depth may score worse than the last: only the least depth ends it.
        "beam": Search(Beam, None, None, draws=False),
        "swaps": Search(Swaps, None, None),
        "learned": _rule(by_signal("learned")),
        "influence": _rule(by_signal("influence")),
        "constant-ratio": Search(
            constant_ratio, 1 + EvolveSettings().initial, draws=False, chooses="lengths"
        ),
    },
    of=Search,
)


def search_named(strategy: str | None, parity: bool = False) -> Search:
    """The search or rule of that name; None: ``surrogate``, or ``nsga`` with the reference code's numbers.

    Raises:
        RunError: If there is none.
    """
    if strategy is None:
        strategy = "nsga" if parity else "surrogate"
    if strategy not in SEARCHES and strategy not in RULES:
        raise RunError(unknown("strategy", strategy, [*SEARCHES, *RULES]))
    return SEARCHES[strategy] if strategy in SEARCHES else RULES[strategy]
