"""Searches a supernet: what each strategy asks, with which controls beside it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ldsearch.errors import RunError
from ldsearch.search.beam import Beam
from ldsearch.search.constant_ratio import ConstantRatio
from ldsearch.search.every_other import EveryOther, every_other
from ldsearch.search.evolve import EvolveSettings
from ldsearch.search.learned import Learned
from ldsearch.search.random_search import RandomSearch
from ldsearch.search.validation import Validation
from ldsearch.selector import Selector, WithinBudget, parse_selector
from ldsearch.space import DepthSpace, LengthSpace
from ldsearch.subnet import Subnet
from ldsearch.workflows.imitation import shortlist
from ldsearch.workflows.outcome import Question, RunOutcome, Unwatched, Watcher, run
from ldsearch.workflows.searches import search_named
from ldsearch.workflows.signals import SIGNALS
from ldsearch.workflows.workbench import Workbench

_OBJECTIVES = ("score", "kl")
# What controls and held-out scoring add to a search: random search as many measurements again, the
# constant-ratio line and the frontiers on the held-out rows some more.
_CONTROL_SHARE = 1.5


@dataclass(frozen=True)
class Plan:
    """What a search would do.

    Args:
        space: Name of the search space.
        size: How many sub-networks it holds, those too that cost less than the cheapest one searched.
        cheapest: Share of the full model's MACs of its cheapest sub-network.
        dearest: The same of its dearest.
        evaluations: The most evaluations the search makes, its controls not counted.
        minutes: Of search, controls and held-out scoring, were they run one by one; estimated from one
            measured batch and the mean cost of the space's two ends.
    """

    space: str
    size: int
    cheapest: float
    dearest: float
    evaluations: int
    minutes: float


def plan_evolve(
    bench: Workbench,
    *,
    selector: Selector,
    strategy: str | None,
    space: str | None,
    evaluations: int | None,
    parity: bool,
) -> Plan:
    """What ``evolve`` would do, without running it.

    Raises:
        LdsearchError: One line for a bad strategy, budget or space.
    """
    usual = search_named(strategy, parity).evaluations
    chosen = bench.length_space(space, parity)
    _check_reachable(bench, selector, chosen.smallest())
    cheap, dear, full = bench.macs([chosen.smallest(), chosen.largest(), bench.full])
    count = min(usual if evaluations is None else evaluations, chosen.size() + 1)
    mean_share = (cheap + dear) / 2 / full
    passes = count * (1 + _CONTROL_SHARE)
    minutes = bench.evaluator.seconds_per_full_pass() * mean_share * passes / 60
    return Plan(chosen.name, chosen.size(), cheap / full, dear / full, count, minutes)


def evolve(
    bench: Workbench,
    folder: str | Path,
    *,
    selector: Selector | None = None,
    strategy: str | None = None,
    objective: str = "score",
    space: str | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    parity: bool = False,
    watcher: Watcher | None = None,
) -> RunOutcome:
    """Evolutionary search over length configurations; run again to go on or to ask something else.

    Random search and constant ratio are measured beside it with at most as many evaluations in the same
    space, and every frontier once on the rows that nothing was chosen by.

    Args:
        bench: The supernet.
        folder: Where reports go.
        selector: Which sub-network to take, as ``parse_selector("0.4")`` reads it; None: the best score.
        strategy: ``surrogate``, which measures only the children that a Gaussian process thinks most of;
            ``nsga``, which measures all; ``greedy``, which shortens one block after the other; or ``lat``,
            the reference code's. None: ``surrogate``, with ``parity`` ``nsga``.
        objective: ``score``; or ``kl``, which searches by the divergence from the full model's outputs,
            without labels, and measures only the frontier of that by the score.
        space: A shipped search space or a YAML file; None: the range that was trained.
        evaluations: The most sub-networks to measure, the full model included, controls and what ``kl``
            measures by the score not; None: 150, of ``greedy`` and ``lat`` all that they ask.
        seed: Of the search.
        parity: The reference code's grid and numbers of children.
        watcher: Is told what happens.

    Raises:
        LdsearchError: One line for a bad strategy, objective, budget, space or folder.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    found = search_named(strategy, parity)
    if objective not in _OBJECTIVES:
        raise RunError(f"unknown objective {objective!r}: use one of {', '.join(_OBJECTIVES)}")
    evaluations = found.evaluations if evaluations is None else evaluations
    watcher = watcher or Unwatched()
    bench.require_supernet()
    chosen = bench.length_space(space, parity)
    selector = selector or parse_selector()
    _check_reachable(bench, selector, chosen.smallest())
    settings = EvolveSettings.parity() if parity else EvolveSettings()
    # A short search starts from fewer configurations, still spread over the whole cost range.
    short = replace(settings, initial=max(1, min(settings.initial, evaluations - 1)))
    # The full model is measured first in any case; a control that proposes it too may ask for one more.
    spare = int(chosen.contains(bench.full))
    asked = found.build(chosen, bench.macs, seed, short)
    identity = {"seed": seed, "space": _space_identity(chosen), "settings": asdict(settings)}
    by_kl = objective == "kl"
    question = Question(
        shortlist(bench, asked, evaluations, found.patience, watcher) if by_kl else asked,
        {**identity, "evaluations": evaluations} if by_kl else identity,
        None if by_kl else evaluations,
        controls=lambda count: (
            ConstantRatio(chosen, bench.macs, count + spare),
            RandomSearch(chosen, bench.macs, seed, count + spare),
        ),
        patience=found.patience,
        screened=evaluations if by_kl else 0,
    )
    return run(bench, Path(folder), question, selector, watcher)


