"""Runs a strategy and its controls, scores the frontier on held-out rows, and writes the reports."""

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.disk.files import report_disk_full, write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import RunError
from ldsearch.evaluation import Counts, Evaluator, peak_memory
from ldsearch.latency.whole import OWN
from ldsearch.options import Evolve
from ldsearch.options.binding import changed
from ldsearch.reports.figures import draw_frontier
from ldsearch.reports.held_out import HeldOut, controls_table, held_out_table, hold_out
from ldsearch.reports.style import save_figure
from ldsearch.reports.tables import frontier_table, trials_table, write_csv
from ldsearch.runs.folder import claimed
from ldsearch.runs.run import BEST_FILE, FRONTIER_FILE, RUN_FILE, Choice, HeldOutScore
from ldsearch.search.controls import constant_ratio, random_search, shape_for
from ldsearch.search.imitation import imitator
from ldsearch.search.latencies import Latencies, choose, measured_latencies, write_latencies
from ldsearch.search.loop import EvolveSettings, SearchResult, SearchStrategy, StrategyContext, search
from ldsearch.search.measuring import evaluate_share, evaluate_with
from ldsearch.search.rules import Listed
from ldsearch.search.signals import SIGNALS
from ldsearch.search.spaces import rule_space, search_space
from ldsearch.search.strategies import RULES, Search, search_named
from ldsearch.subnet import Subnet
from ldsearch.trials.goal import Goal
from ldsearch.trials.trial import Trial, pareto_front
from ldsearch.work.interruption import interruptible
from ldsearch.work.progress import Progress, Stoppable

# What controls and held-out scoring add to a search: random search as many again, the others some more.
CONTROL_SHARE = 1.5
_MEASURED_AS = "fp32, sub-networks with common prefixes together"


@dataclass(frozen=True)
class SearchSpec:
    """A strategy and its space, planned for a supernet.

    Args:
        search: The registered strategy.
        context: What it is built from.
        evaluations: The most sub-networks to measure, the full model included; None: all proposals.
        settings: Numbers of an evolution of any length; the context has those of this one.
        controlled: Whether random search and regular configurations are measured with it.
        shown: Of the frontier, given the choice, what is scored on held-out rows with it; None: all.
    """

    search: Search
    context: StrategyContext
    evaluations: int | None
    settings: EvolveSettings
    controlled: bool
    shown: Callable[[Trial, Sequence[Trial]], Sequence[Trial]] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that two runs of one search share, with name, fingerprint and the goal's fields."""
        return {
            **({"seed": self.context.seed} if self.search.draws else {}),
            "space": self.context.space.identity(),
            **({"settings": asdict(self.settings)} if self.controlled else {}),
            **({"option": asdict(self.context.options)} if self.search.options else {}),
        }


