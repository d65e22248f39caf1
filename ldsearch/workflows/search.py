"""Searches a supernet and writes what it found: trials.csv, frontier.csv, frontier.png, best.json."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ldsearch.costs.budget import Budget
from ldsearch.errors import BudgetError, RunError
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.reports.figures import Marks, draw_frontier, save_figure
from ldsearch.reports.tables import frontier_table, trials_table, write_csv
from ldsearch.runs import BEST_FILE, RUN_FILE, claim
from ldsearch.search.constant_ratio import ConstantRatio
from ldsearch.search.every_other import EveryOther, every_other
from ldsearch.search.evolve import Evolve, EvolveSettings
from ldsearch.search.loop import SearchResult, SearchStrategy, best_within, search
from ldsearch.space import LengthSpace
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial
from ldsearch.workflows.workbench import Workbench

EVALUATIONS = 150
OnTrial = Callable[[Trial], None]


@dataclass(frozen=True)
class Plan:
    """What a search would do.

    Args:
        space: Name of the search space.
        size: How many sub-networks it holds.
        cheapest: Share of the full model's MACs of its cheapest sub-network.
        dearest: The same of its dearest.
        evaluations: The most evaluations the search makes.
        minutes: Estimated from one measured batch and the mean cost of the space's two ends.
    """

    space: str
    size: int
    cheapest: float
    dearest: float
    evaluations: int
    minutes: float


@dataclass(frozen=True)
class RunOutcome:
    """A finished search.

    Args:
        folder: Where its reports lie.
        result: Every trial, the reason it stopped.
        best: The best trial within the budget (without one: the best of what the strategy proposed).
    """

    folder: Path
    result: SearchResult
    best: Trial


def plan_evolve(
    bench: Workbench, *, budget: str | None, space: str | None, evaluations: int, parity: bool
) -> Plan:
    """What ``evolve`` would do, without running it.

    Raises:
        LdsearchError: One line for a bad budget or space.
    """
    chosen = bench.length_space(space, parity)
    _checked_budget(bench, budget, chosen.smallest())
    cheap, dear, full = bench.macs([chosen.smallest(), chosen.largest(), bench.full])
    count = min(evaluations, chosen.size() + 1)
    mean_share = (cheap + dear) / 2 / full
    seconds = bench.evaluator.seconds_per_full_pass() * mean_share * count
    return Plan(chosen.name, chosen.size(), cheap / full, dear / full, count, seconds / 60)


def evolve(
    bench: Workbench,
    folder: str | Path,
    *,
    budget: str | None = None,
    space: str | None = None,
    evaluations: int = EVALUATIONS,
    seed: int = 0,
    parity: bool = False,
    on_trial: OnTrial | None = None,
) -> RunOutcome:
    """Evolutionary search over length configurations; run again to go on or to ask another budget.

    Args:
        bench: The supernet.
        folder: Where reports go.
        budget: Such as ``"0.4"``; None takes the best score at any cost.
        space: A shipped search space or a YAML file; None: the range that was trained.
        evaluations: The most sub-networks to measure, the full model included.
        seed: Of the search.
        parity: The reference code's grid and numbers of children.
        on_trial: Called after each measurement.

    Raises:
        LdsearchError: One line for a bad budget, space or folder.
    """
    chosen = bench.length_space(space, parity)
    limit = _checked_budget(bench, budget, chosen.smallest())
    settings = EvolveSettings.parity() if parity else EvolveSettings()
    strategy = Evolve(chosen, bench.macs, seed, settings)
    identity = {"seed": seed, "space": _space_identity(chosen), "settings": asdict(settings)}
    line = strategy.propose(0, ())  # the initial population is the constant-ratio line
    return _run(bench, Path(folder), strategy, identity, evaluations, limit, line, on_trial)


def select(
    bench: Workbench,
    folder: str | Path,
    *,
    strategy: str,
    budget: str | None = None,
    keep: int | None = None,
    space: str | None = None,
    on_trial: OnTrial | None = None,
) -> RunOutcome:
    """Choose a sub-network by a rule instead of a search: ``every-other`` or ``constant-ratio``.

    Args:
        bench: The supernet.
        folder: Where reports go.
        strategy: The rule.
        budget: Such as ``"0.4"``; None takes the best score at any cost.
        keep: For ``every-other``: how many blocks to keep; None tries every depth.
        space: For ``constant-ratio``: a search space as for ``evolve``.
        on_trial: Called after each measurement.

    Raises:
        LdsearchError: One line for a bad strategy, budget, depth or folder.
    """
    if strategy not in _RULES:
        raise RunError(f"unknown strategy {strategy!r}: use one of {', '.join(_RULES)}")
    rule, cheapest, identity, line = _RULES[strategy](bench, keep, space)
    limit = _checked_budget(bench, budget, cheapest)
    return _run(bench, Path(folder), rule, identity, None, limit, line, on_trial)


_Rule = tuple[SearchStrategy, Subnet, dict[str, Any], list[Subnet]]


def _every_other_rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
    if space is not None:
        raise RunError("every-other chooses blocks by a rule and takes no --space")
    depths = [keep] if keep is not None else list(range(1, bench.supernet.blocks + 1))
    cheapest = Subnet.of_encoder(every_other(bench.supernet.blocks, min(depths)))
    return EveryOther(bench.supernet.blocks, depths), cheapest, {"depths": depths}, []


def _constant_ratio_rule(bench: Workbench, keep: int | None, space: str | None) -> _Rule:
    if keep is not None:
        raise RunError("constant-ratio shortens inputs and keeps every block: it takes no --keep")
    chosen = bench.length_space(space, parity=False)
    rule = ConstantRatio(chosen, bench.macs, EvolveSettings().initial)
    return rule, chosen.smallest(), {"space": _space_identity(chosen)}, rule.subnets


_RULES: dict[str, Callable[[Workbench, int | None, str | None], _Rule]] = {
    "every-other": _every_other_rule,
    "constant-ratio": _constant_ratio_rule,
}


def _checked_budget(bench: Workbench, text: str | None, cheapest: Subnet) -> Budget | None:
    if text is None:
        return None
    budget = Budget.parse(text)
    least, full = bench.evaluator.costs_of([cheapest, bench.full])
    budget.check_reachable(least, full, cheapest.describe())
    return budget


def _space_identity(space: LengthSpace) -> dict[str, Any]:
    return {k: v for k, v in asdict(space).items() if k not in ("name", "source")}


def _run(
    bench: Workbench,
    folder: Path,
    strategy: SearchStrategy,
    identity: dict[str, Any],
    evaluations: int | None,
    budget: Budget | None,
    line: Sequence[Subnet],
    on_trial: OnTrial | None,
) -> RunOutcome:
    """Search, then write the reports; everything a report is made of is on disk before."""
    if evaluations is not None and evaluations < 1:
        raise RunError(f"a search needs at least one evaluation, not {evaluations}")
    fingerprint = bench.evaluator.fingerprint
    claim(folder, RUN_FILE, {"strategy": strategy.name, "fingerprint": fingerprint, **identity})
    result = search(
        strategy,
        lambda subnets, generation: bench.evaluator(subnets, generation, on_trial),
        bench.full,
        evaluations=evaluations,
        on_generation=lambda so_far: write_csv(trials_table(so_far.trials, set(line)), folder / "trials.csv"),
    )
    limit = math.inf if budget is None else budget.absolute(result.trials[0].costs)
    best = best_within(result.candidates, "macs" if budget is None else budget.cost, limit)
    if best is None:
        raise BudgetError(
            f"none of the {len(result.candidates)} measured sub-networks can be chosen "
            f"(budget {budget.text if budget else 'none'}): allow more --evaluations"
        )
    _report(bench, folder, strategy.name, result, best, budget, line)
    _write_run(bench, folder, strategy.name, identity, result, budget)
    return RunOutcome(folder, result, best)


def _report(
    bench: Workbench,
    folder: Path,
    name: str,
    result: SearchResult,
    best: Trial,
    budget: Budget | None,
    line: Sequence[Subnet],
) -> None:
    full = result.trials[0]
    table = trials_table(result.trials, set(line))
    write_csv(table, folder / "trials.csv")
    write_csv(frontier_table(table), folder / "frontier.csv")
    share = None
    if budget is not None and budget.cost == "macs":
        share = budget.absolute(full.costs) / full.costs["macs"]
    chosen = None if budget is None else result.trials.index(best)
    save_figure(
        draw_frontier(table, Marks(f"{bench.folder.name}: {name}", chosen, share)), folder / "frontier.png"
    )
    write_json(
        folder / BEST_FILE,
        {
            "subnet": json.loads(best.subnet.to_json()),
            "budget": None if budget is None else budget.text,
            "metric": best.metric,
            "score": best.score.value,
            "full_score": full.score.value,
            "split": best.split,
            "examples": best.examples,
            "costs": dict(best.costs),
            "full_costs": dict(full.costs),
            "fingerprint": best.fingerprint,
            "supernet": os.path.relpath(bench.folder, folder),  # so that both may move together
        },
    )


def _write_run(
    bench: Workbench,
    folder: Path,
    name: str,
    identity: dict[str, Any],
    result: SearchResult,
    budget: Budget | None,
) -> None:
    counts = bench.evaluator.counts
    write_json(
        folder / RUN_FILE,
        {
            "identity": {"strategy": name, "fingerprint": bench.evaluator.fingerprint, **identity},
            "supernet": os.path.relpath(bench.folder, folder),  # so that both may move together
            "budget": None if budget is None else budget.text,
            "stopped": result.stopped,
            "trials": len(result.trials),
            "frontier": len(result.frontier),
            "areas": result.areas,
            "this_call": asdict(counts),
            "measured_as": "fp32, batches of like length, one sub-network at a time",
            "workload": bench.macs.workload.to_dict(),
            "versions": versions(),
        },
    )
