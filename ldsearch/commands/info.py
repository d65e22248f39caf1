"""Describes a folder, or answers another budget from everything that was measured on its supernet."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldsearch.commands.console import describe_choice, print_fields, print_table
from ldsearch.commands.options import Info
from ldsearch.errors import RunError, one_line
from ldsearch.files import write_json
from ldsearch.goal import Budget, Goal
from ldsearch.runs import CACHE_FILE, RUN_FILE, SUPERNET_FILE, beside, read_json
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial, pareto_front


def main(options: Info) -> dict[str, Any]:
    """Print what the folder holds, or choose among what was measured on it."""
    chooses = options.budget or options.at_least or options.most_accurate or options.save
    if not chooses:
        from ldsearch.commands.describe import info  # torch, which answering a budget needs not

        fields = info(options.folder)
        print_fields(fields)
        return dict(fields)
    if options.save is not None and options.save.exists():
        raise RunError(f"{options.save} exists already: choose another --save")
    goal = Goal.parse(budget=options.budget, at_least=options.at_least, most_accurate=options.most_accurate)
    answer = answer_from_measurements(options.folder, goal, options.storage)
    best, full = answer.best, answer.full
    print_table(
        f"frontier: {len(answer.frontier)} of {len(answer.trials)} measured sub-networks",
        ["MACs share", f"{full.metric}, {full.split}", "sub-network"],
        [
            [f"{t.costs['macs'] / full.costs['macs']:.3f}", f"{t.score.value:.4f}", t.subnet.describe()]
            for t in answer.frontier
        ],
        next((index for index, trial in enumerate(answer.frontier) if trial is best), None),
    )
    print(f"measurements of {answer.run}, and of every other search on the same supernet and rows")
    print(f"chosen: {describe_choice(best, full)}")
    if answer.nearest:
        print(answer.nearest)
    subnet = json.loads(best.subnet.to_json())
    if options.save is not None:
        try:
            options.save.parent.mkdir(parents=True, exist_ok=True)
            # With the rows that chose it, so that evaluate reports on others.
            write_json(options.save, {"subnet": subnet, "split": best.split})
        except OSError as error:
            raise RunError(f"cannot write {options.save}: {error.strerror or error}") from error
        print(f"written: {options.save}; next: ldsearch evaluate {options.folder} --subnet {options.save}")
    return {"subnet": subnet, "score": best.score.value, "costs": dict(best.costs)}


@dataclass(frozen=True)
class MeasuredChoice:
    """A choice among the measurements of every search on one supernet and split.

    Args:
        run: The run folder that named the measurements.
        trials: All of them.
        full: The full model.
        frontier: The non-dominated ones, cheapest first.
        best: What the goal takes.
        nearest: How far the nearest measured sub-networks are from the budget, in words; empty where no
            budget was given.
    """

    run: Path
    trials: tuple[Trial, ...]
    full: Trial
    frontier: tuple[Trial, ...]
    best: Trial
    nearest: str


def answer_from_measurements(folder: str | Path, goal: Goal, storage: str | None = None) -> MeasuredChoice:
    """Choose among everything measured on a supernet, whichever search measured it.

    Args:
        folder: A search run, or a supernet (its newest run then, of those that chose on the search rows
            if there is one).
        goal: Which sub-network to take.
        storage: Where its workers shared their measurements, if they did: a SQLAlchemy URL or
            ``journal:PATH``.

    Raises:
        RunError: If the folder is neither, nothing was measured, or the measurements cannot be read.
        BudgetError: If nothing measured will do.
    """
    run = _run_of(Path(folder))
    fields = read_json(run / RUN_FILE)
    try:
        fingerprint = str(fields["identity"]["fingerprint"])
        runs, home = (beside(run, str(fields[name])) for name in ("measurements", "supernet"))
    except (KeyError, TypeError) as error:
        raise RunError(f"{run} is no finished search ({one_line(error)}): run its command again") from error
    if not (home / SUPERNET_FILE).is_file():
        raise RunError(f"the supernet of {run} is not at {home} any more")
    if fields.get("storage") and storage is None:
        raise RunError(f"the workers of {run} shared {fields['storage']}: say where it is with --storage")
    cache = MeasurementCache(storage or runs / CACHE_FILE, fingerprint)
    trials, place = cache.trials(), cache.backend.name
    if not trials:
        raise RunError(f"{place} has no measurements of {run}")
    full = cache.get(_full(home))
    if full is None:
        raise RunError(f"{place} has no measurement of the full model: run {run}'s command again")
    best = goal.take.choose(trials, full)
    nearest = _nearest(trials, full, goal.budget) if goal.budget is not None else ""
    return MeasuredChoice(run, trials, full, tuple(pareto_front(trials)), best, nearest)


def _full(home: Path) -> Subnet:
    fields = read_json(home / SUPERNET_FILE)
    return Subnet.full(**(fields.get("depths") or {"encoder": int(fields["blocks"])}))


def _run_of(folder: Path) -> Path:
    if (folder / RUN_FILE).is_file():
        return folder
    if not (folder / SUPERNET_FILE).is_file():
        raise RunError(f"{folder} is neither a supernet nor a search run")
    own = os.path.normpath(folder.absolute())
    found: list[tuple[bool, int, Path]] = []
    for path in sorted(folder.parent.glob(f"*/{RUN_FILE}"), key=lambda path: path.stat().st_mtime):
        fields = read_json(path)
        if os.path.normpath((path.parent / str(fields.get("supernet", "?"))).absolute()) == own:
            # Chosen on the search rows, unless there is no such run: report rows are to report on.
            found.append((fields.get("split") == "search", len(found), path.parent))
    if not found:
        raise RunError(f"nothing was measured on {folder} yet: search it with 'ldsearch evolve'")
    return max(found)[-1]


def _nearest(trials: tuple[Trial, ...], full: Trial, budget: Budget) -> str:
    cost, limit = budget.cost, budget.absolute(full.costs)
    within = max((t for t in trials if t.costs[cost] <= limit), key=lambda t: t.costs[cost])
    beyond = min((t for t in trials if t.costs[cost] > limit), key=lambda t: t.costs[cost], default=None)
    total = full.costs[cost]

    def words(trial: Trial) -> str:
        gap = abs(trial.costs[cost] - limit) / total
        return f"{trial.costs[cost] / total:.3f} of the {cost} ({gap:.3f} away)"

    above = "nothing above it is measured" if beyond is None else f"the next above it {words(beyond)}"
    return f"nearest measured within the budget {words(within)}; {above}"
