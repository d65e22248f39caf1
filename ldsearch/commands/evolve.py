"""Searches a supernet, or chooses by a rule: the frontier, its controls, and the sub-network asked for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ldsearch.bench import Bench
from ldsearch.commands.console import best_so_far, open_bench, print_notes, progress_bars, resumable
from ldsearch.commands.screen import print_outcome
from ldsearch.errors import RunError
from ldsearch.evaluation.memory import GIB
from ldsearch.latency.fastest import AUTO
from ldsearch.latency.whole import OWN
from ldsearch.options import Evolve, flags
from ldsearch.options.binding import changed
from ldsearch.runs.run import newest_supernet
from ldsearch.search.latencies import know_latency, known_runtime, settle_runtime
from ldsearch.search.run import CONTROL_SHARE, RunOutcome, SearchSpec, plan_search, run_search
from ldsearch.search.spaces import LEAST_SHARE, training_gaps
from ldsearch.trials.goal import Goal
from ldsearch.work.progress import NO_PROGRESS, Progress

# Options that a search and the rule that it is compared with share.
_SHARED = frozenset({"supernet", "runs", "data", "storage", "swap", "budget", "at_least", "most_accurate"})
BELOW = f"--widen searches lengths down to {LEAST_SHARE:g} of the MACs, further than was trained"


def main(options: Evolve) -> dict[str, Any]:
    """Search and print the frontier and the choice."""
    goal = _goal(options)  # before anything is loaded
    _ = options.place("x")
    if options.latency_table is not None and goal.cell is None:
        raise RunError("--latency-table is for a latency: --objective latency@..., or a --budget in ms")
    split = "report" if options.swap else "search"
    supernet = options.supernet or newest_supernet(options.runs)
    bench = open_bench(supernet, options.runs, options.data, split=split, storage=options.storage)
    if options.dry_run:
        runtime = known_runtime(bench, goal.cell, options.latency_table, options.runtime, _note)
        settled = replace(options, runtime=runtime or OWN[0])
        return _print_size(bench, _planned(bench, settled, goal, _note, known=runtime is not None))
    genes = [options.genes] if options.genes else []
    kind = "-".join([options.strategy or "evolve", *genes, *goal.name_parts])
    name = options.name or f"{bench.folder.name}-{kind}{'-swap' if options.swap else ''}"
    options = replace(options, name=name, supernet=supernet)
    bars_of = progress_bars(best=best_so_far(goal))
    with resumable("run the same command again; nothing measured is lost"), bars_of as bars:
        outcome = evolve(bench, options.place(name), options, progress=bars, note=_note)
    printed = print_outcome(outcome, bench)
    gains = outcome.held_out.gains if outcome.held_out else {}
    if "regular" in gains and gains["regular"].low <= 0:
        print("not significantly better than regular configurations, which need no search")
    elif "constant-ratio" in gains and gains["constant-ratio"].low <= 0:
        kept = {name: value for name, value in changed(options).items() if name in _SHARED}
        command = flags("evolve", {**kept, "strategy": "constant-ratio"})
        print(f"not significantly better than a constant ratio, which needs no search:\n  {command}")
    return printed


def _note(text: str) -> None:
    print_notes([text])


def _goal(options: Evolve) -> Goal:
    return Goal.parse(options.objective, options.budget, options.at_least, options.most_accurate)


def evolve(
    bench: Bench,
    folder: str | Path,
    options: Evolve | None = None,
    *,
    progress: Progress = NO_PROGRESS,
    note: Callable[[str], None] = lambda text: None,
) -> RunOutcome:
    """Search lengths, depths and groups, alone or together; run again to go on or to ask something else.

    Random search and the space's regular configurations (of lengths: constant ratio) are measured with a
    search, at most as many evaluations in the same space, and every frontier once on the rows that nothing
    was chosen by. A rule has no controls.

    Args:
        bench: The supernet.
        folder: Where reports go.
        options: See ``Evolve``; those that open the supernet and name the folder are not read here.
        progress: Receives phases and trials.
        note: Called with what the supernet was not trained for.

    Raises:
        LdsearchError: One line for a bad strategy, objective, budget, space or folder.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    options = options or Evolve()
    goal = _goal(options)
    options = _settled(bench, options, goal, Path(folder), note, progress)
    spec = _planned(bench, options, goal, note, progress)
    return run_search(bench, Path(folder), spec, goal, options, progress)