def plan_search(bench: Bench, options: Evolve, costs: Sequence[str] = ("macs",)) -> SearchSpec:
    """The strategy, space and number of evaluations that the options name; nothing is measured yet.

    Rules, and searches among sub-networks of given depths, have a space of their own and no controls.

    Args:
        bench: The supernet.
        options: Strategy, space, genes, keep, evaluations, parity, widen and seed are read.
        costs: Names of the costs that are minimised.

    Raises:
        LdsearchError: One line for a bad strategy, space, depth or number of evaluations.
    """
    bench.require_supernet()
    search = search_named(options.strategy, options.parity)
    controlled = options.strategy not in RULES and options.keep is None
    if options.evaluations is not None and options.evaluations < 2:
        raise RunError(
            f"a search needs the full model and one more evaluation, not {options.evaluations} in all"
        )
    if controlled:
        genes = options.genes or (None if options.space else search.genes)
        space = search_space(bench, options.space, genes, options.parity, options.widen)
    else:
        for name in ("genes", "evaluations", "parity", "widen"):
            if getattr(options, name) != getattr(Evolve, name):
                raise RunError(
                    f"--{name} is for searches without --keep; a rule says itself what it measures"
                )
        strategy = options.strategy or "surrogate"
        space = rule_space(bench, strategy, search.chooses, options.keep, options.space)
    evaluations = search.evaluations if options.evaluations is None else options.evaluations
    evaluations = evaluations and max(2, min(evaluations, space.size() + 1))
    settings = EvolveSettings.parity() if options.parity else EvolveSettings()
    # A short search starts from fewer configurations, still spread over the whole cost range.
    initial = settings.initial if evaluations is None else min(settings.initial, evaluations - 1)
    cost, *others = map(bench.cost, costs)
    context = StrategyContext(
        space,
        cost,
        options.seed,
        evaluations or space.size() + 1,
        replace(settings, initial=initial),
        tuple(others),
        floor=bench.macs,
        signal=lambda name: SIGNALS[name](bench, space.depths[0].keep[0] if options.keep else None),
        shape=shape_for(bench.supernet.head, bench.supernet.reads_first),
        options=search.options_of(options.option or {}),
    )
    return SearchSpec(search, context, evaluations, settings, controlled)


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
    """Search between its controls, choose, score the frontiers on held-out rows, write the reports.

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
    strategy = spec.search.build(spec.context)
    facts = strategy.facts if isinstance(strategy, Listed) else {}
    screen = imitator(bench) if goal.score == "kl" else None
    identity = {
        "strategy": f"{strategy.name}-kl" if screen else strategy.name,
        "fingerprint": bench.evaluator.fingerprint,
        **goal.identity,
        **({} if options.runtime in OWN else {"runtime": options.runtime}),
        **({} if bench.runtime is None else {"scored_in": bench.runtime}),
        **spec.identity,
        **({"evaluations": spec.evaluations} if screen and spec.evaluations is not None else {}),
    }
    with claimed(folder, RUN_FILE, identity), interruptible() as stop, report_disk_full(folder):
        # The goal may be another one now: the old choice must not pass for its own if this is killed.
        (folder / BEST_FILE).unlink(missing_ok=True)
        progress = Stoppable(progress, stop)
        deadline = time.monotonic() + _seconds(spec, options.minutes)
        result, controls = _search(bench, folder, spec, goal, strategy, screen, progress, deadline)
        bench.evaluator.forget()
        full, fronts = result.trials[0], {name: control.frontier for name, control in controls.items()}
        taken = goal.take.choose(result.candidates, full, bench.loss_bound)
        compared = [taken, *pareto_front(result.candidates, goal.costs)]
        compared += [*result.frontier, *(trial for front in fronts.values() for trial in front)]
        latencies = measured_latencies(bench, goal.cell, options.runtime, compared, progress)
        best = choose(result.candidates, full, goal, latencies, bench.loss_bound)
        shown = result.frontier if spec.shown is None else spec.shown(best, result.frontier)
        held = _hold_out(bench, result, [*shown, best], fronts, progress)  # best: a parameter budget's
        outcome = RunOutcome(folder, result, best, goal, controls, held, bench.evaluator.counts, latencies)
        _write_tables(bench, str(identity["strategy"]), outcome)
        if latencies is not None:
            regular = dict(itertools.islice(fronts.items(), 1))  # the first control
            write_latencies(bench, folder, latencies, {"frontier": result.frontier, **regular}, full)
        _write_run(bench, identity, {**facts, "options": changed(options)}, outcome)
        _write_best(bench, outcome)
    return outcome


def _search(
    bench: Bench,
    folder: Path,
    spec: SearchSpec,
    goal: Goal,
    strategy: SearchStrategy,
    screen: Evaluator | None,
    progress: Progress,
    deadline: float,
) -> tuple[SearchResult, dict[str, SearchResult]]:
    """Run the search, screened by another score where there is one, and its controls.

    The regular configurations come first: what the search has to beat is known, whatever stops the rest.
    Only the search ends at the deadline: controls measure no more, and what another score screened is little.
    """

    def searched(
        proposes: SearchStrategy,
        most: int | None,
        evaluator: Evaluator | None = None,
        after: Callable[[SearchResult], None] | None = None,
        deadline: float = math.inf,
    ) -> SearchResult:
        progress.phase(proposes.name, most)
        return run_strategy(bench, spec, proposes, most, progress, goal.costs, evaluator, after, deadline)

    def write_trials(so_far: SearchResult) -> None:
        write_csv(trials_table(so_far.trials, strategy.name, goal.costs), folder / "trials.csv")

    def control(
        build: Callable[[StrategyContext], SearchStrategy], evaluations: int
    ) -> tuple[str, SearchResult]:
        # The full model is measured first in any case; a control that proposes it may name one more.
        spare = int(spec.context.space.contains(bench.whole))
        proposes = build(replace(spec.context, evaluations=evaluations + spare))
        return proposes.name, searched(proposes, evaluations)

    most, measured = spec.evaluations, 0
    # What the search begins with takes none of its time.
    known = most if most is not None and deadline == math.inf else 1 + spec.context.settings.initial
    regular = control(constant_ratio, known) if spec.controlled else None
    if screen is not None:
        # Searched by one score, chosen by the other: what is measured is the frontier, cheapest first.
        bench.evaluator.forget()  # the states of two evaluators would not fit
        screened = searched(strategy, most, screen, deadline=deadline)
        screen.forget()
        deadline = math.inf
        front = [trial.subnet for trial in screened.frontier if trial.subnet in screened.proposed]
        strategy, most, measured = Listed(f"{strategy.name}-kl", front), None, most or 0
    result = searched(strategy, most, after=write_trials, deadline=deadline)
    # Refuses before random search runs.
    goal.take.choose(result.candidates, result.trials[0], bench.loss_bound)
    if regular is None:
        return result, {}
    measured = max(math.ceil(result.spent), measured)
    if len(regular[1].trials) > measured:
        # The search ended early, and a control has no more evaluations.
        regular = control(constant_ratio, measured)
    return result, dict([regular, control(random_search, measured)])


def run_strategy(
    bench: Bench,
    spec: SearchSpec,
    strategy: SearchStrategy,
    evaluations: int | None,
    progress: Progress,
    costs: Sequence[str] = ("macs",),
    evaluator: Evaluator | None = None,
    on_generation: Callable[[SearchResult], None] | None = None,
    deadline: float = math.inf,
) -> SearchResult:
    """Run a strategy as planned: the plan's own, or a control of it.

    Args:
        bench: The supernet.
        spec: Says when the search ends and what may be chosen.
        strategy: What proposes.
        evaluations: The most trials; None: until the strategy is done.
        progress: Receives trials.
        costs: Names of the costs that are minimised.
        evaluator: Measures; None: the supernet's, by the task's score.
        on_generation: Called after each generation.
        deadline: When it ends, by ``time.monotonic``.
    """
    context = spec.context

    def selectable(subnet: Subnet) -> bool:
        # Beside a runtime that serves the full model is the reference in fp32, which nothing serves.
        reference = bench.runtime is not None and subnet == bench.full
        return not reference and (subnet in context.start or context.space.contains(subnet))

    return search(
        strategy,
        evaluate_with(evaluator or bench.evaluator, progress),
        bench.whole,
        evaluations=evaluations,
        patience=spec.search.patience,
        selectable=selectable,
        costs=costs,
        on_generation=on_generation,
        deadline=deadline,
        on_rows=partial(evaluate_share, bench, evaluator or bench.evaluator, progress),
        foreign=bench.beside is not None,
    )


def _seconds(spec: SearchSpec, minutes: float | None) -> float:
    """Seconds of a search that leave its controls and held-out scores the rest of so many minutes."""
    if minutes is None:
        return math.inf
    return 60 * minutes / (1 + CONTROL_SHARE * spec.controlled)


def _hold_out(
    bench: Bench,
    result: SearchResult,
    shown: Sequence[Trial],
    fronts: Mapping[str, Sequence[Trial]],
    progress: Progress,
) -> HeldOut | None:
    if (evaluator := bench.held_out) is None:
        return None
    cost = result.costs[0]
    points = sorted({trial.subnet: trial for trial in shown}.values(), key=lambda trial: trial.costs[cost])
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
    folder, result, costs = outcome.folder, outcome.result, outcome.result.costs
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
        trials = {label: control.trials for label, control in outcome.controls.items()}
        controls = controls_table(trials, outcome.held_out, costs)
        write_csv(controls, folder / "controls.csv")
    share = outcome.goal.budget_share(result.trials[0].costs)
    figure = draw_frontier(
        table,
        f"{bench.folder.name}: {name}",
        best=result.trials.index(outcome.best),
        budget_share=share,
        costs=costs,
        controls=controls,
        held_out=held,
    )
    save_figure(figure, folder / "frontier.png")


def _write_best(bench: Bench, outcome: RunOutcome) -> None:
    best, full, held = outcome.best, outcome.result.trials[0], outcome.held_out
    held_out = None
    if held is not None:
        row = next(row for row in held.rows if row.trial.subnet == best.subnet)
        held_out = HeldOutScore(held.split, row.score, held.full_score, row.difference)
    choice = Choice(
        subnet=best.subnet,
        selector=outcome.goal.take.text,
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
    searches = (result, *outcome.controls.values())
    measured = (trial.subnet for run in searches for trial in run.trials)
    evaluators = [bench.evaluator] if bench.held_out is None else [bench.evaluator, bench.held_out]
    write_json(
        outcome.folder / RUN_FILE,
        {
            "identity": dict(identity),
            **facts,
            "supernet": os.path.relpath(bench.folder, outcome.folder),
            **(
                {}
                if bench.beside is None
                else {"full_model": os.path.relpath(bench.beside.folder, outcome.folder)}
            ),
            "measurements": os.path.relpath(bench.runs, outcome.folder),
            "split": bench.evaluator.split,
            "selector": outcome.goal.take.text,
            "stopped": result.stopped,
            "trials": len(result.trials),
            "workers": cache.workers(measured) if cache is not None else 1,
            "storage": cache.backend.name if cache is not None and bench.storage else None,
            "frontier": len(result.frontier),
            "areas": result.areas,
            "costs": list(result.costs),
            **({"latency": outcome.latencies.to_dict(outcome.best.subnet)} if outcome.latencies else {}),
            "controls": {name: len(control.trials) for name, control in outcome.controls.items()},
            "held_out": held
            and {
                "split": held.split,
                "fingerprint": evaluators[-1].fingerprint,
                "area": None if math.isnan(held.area) else held.area,
                "optimism": held.optimism,
                "gains": {name: asdict(gain) for name, gain in held.gains.items()},
                "in_words": held.describe(),
            },
            "this_call": {evaluator.split: asdict(evaluator.counts) for evaluator in evaluators},
            "peak_memory_bytes": peak_memory(),
            "measured_as": f"{bench.runtime or _MEASURED_AS}, batches of like length",
            "workload": bench.evaluator.encoded.workload.to_dict(),
            "versions": versions(),
        },
    )