def select(
    bench: Workbench,
    folder: str | Path,
    *,
    strategy: str,
    selector: Selector | None = None,
    keep: int | None = None,
    space: str | None = None,
    watcher: Watcher | None = None,
) -> RunOutcome:
    """Choose a sub-network by a rule instead of a search.

    ``every-other`` keeps evenly spaced blocks, ``learned`` those with the lowest learned drop rates,
    ``influence`` those that change their input most; ``validation`` measures every choice of blocks,
    ``beam`` leaves them out one by one and goes on from the best few of each depth; ``constant-ratio``
    shortens inputs.

    Args:
        bench: The supernet.
        folder: Where reports go.
        strategy: The rule.
        selector: Which sub-network to take; None: the best score at any cost.
        keep: How many blocks to keep; None tries every depth. Not for ``constant-ratio``.
        space: For ``constant-ratio``: a search space as for ``evolve``.
        watcher: Is told what happens.

    Raises:
        LdsearchError: One line for a bad strategy, budget, depth or folder.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    question, cheapest = _question(bench, strategy, keep, space)
    selector = selector or parse_selector()
    _check_reachable(bench, selector, cheapest)
    return run(bench, Path(folder), question(), selector, watcher or Unwatched())


def untrained(bench: Workbench, strategy: str, keep: int | None, space: str | None) -> list[str]:
    """What the supernet was not trained for but this choice asks for, in words."""
    return bench.untrained(_question(bench, strategy, keep, space)[1])


def _question(bench: Workbench, strategy: str, keep: int | None, space: str | None) -> "_Rule":
    """What makes the question, which may take a while, and its cheapest sub-network."""
    bench.require_supernet()
    if strategy not in _RULES:
        raise RunError(f"unknown strategy {strategy!r}: use one of {', '.join(_RULES)}")
    if len(bench.supernet.stacks) > 1:
        raise RunError(
            "select chooses blocks of one stack: 'ldsearch grid' measures an encoder-decoder's depths"
        )
    return _RULES[strategy](bench, keep, space)


_Rule = tuple[Callable[[], Question], Subnet]


def _every_other_rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
    if space is not None:
        raise RunError("every-other chooses blocks by a rule and takes no --space")
    depths = [keep] if keep is not None else list(range(1, bench.supernet.blocks + 1))
    blocks, pinned, stack = bench.supernet.blocks, bench.supernet.pinned, bench.supernet.stack
    cheapest = Subnet.of_blocks({stack: every_other(blocks, min(depths), pinned)})
    return lambda: Question(EveryOther(blocks, depths, pinned, stack), {"depths": depths}), cheapest


def _validation_rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
    if space is not None:
        raise RunError("validation tries every choice of blocks and takes no --space")
    chosen = _depths(bench, keep, "validation")
    search = Validation(chosen)
    return lambda: Question(search, {"depths": list(chosen.keep)}), chosen.smallest()


def _beam_rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
    if space is not None:
        raise RunError("beam leaves blocks out one by one and takes no --space")
    chosen = _depths(bench, keep, "beam")
    search = Beam(chosen)
    identity = {"depths": list(chosen.keep), "width": search.width}
    # Each shallower depth may score worse than the last: only the least depth ends it.
    return lambda: Question(search, identity, patience=None, wanted=chosen.contains), chosen.smallest()


def _depths(bench: Workbench, keep: int | None, name: str) -> DepthSpace:
    """All choices of so many blocks, or of any number."""
    own = bench.supernet
    depths = tuple(range(max(1, len(own.pinned)), own.blocks + 1)) if keep is None else (keep,)
    return DepthSpace(name, "every depth", own.blocks, depths, own.pinned, own.stack)


def _constant_ratio_rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
    if keep is not None:
        raise RunError("constant-ratio shortens inputs and keeps every block: it takes no --keep")
    chosen = bench.length_space(space, parity=False)
    rule = ConstantRatio(chosen, bench.macs, EvolveSettings().initial)
    return lambda: Question(rule, {"space": _space_identity(chosen)}), chosen.smallest()


def _signal_rule(signal: str) -> Callable[[Workbench, int | None, str | None], _Rule]:
    """The rule that keeps the blocks with the strongest signal."""

    def rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
        if space is not None:
            raise RunError(f"{signal} chooses blocks by a signal and takes no --space")
        chosen = _depths(bench, keep, signal)

        def question() -> Question:
            values = SIGNALS[signal](bench, keep)
            facts = {"signal": [float(value) for value in values]}
            return Question(Learned(chosen, values, signal), {"depths": list(chosen.keep)}, facts=facts)

        return question, chosen.smallest()

    return rule


_RULES: dict[str, Callable[[Workbench, int | None, str | None], _Rule]] = {
    "every-other": _every_other_rule,
    "constant-ratio": _constant_ratio_rule,
    "validation": _validation_rule,
    "beam": _beam_rule,
    **{signal: _signal_rule(signal) for signal in SIGNALS},
}


def _check_reachable(bench: Workbench, selector: Selector, cheapest: Subnet) -> None:
    if isinstance(selector, WithinBudget):
        least, full = bench.evaluator.costs_of([cheapest, bench.full])
        selector.budget.check_reachable(least, full, cheapest.describe())


def _space_identity(space: LengthSpace) -> dict[str, Any]:
    return {k: v for k, v in asdict(space).items() if k not in ("name", "source")}