def bound_memory(bench: Bench, gib: float | None) -> None:
    """Let searches and held-out scores of a supernet take so much memory in all, what is loaded included.

    Args:
        bench: The supernet.
        gib: None: the default.

    Raises:
        RunError: If model, data and batches of one row take more.
    """
    for evaluator in (bench.held_out, bench.evaluator):
        if evaluator is not None:
            evaluator.bound = None if gib is None else gib * GIB
            evaluator.forget()
    bench.evaluator.memory.check()


def _settled(
    bench: Bench,
    options: Evolve,
    goal: Goal,
    folder: Path | None,
    note: Callable[[str], None],
    progress: Progress = NO_PROGRESS,
) -> Evolve:
    """The options with the runtime that ``auto`` stands for."""
    if options.runtime != AUTO:
        return options
    return replace(
        options, runtime=settle_runtime(bench, goal.cell, options.latency_table, folder, note, progress)
    )


def _planned(
    bench: Bench,
    options: Evolve,
    goal: Goal,
    note: Callable[[str], None],
    progress: Progress = NO_PROGRESS,
    known: bool = True,
) -> SearchSpec:
    """The search that the options name; refuses a budget below the cheapest sub-network of its space.

    Where the milliseconds of the runtime are not ``known`` a budget of them is not judged.
    """
    know_latency(bench, goal.cell, options.latency_table, options.runtime, progress)
    bound_memory(bench, options.max_memory)
    spec = plan_search(bench, options, goal.costs)
    if goal.budget is not None and (known or goal.in_time is None):
        cheapest = spec.context.space.smallest()
        least, full = bench.evaluator.costs_of([cheapest, bench.full])
        alone = spec.context.space.varies == ("lengths",)
        otherwise = BELOW if alone else f"--genes lengths {BELOW}"
        if not spec.controlled or not bench.supernet.supports_lengths or (alone and options.widen):
            otherwise = ""
        goal.budget.check_reachable(least, full, cheapest.describe(), otherwise)
    for text in training_gaps(bench, spec.context.space):
        note(text)
    return spec


def _print_size(bench: Bench, spec: SearchSpec) -> dict[str, Any]:
    """Size, duration and memory of a search, without running it.

    The minutes are those of search, controls and held-out scoring, were they run one by one; estimated from
    one measured batch and the mean cost of the space's two ends.

    Raises:
        RunError: If it is a rule.
    """
    if spec.evaluations is None:
        raise RunError("--dry-run is for searches: a rule measures the few sub-networks it names")
    space = spec.context.space
    cheap, dear, full = bench.macs([space.smallest(), space.largest(), bench.full])
    passes = spec.evaluations * (1 + CONTROL_SHARE)
    minutes = bench.evaluator.seconds_per_full_pass() * (cheap + dear) / 2 / full * passes / 60
    print(f"search space {space.name}: up to {space.size():,} sub-networks")
    print(f"cheapest {cheap / full:.3f}, dearest {dear / full:.3f} of the full model's MACs")
    peak = bench.evaluator.expected_peak(spec.evaluations)
    print(f"at most {spec.evaluations} evaluations and controls, at most some {minutes:.1f} minutes")
    print(f"peak memory: at most some {peak / GIB:.1f} GiB")
    return {
        "space": space.name,
        "size": space.size(),
        "cheapest": cheap / full,
        "dearest": dear / full,
        "evaluations": spec.evaluations,
        "minutes": minutes,
        "peak_memory_bytes": peak,
    }
