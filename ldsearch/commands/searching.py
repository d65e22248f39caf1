"""Runs a strategy and its controls, scores the frontier on held-out rows, and writes the reports."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.binding import changed
from ldsearch.commands.latencies import Latencies, choose, measured_latencies
from ldsearch.commands.options import Evolve
from ldsearch.commands.timed import write_latencies
from ldsearch.errors import RunError
from ldsearch.evaluation.evaluator import Counts, Evaluator, peak_memory
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.goal import Goal
from ldsearch.interruption import interruptible
from ldsearch.progress import Progress, Stoppable
from ldsearch.reports.figures import Marks, draw_frontier, save_figure
from ldsearch.reports.held_out import HeldOut, held_out_table, hold_out
from ldsearch.reports.tables import frontier_table, trials_table, write_csv
from ldsearch.runs import BEST_FILE, FRONTIER_FILE, RUN_FILE, Choice, HeldOutScore, claim
from ldsearch.search.loop import PATIENCE, Evaluate, SearchResult, SearchStrategy, search
from ldsearch.subnet import Subnet
from ldsearch.training.checkpoints import report_disk_full
from ldsearch.trial import Trial, pareto_front


@dataclass(frozen=True)
class SearchSpec:
    """Strategy, identity, evaluation budget and controls of a search.

    Args:
        strategy: What proposes.
        identity: What makes two runs the same run, beside the strategy's name and the fingerprint.
        evaluations: The most sub-networks to measure, the full model included; None: all proposals.
        facts: What else ``run.json`` says.
        controls: Given how many sub-networks the strategy measured, the controls of as many.
        patience: Generations without a gain after which the search ends; None: it never ends for that.
        selectable: Whether a proposal may be chosen; others are stepping stones of the strategy.
        prescreened: Sub-networks that a cheaper score has measured for the strategy; controls get as many.
    """

    strategy: SearchStrategy
    identity: Mapping[str, Any]
    evaluations: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    controls: Callable[[int], Sequence[SearchStrategy]] = lambda count: ()
    patience: int | None = PATIENCE
    selectable: Callable[[Subnet], bool] = lambda subnet: True
    prescreened: int = 0


@dataclass(frozen=True)
class RunOutcome:
    """A finished search.

    Args:
        folder: Where its reports lie.
        result: Every trial, the reason it stopped.
        best: The trial that was taken.
        goal: What was minimised and taken.
        controls: The controls' results, by name.
        held_out: The frontier on rows that nothing was chosen by; None where there are none.
        counts: What search and controls took on the split that chose.
        latencies: Of what search and controls found, measured; None where no latency was asked for.
    """

    folder: Path
    result: SearchResult
    best: Trial
    goal: Goal
    controls: Mapping[str, SearchResult]
    held_out: HeldOut | None
    counts: Counts
    latencies: Latencies | None = None


def run_search(
    bench: Bench, folder: Path, spec: SearchSpec, goal: Goal, options: Evolve, progress: Progress
) -> RunOutcome:
    """Search, choose, search with the controls, score the frontiers on held-out rows, write the reports.

    Args:
        bench: The supernet.
        folder: The run's.
        spec: The search.
        goal: What it minimises, and which trial is taken.
        options: As the user gave them, for the record.
        progress: Receives phases and trials.

    Raises:
        LdsearchError: One line for a bad folder, or where nothing measured will do.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    evaluations, strategy, costs = spec.evaluations, spec.strategy, goal.costs
    if evaluations is not None and evaluations < 2:
        raise RunError(f"a search needs the full model and one more evaluation, not {evaluations} in all")
    identity = {
        "strategy": strategy.name,
        "fingerprint": bench.evaluator.fingerprint,
        **goal.identity,
        **spec.identity,
    }
    claim(folder, RUN_FILE, identity)
    # The goal may be another one now: the old choice must not pass for its own if this is killed.
    (folder / BEST_FILE).unlink(missing_ok=True)
    with interruptible() as stop, report_disk_full(folder):
        progress = Stoppable(progress, stop)
        evaluate = evaluate_with(bench.evaluator, progress)

        def write_trials(so_far: SearchResult) -> None:
            write_csv(trials_table(so_far.trials, strategy.name, costs), folder / "trials.csv")

        def searched(
            asked: SearchStrategy, most: int | None, after: Callable[[SearchResult], None] | None = None
        ) -> SearchResult:
            progress.phase(asked.name, most)
            return search(
                asked,
                evaluate,
                bench.full,
                evaluations=most,
                patience=spec.patience,
                selectable=spec.selectable,
                costs=costs,
                on_generation=after,
            )

        result = searched(strategy, evaluations, write_trials)
        full = result.trials[0]
        predicted = goal.choose(result.candidates, full)  # refuses before the controls run
        measured = max(len(result.trials), spec.prescreened)
        controls = {control.name: searched(control, measured) for control in spec.controls(measured - 1)}
        found = [predicted, *pareto_front(result.candidates, costs), *result.frontier]
        for control in controls.values():
            found += control.frontier

        latencies = measured_latencies(bench, goal.cell, found, progress)
        best = choose(result.candidates, full, goal, latencies)
        held = _hold_out(bench, result, best, controls, progress)
        counts = bench.evaluator.counts
        outcome = RunOutcome(folder, result, best, goal, controls, held, counts, latencies)
        _write_tables(bench, strategy.name, outcome)
        if latencies is not None:
            # The first control is the line of regular configurations.
            beside = {name: control.frontier for name, control in islice(controls.items(), 1)}
            write_latencies(bench, folder, latencies, {"frontier": result.frontier, **beside}, full)
        _write_run(bench, identity, {**spec.facts, "options": changed(options)}, outcome)
        _write_best(bench, outcome)
    return outcome


