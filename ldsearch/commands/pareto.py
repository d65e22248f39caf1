"""Answers another budget from what is already measured: no model is loaded and nothing is run."""

import os
from dataclasses import dataclass
from pathlib import Path

from ldsearch.errors import RunError, one_line
from ldsearch.runs import CACHE_FILE, RUN_FILE, SUPERNET_FILE, beside, read_json
from ldsearch.selector import Selector, WithinBudget
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial, pareto_front


@dataclass(frozen=True)
class Answer:
    """What the measurements of every strategy on one supernet and split say.

    Args:
        run: The run folder that named the measurements.
        trials: All of them.
        full: The full model.
        frontier: The non-dominated ones, cheapest first.
        best: What the selector takes.
        nearest: How far the nearest measured sub-networks are from the budget, in words; empty where no
            budget was given.
    """

    run: Path
    trials: tuple[Trial, ...]
    full: Trial
    frontier: tuple[Trial, ...]
    best: Trial
    nearest: str


def pareto(folder: str | Path, selector: Selector, storage: str | None = None) -> Answer:
    """Choose among everything measured on a supernet, whichever search measured it.

    Args:
        folder: A search run, or a supernet (its newest run then, of those that chose on the search rows
            if there is one).
        selector: Which sub-network to take.
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
    best = selector.choose(trials, full)
    nearest = _nearest(trials, full, selector) if isinstance(selector, WithinBudget) else ""
    return Answer(run, trials, full, tuple(pareto_front(trials)), best, nearest)


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


def _nearest(trials: tuple[Trial, ...], full: Trial, selector: WithinBudget) -> str:
    cost, limit = selector.budget.cost, selector.budget.absolute(full.costs)
    within = max((t for t in trials if t.costs[cost] <= limit), key=lambda t: t.costs[cost])
    beyond = min((t for t in trials if t.costs[cost] > limit), key=lambda t: t.costs[cost], default=None)
    total = full.costs[cost]

    def words(trial: Trial) -> str:
        gap = abs(trial.costs[cost] - limit) / total
        return f"{trial.costs[cost] / total:.3f} of the {cost} ({gap:.3f} away)"

    above = "nothing above it is measured" if beyond is None else f"the next above it {words(beyond)}"
    return f"nearest measured within the budget {words(within)}; {above}"
