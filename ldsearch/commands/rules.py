"""Rules that choose a sub-network, most of them without a search."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ldsearch.bench import Bench
from ldsearch.commands.grid import trained_assignment
from ldsearch.commands.searching import SearchSpec
from ldsearch.commands.signals import SIGNALS
from ldsearch.commands.spaces import pinned_of, search_space
from ldsearch.errors import RunError, unknown
from ldsearch.registry import Registry
from ldsearch.search.climbing import Beam, Swaps
from ldsearch.search.controls import ConstantRatio
from ldsearch.search.loop import EvolveSettings, StrategyContext
from ldsearch.search.rules import (
    PLACES,
    Chunks,
    EveryOther,
    EveryOtherLiteral,
    Learned,
    Listed,
    Validation,
    literal_depths,
)
from ldsearch.search.strategies import SEARCHES
from ldsearch.space import DepthGenes, Space
from ldsearch.space.assignments import configurations
from ldsearch.subnet import Subnet


@dataclass(frozen=True)
class RuleContext:
    """Arguments for building a rule.

    Args:
        bench: The supernet.
        keep: How many blocks of each stack; None: any number.
        space: A search space of lengths, for rules that shorten inputs.
        seed: Of rules that draw.
        costs: Names of the costs that are minimised, by rules that search.
    """

    bench: Bench
    keep: tuple[int, ...] | None = None
    space: str | None = None
    seed: int = 0
    costs: tuple[str, ...] = ("macs",)

    def depths(self, name: str) -> tuple[DepthGenes, ...]:
        """The choices of blocks of each stack.

        Raises:
            RunError: If a space was named, or there is not one number of blocks for each stack.
            SpaceError: If there are not so many blocks.
        """
        own = self.bench.supernet
        if self.space is not None:
            raise RunError(f"{name} chooses blocks and takes no --space")
        if self.keep is not None and len(self.keep) != len(own.depths):
            raise RunError(
                f"--keep names {len(self.keep)} numbers of blocks; this model has {len(own.depths)} "
                f"({' and '.join(own.depths)}): --keep {','.join(map(str, own.depths.values()))} is all"
            )
        spaces = []
        for index, (stack, blocks) in enumerate(own.depths.items()):
            pinned = pinned_of(own, stack)
            any_depth = tuple(range(max(1, len(pinned)), blocks + 1))
            keep = any_depth if self.keep is None else (self.keep[index],)
            spaces.append(DepthGenes(stack, blocks, keep, pinned))
        return tuple(spaces)

    def one_stack(self, name: str) -> DepthGenes:
        """The choices of blocks of the only stack.

        Raises:
            RunError: If there are two, or a space was named.
        """
        depths = self.depths(name)
        if len(depths) > 1:
            raise RunError(f"{name} chooses blocks of one stack, this model has two")
        return depths[0]


@dataclass(frozen=True)
class Rule:
    """A rule for one supernet.

    Args:
        spec: Makes its search, which may take a while.
        cheapest: Its cheapest sub-network.
    """

    spec: Callable[[], SearchSpec]
    cheapest: Subnet


def rule_named(
    bench: Bench,
    strategy: str,
    keep: int | Sequence[int] | None = None,
    space: str | None = None,
    seed: int = 0,
    costs: tuple[str, ...] = ("macs",),
) -> Rule:
    """The rule of that name for a supernet.

    Raises:
        LdsearchError: One line for a bad strategy or depth.
    """
    bench.require_supernet()
    kept = (keep,) if isinstance(keep, int) else None if keep is None else tuple(keep)
    choice = RuleContext(bench, kept, space, seed, costs)
    if strategy in RULES:
        return RULES[strategy](choice)
    if strategy in SEARCHES:
        return _search_rule(strategy, choice)
    raise RunError(unknown("strategy", strategy, [*RULES, *SEARCHES]))


def _across(name: str, lists: Sequence[Listed]) -> Listed:
    """Of two stacks every pair."""
    pairs = itertools.product(*(own.subnets for own in lists))
    merged = ({k: v for one in pair for k, v in one.stacks().items()} for pair in pairs)
    return Listed(name, [Subnet(**stacks) for stacks in merged])


def _depths_in_words(depths: Sequence[DepthGenes]) -> dict[str, Any]:
    kept = [list(depth.keep) for depth in depths]
    return {"depths": kept[0] if len(kept) == 1 else kept}


def _per_stack(name: str, make: Callable[[DepthGenes], Listed], choice: RuleContext) -> Rule:
    """A rule that lists sub-networks of each stack on its own."""
    depths = choice.depths(name)
    listed = _across(name, [make(depth) for depth in depths])
    cheapest = Space(name, "every depth", depths).smallest()
    return Rule(lambda: SearchSpec(listed, _depths_in_words(depths)), cheapest)


def _literal_rule(choice: RuleContext) -> Rule:
    depths = choice.depths("every-other-literal")
    if choice.keep is None:
        depths = tuple(replace(depth, keep=literal_depths(depth.blocks)) for depth in depths)
    listed = _across("every-other-literal", [EveryOtherLiteral(depth) for depth in depths])
    return Rule(lambda: SearchSpec(listed, _depths_in_words(depths)), Space("", "", depths).smallest())


def _assignment_rule(choice: RuleContext) -> Rule:
    depths = choice.depths("assignment")
    own = {depth.stack: depth.blocks for depth in depths}
    assignment = trained_assignment(choice.bench)
    grid = configurations(own, assignment)
    subnets = [
        subnet
        for subnet in grid.values()
        if choice.keep in (None, tuple(len(stack.blocks) for stack in subnet.stacks().values()))
    ]
    if not subnets:
        raise RunError(f"the assignment {assignment} has depths {list(grid)}, not {choice.keep}")
    identity = {**_depths_in_words(depths), "assignment": assignment}
    return Rule(lambda: SearchSpec(Listed("assignment", subnets), identity), subnets[0])


def _validation_rule(choice: RuleContext) -> Rule:
    chosen = Space("validation", "every depth", choice.depths("validation"))
    search = Validation(chosen)
    return Rule(lambda: SearchSpec(search, _depths_in_words(choice.depths("validation"))), chosen.smallest())


def _beam_rule(choice: RuleContext) -> Rule:
    chosen = Space("beam", "every depth", choice.depths("beam"))
    search = Beam(chosen)
    identity = {**_depths_in_words(choice.depths("beam")), "width": search.width}
    # Each shallower depth may score worse than the last: only the least depth ends it.
    return Rule(
        lambda: SearchSpec(search, identity, patience=None, selectable=chosen.contains), chosen.smallest()
    )


def _swaps_rule(choice: RuleContext) -> Rule:
    depth = choice.one_stack("swaps")
    search = Swaps(depth, choice.seed)
    identity = {**_depths_in_words([depth]), "seed": choice.seed, "sampled": search.sampled}
    cheapest = Space("swaps", "every depth", (depth,)).smallest()
    return Rule(lambda: SearchSpec(search, identity, patience=None), cheapest)


def _constant_ratio_rule(choice: RuleContext) -> Rule:
    if choice.keep is not None:
        raise RunError("constant-ratio shortens inputs and keeps every block: it takes no --keep")
    bench = choice.bench
    chosen = search_space(bench, choice.space, None if choice.space else "lengths")
    most = 1 + EvolveSettings().initial
    context = StrategyContext(chosen, bench.cost(choice.costs[0]), evaluations=most, floor=bench.macs)
    identity = {"space": chosen.identity()}
    return Rule(lambda: SearchSpec(ConstantRatio(context), identity), chosen.smallest())


def _signal_rule(signal: str, choice: RuleContext) -> Rule:
    """The rule that keeps the blocks with the strongest signal."""
    depth = choice.one_stack(signal)

    def spec() -> SearchSpec:
        values = SIGNALS[signal](choice.bench, None if choice.keep is None else choice.keep[0])
        facts = {"signal": [float(value) for value in values]}
        return SearchSpec(Learned(depth, values, signal), _depths_in_words([depth]), facts=facts)

    return Rule(spec, Space(signal, "every depth", (depth,)).smallest())


def _search_rule(strategy: str, choice: RuleContext) -> Rule:
    """A search of depths."""
    found = SEARCHES[strategy]
    chosen = Space("depth", "every depth", choice.depths(strategy))
    count = min(found.evaluations, chosen.size() + 1)
    cost, *others = (choice.bench.cost(name) for name in choice.costs)
    context = StrategyContext(chosen, cost, choice.seed, count, others=tuple(others), floor=choice.bench.macs)
    searched = found.build(context)
    identity = {**_depths_in_words(choice.depths(strategy)), "seed": choice.seed}
    return Rule(
        lambda: SearchSpec(searched, identity, max(2, count), patience=found.patience), chosen.smallest()
    )


_OWN: Mapping[str, Callable[[RuleContext], Rule]] = {
    "every-other": partial(_per_stack, "every-other", EveryOther),
    "every-other-literal": _literal_rule,
    **{
        f"chunk-{place}": partial(_per_stack, f"chunk-{place}", partial(Chunks, place=place))
        for place in PLACES
    },
    "assignment": _assignment_rule,
    "validation": _validation_rule,
    "beam": _beam_rule,
    "swaps": _swaps_rule,
    **{signal: partial(_signal_rule, signal) for signal in SIGNALS},
    "constant-ratio": _constant_ratio_rule,
}
RULES: Registry[Callable[[RuleContext], Rule]] = Registry("rules", _OWN)
