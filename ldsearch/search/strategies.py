"""The strategies by name: searches of a space, and rules with a space of their own; others can add theirs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ldsearch.errors import RunError, unknown
from ldsearch.registry import Registry
from ldsearch.search.climbing import Beam, Descent, Swaps
from ldsearch.search.controls import constant_ratio, random_search
from ldsearch.search.evolve import Evolve, Surrogate
from ldsearch.search.halving import Halving, HalvingOptions
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
        options: A dataclass of options of its own, each with a default, which tells its type; an instance
            is the context's ``options``. None: it has none.
    """

    build: Callable[[StrategyContext], SearchStrategy]
    evaluations: int | None = 150
    patience: int | None = PATIENCE
    draws: bool = True
    chooses: str = "depth"
    genes: str | None = None
    options: type | None = None

    def options_of(self, given: Mapping[str, Any]) -> Any:
        """Its own options: as they are given, as text or as values, else its defaults.

        Raises:
            RunError: If it has none of that name, or a value is of another type.
        """
        known = {} if self.options is None else {own.name: own.default for own in fields(self.options)}
        for name in given:
            if name not in known:
                raise RunError(f"--option {name}: this strategy has {', '.join(known) or 'no options'}")
        return (
            None
            if self.options is None
            else self.options(**{name: _typed(name, value, known[name]) for name, value in given.items()})
        )


def _typed(name: str, value: Any, default: Any) -> Any:
    kind = type(default)
    try:
        if kind is bool and isinstance(value, str):
            return {"true": True, "false": False}[value.lower()]
        return kind(value)
    except (KeyError, TypeError, ValueError):
        raise RunError(f"--option {name} is of type {kind.__name__}, not {value!r}") from None


SEARCHES: Registry[Search] = Registry(
    "searches",
    {
        "surrogate": Search(Surrogate),
        "nsga": Search(Evolve),
        "greedy": Search(Descent, 1_000, None),
        "random": Search(random_search),
        # The reference keeps its own numbers: the full model, 22 configurations and 30 rounds of 60.
        "lat": Search(Reference, 1 + 22 + 30 * 60, None, genes="lengths"),
        "halving": Search(Halving, patience=None, options=HalvingOptions),
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