def evaluate_with(evaluator: Evaluator, progress: Progress) -> Evaluate:
    """An evaluator that reports every trial, and that it waits for other workers."""

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        return evaluator(subnets, generation, progress.trial, progress.waiting)

    return evaluate


def _hold_out(
    bench: Bench,
    result: SearchResult,
    best: Trial,
    controls: Mapping[str, SearchResult],
    progress: Progress,
) -> HeldOut | None:
    evaluator = bench.held_out
    if evaluator is None:
        return None
    fronts = {name: control.frontier for name, control in controls.items()}
    # A parameter budget can choose what is on no frontier of score against MACs.
    chosen = {trial.subnet: trial for trial in (*result.frontier, best)}
    cost = result.costs[0]
    points = sorted(chosen.values(), key=lambda trial: trial.costs[cost])
    wanted = [result.trials[0], *points, *(trial for front in fronts.values() for trial in front)]
    subnets = list(dict.fromkeys(trial.subnet for trial in wanted))
    progress.phase(f"{evaluator.split} split", len(subnets))
    evaluate_with(evaluator, progress)(subnets, 0)
    return hold_out(
        points,
        result.trials[0],
        evaluator.split,
        evaluator.statistics,
        fronts,
        bench.task.metric.of_means,
        cost,
    )


def _write_tables(bench: Bench, name: str, outcome: RunOutcome) -> None:
    folder, result = outcome.folder, outcome.result
    costs = result.costs
    table = trials_table(result.trials, name, costs)
    write_csv(table, folder / "trials.csv")
    front = frontier_table(table, costs[0])
    held = None
    if outcome.held_out is not None:
        points = [result.trials.index(row.trial) for row in outcome.held_out.rows]
        held = pd.concat(
            [table.iloc[points].reset_index(drop=True), held_out_table(outcome.held_out)], axis=1
        )
        front = held[held["on_frontier"]]
    write_csv(front, folder / FRONTIER_FILE)
    controls = None
    if outcome.controls:
        controls = pd.concat(
            [trials_table(control.trials, own, costs) for own, control in outcome.controls.items()]
        )
        write_csv(controls, folder / "controls.csv")
    share = outcome.goal.budget_share(result.trials[0].costs)
    marks = Marks(f"{bench.folder.name}: {name}", result.trials.index(outcome.best), share, costs)
    save_figure(draw_frontier(table, marks, controls, held), folder / "frontier.png")


def _write_best(bench: Bench, outcome: RunOutcome) -> None:
    best, full, held = outcome.best, outcome.result.trials[0], outcome.held_out
    held_out = None
    if held is not None:
        row = next(row for row in held.rows if row.trial.subnet == best.subnet)
        held_out = HeldOutScore(held.split, row.score, held.full_score, row.difference)
    choice = Choice(
        subnet=best.subnet,
        selector=outcome.goal.text,
        metric=best.metric,
        score=best.score.value,
        full_score=full.score.value,
        split=best.split,
        examples=best.examples,
        held_out=held_out,
        costs=dict(best.costs),
        full_costs=dict(full.costs),
        fingerprint=best.fingerprint,
        supernet=os.path.relpath(bench.folder, outcome.folder),  # so that both may move together
    )
    write_json(outcome.folder / BEST_FILE, choice.to_dict())


def _write_run(
    bench: Bench, identity: Mapping[str, Any], facts: Mapping[str, Any], outcome: RunOutcome
) -> None:
    result, held, cache = outcome.result, outcome.held_out, bench.evaluator.cache
    asked = (trial.subnet for own in (result, *outcome.controls.values()) for trial in own.trials)
    evaluators = [bench.evaluator] if bench.held_out is None else [bench.evaluator, bench.held_out]
    write_json(
        outcome.folder / RUN_FILE,
        {
            "identity": dict(identity),
            **facts,
            "supernet": os.path.relpath(bench.folder, outcome.folder),
            "measurements": os.path.relpath(bench.runs, outcome.folder),
            "split": bench.evaluator.split,
            "selector": outcome.goal.text,
            "stopped": result.stopped,
            "trials": len(result.trials),
            "workers": cache.workers(asked) if cache is not None else 1,
            "storage": cache.backend.name if cache is not None and bench.storage else None,
            "frontier": len(result.frontier),
            "areas": result.areas,
            "costs": list(result.costs),
            **({"latency": outcome.latencies.to_dict(outcome.best.subnet)} if outcome.latencies else {}),
            "controls": {name: len(control.trials) for name, control in outcome.controls.items()},
            "held_out": None
            if held is None
            else {
                "split": held.split,
                "fingerprint": evaluators[-1].fingerprint,
                "area": None if math.isnan(held.area) else held.area,
                "optimism": held.optimism,
                "gains": {name: asdict(gain) for name, gain in held.gains.items()},
                "in_words": held.describe(),
            },
            "this_call": {evaluator.split: asdict(evaluator.counts) for evaluator in evaluators},
            "peak_memory_bytes": peak_memory(),
            "measured_as": "fp32, batches of like length, sub-networks with common prefixes together",
            "workload": bench.evaluator.encoded.workload.to_dict(),
            "versions": versions(),
        },
    )
