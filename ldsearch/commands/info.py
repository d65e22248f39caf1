"""Describes a folder, or answers another budget from everything that was measured on its supernet."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ldsearch.commands.console import (
    describe_choice,
    print_columns,
    print_fields,
    print_paragraph,
    print_summary,
    print_table,
)
from ldsearch.commands.housekeeping import is_runs, list_runs
from ldsearch.disk.files import write_json
from ldsearch.disk.records import typed
from ldsearch.errors import LdsearchError, RunError, of_system, one_line
from ldsearch.options import Info
from ldsearch.runs.compressed import Compressed
from ldsearch.runs.run import CACHE_FILE, RUN_FILE, SUPERNET_FILE, Run, beside, read_json, run_within
from ldsearch.runs.summary import Summary
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.trials.budget import Budget
from ldsearch.trials.goal import Goal
from ldsearch.trials.trial import Trial, pareto_front


def main(options: Info) -> dict[str, Any]:
    """Print what the folder holds, or choose among what was measured on it."""
    chooses = options.budget or options.at_least or options.most_accurate or options.save
    if not chooses and is_runs(options.folder):
        return list_runs(options.folder, options.clean)
    if options.clean:
        raise RunError(f"--clean is for a folder of runs, which {options.folder} is not")
    if not chooses:
        return _print_folder(options.folder)
    if options.save is not None and options.save.exists():
        raise RunError(f"{options.save} exists already: choose another --save")
    goal = Goal.parse(budget=options.budget, at_least=options.at_least, most_accurate=options.most_accurate)
    if goal.in_time is not None:
        raise RunError(
            "measurements do not say at which batch and length a latency was taken: ldsearch evolve --budget "
            f"{goal.in_time.source} answers, and measures no score twice"
        )
    run = _run_of(options.folder)
    trials, full = _measurements(run, options.storage)
    best, front = goal.take.choose(trials, full), pareto_front(trials)
    print_table(
        f"frontier: {len(front)} of {len(trials)} measured sub-networks",
        ["MACs share", f"{full.metric}, {full.split}", "sub-network"],
        [
            [f"{t.costs['macs'] / full.costs['macs']:.3f}", f"{t.score.value:.4f}", t.subnet.describe()]
            for t in front
        ],
        next((index for index, trial in enumerate(front) if trial is best), None),
    )
    print(f"measurements of {run}, and of every other search on the same supernet and rows")
    print(f"chosen: {describe_choice(best, full)}")
    if goal.budget is not None:
        print(_nearest(trials, full, goal.budget))
    subnet = json.loads(best.subnet.to_json())
    if options.save is not None:
        try:
            options.save.parent.mkdir(parents=True, exist_ok=True)
            # With the rows that chose it, so that evaluate reports on others.
            write_json(options.save, {"subnet": subnet, "split": best.split})
        except OSError as error:
            raise of_system(f"cannot write {options.save}", error) from error
        print(f"written: {options.save}; next: ldsearch evaluate {options.folder} --subnet {options.save}")
    return {"subnet": subnet, "score": best.score.value, "costs": dict(best.costs)}


def _print_folder(folder: Path) -> dict[str, Any]:
    """Print what a folder holds; of a search or of compress the table first."""
    from ldsearch.commands.describe import info  # torch, which answering a budget needs not

    fields = info(folder)
    run = Run.open(folder) if "trials" in fields else None
    done = Compressed.open(folder) or (Summary.of_run(run) if run is not None else None)
    if done is not None:
        print_summary(done)
        print()
    print_fields(fields)
    if run is not None:
        _print_details(run)
    return dict(fields)


def _print_details(run: Run) -> None:
    """The whole frontier, what held-out rows say of it, and what the controls measured."""
    held = run.best.held_out
    headings = ["MACs", f"{run.best.metric}, {run.best.split}"]
    headings += [held.split, "minus full, 95%"] if held else []
    rows, chosen = [], None
    for at, point in enumerate(run.points()):
        share = point.costs["macs"] / point.full_costs["macs"]
        cells = [f"{share:.3f}", f"{point.score:.4f}"]
        if (own := point.held_out) is not None:
            gap = own.difference
            cells += [f"{own.score:.4f}", f"{gap.low:+.4f} to {gap.high:+.4f}"]
        rows.append([*cells, point.subnet.describe()])
        chosen = at if point.subnet == run.best.subnet else chosen
    print("\nfrontier, cheapest first")
    print_columns([*headings, "sub-network"], rows, chosen)
    sentences = (run.fields["held_out"] or {}).get("in_words", [])
    controls = [f"control {name}: {count} trials" for name, count in run.fields["controls"].items()]
    for sentence in [*sentences, *controls]:
        print_paragraph(sentence)


def _measurements(run: Path, storage: str | None) -> tuple[Sequence[Trial], Trial]:
    """Everything measured on a run's supernet and rows, whichever search measured it; and the full model.

    Args:
        run: The run's folder.
        storage: Where its workers shared their measurements, if they did.

    Raises:
        RunError: If it is unfinished, nothing was measured, or the measurements cannot be read.
    """
    fields = read_json(run / RUN_FILE)
    try:
        fingerprint = str(fields["identity"]["fingerprint"])
        runs, home = (beside(run, typed(fields[name], str, name)) for name in ("measurements", "supernet"))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run} is no finished search ({one_line(error)}): run its command again") from error
    if not (home / SUPERNET_FILE).is_file():
        raise RunError(f"the supernet of {run} is not at {home} any more")
    if fields.get("storage") and storage is None:
        raise RunError(f"the workers of {run} shared {fields['storage']}: say where it is with --storage")
    cache = MeasurementCache(storage or runs / CACHE_FILE, fingerprint)
    trials, place = cache.trials(), cache.backend.name
    if not trials:
        raise RunError(f"{place} has no measurements of {run}")
    full = cache.get(_full_of(home))
    if full is None:
        raise RunError(f"{place} has no measurement of the full model: run {run}'s command again")
    return trials, full


def _full_of(supernet: Path) -> Subnet:
    """The full model; not by way of a SupernetRecord, which would load torch."""
    path = supernet / SUPERNET_FILE
    fields = read_json(path)
    try:
        depths = typed(fields.get("depths") or {"encoder": fields["blocks"]}, dict[str, int], "depths")
        return Subnet.full(**depths)
    except (KeyError, ValueError, TypeError, LdsearchError) as error:
        raise RunError(f"{path} is damaged: {one_line(error)}") from error


def _run_of(folder: Path) -> Path:
    """The run itself; of a supernet the newest that chose on the search rows, or else the newest."""
    folder = run_within(folder)
    if (folder / RUN_FILE).is_file():
        return folder
    if not (folder / SUPERNET_FILE).is_file():
        raise RunError(f"{folder} is neither a supernet nor a search run")
    own = os.path.normpath(folder.absolute())
    found: list[tuple[bool, int, Path]] = []
    for path in sorted(folder.parent.glob(f"*/{RUN_FILE}"), key=lambda path: path.stat().st_mtime):
        fields = read_json(path)
        if os.path.normpath((path.parent / str(fields.get("supernet", "?"))).absolute()) == own:
            found.append((fields.get("split") == "search", len(found), path.parent))
    if not found:
        raise RunError(f"nothing was measured on {folder} yet: search it with 'ldsearch evolve'")
    return max(found)[-1]


def _nearest(trials: Sequence[Trial], full: Trial, budget: Budget) -> str:
    cost, limit = budget.cost, budget.absolute(full.costs)
    within = max((t for t in trials if t.costs[cost] <= limit), key=lambda t: t.costs[cost])
    beyond = min((t for t in trials if t.costs[cost] > limit), key=lambda t: t.costs[cost], default=None)
    total = full.costs[cost]

    def words(trial: Trial) -> str:
        gap = abs(trial.costs[cost] - limit) / total
        return f"{trial.costs[cost] / total:.3f} of the {cost} ({gap:.3f} away)"

    above = "nothing above it is measured" if beyond is None else f"the next above it {words(beyond)}"
    return f"nearest measured within the budget {words(within)}; {above}"
