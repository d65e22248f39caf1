"""Compares strategies, supernets and runs: what each finds for a budget, on rows that chose nothing."""

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.console import print_table, progress_bars, quiet_libraries, resumable
from ldsearch.disk.files import report_disk_full, write_json
from ldsearch.disk.fingerprint import versions, weights_fingerprint
from ldsearch.errors import BudgetError, LdsearchError, RunError
from ldsearch.options import Compare, flag_of
from ldsearch.reports.figures import draw_comparison
from ldsearch.reports.style import save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs.folder import claimed
from ldsearch.runs.run import Run, newest_supernet
from ldsearch.search.contenders import (
    Benches,
    Contender,
    Limit,
    Subject,
    of_alone,
    of_run,
    of_strategies,
    read_entry,
    read_runs,
    trained_alone,
)
from ldsearch.supernet.folder import read_record
from ldsearch.trials.budget import Budget
from ldsearch.trials.intervals import over_seeds
from ldsearch.trials.trial import Trial
from ldsearch.work.interruption import interruptible
from ldsearch.work.progress import NO_PROGRESS, Progress, Stoppable

MARKER = "compare.json"
_LIMITS = {"evaluations": "equally many evaluations", "passes": "as much spent"}


@dataclass(frozen=True)
class ComparisonRow:
    """The choice of a strategy for a budget. A row of compare.csv; without a choice its numbers are NaN.

    Args:
        supernet: The supernet's folder name.
        strategy: ``StrategyEntry.text``, or the run's name.
        limit: ``"evaluations"``: all that the search measured, or its first trials, as many as the shortest
            seeded run or control of one; ``"passes"``: its first trials, up to the one-by-one cost of the
            cheapest seeded search. Both of all that is compared on the same rows, of whichever supernet.
        budget: Share of the full model's MACs.
        seeds: Searches that found something within it.
        macs: The choices' mean MACs per example.
        share: Their mean share of the full model's.
        score: Their mean held-out score.
        low: Lower end of its 95% bootstrap interval over examples and, of several, seeds (``over_seeds``).
        high: Upper end.
        gain: ``score`` minus that of random search over the same genes, in the direction of better; of a run
            minus that of its own random control.
        gain_low: Lower end of its 95% paired bootstrap interval, over the same.
        gain_high: Upper end.
        evaluations: Mean number of measured sub-networks.
        passes: Their mean cost in passes of the full model over the split, were they run one by one; not in
            it is what was measured by another score first (``--objective kl``).
        metric: Name of the score.
        chosen_on: Split that the choices were made on.
        split: Split of ``score``; that of the choices where there is no other.
        examples: Its examples.
        subnets: The choices, as JSON.
    """

    supernet: str
    strategy: str
    limit: str
    budget: float
    seeds: int = 0
    macs: float = math.nan
    share: float = math.nan
    score: float = math.nan
    low: float = math.nan
    high: float = math.nan
    gain: float = math.nan
    gain_low: float = math.nan
    gain_high: float = math.nan
    evaluations: float = math.nan
    passes: float = math.nan
    metric: str = ""
    chosen_on: str = ""
    split: str = ""
    examples: int = 0
    subnets: str = ""


def main(options: Compare) -> dict[str, Any]:
    """Compare and print a table for each supernet and limit."""
    check_comparison(options)
    quiet_libraries()
    runs = [folder for folder in options.finished if not trained_alone(folder)]
    supernets, strategies = options.supernet, options.strategy
    if not strategies and (supernets or not runs):
        strategies = ("surrogate", "every-other")
    if strategies and not supernets:
        supernets = tuple(dict.fromkeys(Run.open(run).supernet for run in runs))
        supernets = supernets or (newest_supernet(options.runs),)
    shown = [path.resolve().name for path in (*supernets, *options.finished)]
    folder = options.place(f"{'-'.join(shown)}-compare")
    options = replace(options, strategy=strategies, supernet=supernets)
    with resumable("run the same command again; nothing measured is lost"), progress_bars() as bars:
        rows = compare(options, folder, progress=bars)
    for where in dict.fromkeys((row.supernet, row.metric, row.split) for row in rows):
        for limit, words in _LIMITS.items():
            own = [row for row in rows if (row.supernet, row.metric, row.split, row.limit) == (*where, limit)]
            _print_rows(f"{where[0]}: {where[1]} on {own[0].examples} {where[2]} examples, {words}", own)
    if any(row.split == row.chosen_on for row in rows):
        print("there are no rows that chose nothing: these scores are optimistic")
    print("a dash: nothing that cheap was found")
    print(f"gain: to random search of the same genes, 95% interval {_resampled(rows)}")
    print(f"written: {folder}/ (compare.csv, compare.png, compare.json)")
    return {"run": str(folder), "cells": [asdict(row) for row in rows]}


def _print_rows(title: str, rows: Sequence[ComparisonRow]) -> None:
    """A line per strategy: what it spent, then at each budget its score and its gain over random search."""
    budgets = sorted({row.budget for row in rows})
    lines = []
    for strategy in dict.fromkeys(row.strategy for row in rows):
        own = {row.budget: row for row in rows if row.strategy == strategy}
        first = own[budgets[0]]
        scores = [_score_and_gain(own[budget]) for budget in budgets]
        lines.append([strategy, f"{first.evaluations:.0f}", f"{first.passes:.1f}", *scores])
    print_table(title, ["strategy", "evaluations", "F", *(f"{budget:g}" for budget in budgets)], lines)


def _resampled(rows: Sequence[ComparisonRow]) -> str:
    """The seeds and rows that the intervals are over, in words."""
    seeds = sorted({row.seeds for row in rows if row.seeds})
    if seeds[-1:] <= [1]:
        return "over rows: one seed of each, so it speaks of what this seed found, not of the strategy"
    one = "; of one seed (rules, runs) over rows alone" if seeds[0] == 1 else ""
    return f"over seeds and rows{one}"


def _score_and_gain(row: ComparisonRow) -> str:
    if not row.seeds:
        return "-"
    gain = "" if math.isnan(row.gain) else f" {row.gain:+.4f} ({row.gain_low:+.4f} to {row.gain_high:+.4f})"
    return f"{row.score:.4f}{gain}"


def compare(options: Compare, folder: Path, *, progress: Progress = NO_PROGRESS) -> list[ComparisonRow]:
    """Search every supernet with every strategy; score what each budget buys on rows that chose nothing.

    Random search of the same genes is added to every strategy. Finished runs stand beside them with what they
    measured. Run again it goes on: measurements are kept.

    Args:
        options: The supernets, strategies, runs and budgets; those that are not named are not compared.
        folder: Where compare.csv, compare.json and compare.png go.
        progress: Receives phases and trials.

    Raises:
        LdsearchError: One line for a bad folder, strategy or gene, or a run of another state of its supernet.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    entries = [read_entry(text) for text in options.strategy]
    budgets = {share: Budget.parse(f"{share:g}") for share in options.budget}
    if not (entries or options.finished) or not budgets:
        raise RunError("a comparison needs budgets, and strategies or runs")
    alone = [folder for folder in options.finished if trained_alone(folder)]
    runs = read_runs([folder for folder in options.finished if folder not in alone])
    names = [*runs, *(folder.resolve().name for folder in alone)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RunError(f"two of what is compared are called {twice[0]}: rename the folder of one")
    homes = [path.resolve() for path in options.supernet]
    searched = [Subject(home, "search", options.runs.resolve()) for home in homes]
    subjects = list(dict.fromkeys([*searched, *map(Subject.of, runs.values())]))
    for subject in subjects:
        read_record(subject.folder)
    identity = {
        "entries": [{"strategy": entry.strategy, "genes": entry.genes} for entry in entries],
        "budgets": list(budgets),
        "evaluations": options.evaluations,
        "seeds": options.seeds,
        "runs": [str(path) for path in options.finished],
        "searched": [dict(run.identity) for run in runs.values()],
        "weights": [weights_fingerprint(folder) for folder in (*(one.folder for one in subjects), *alone)],
    }
    benches = Benches(options.data)
    with claimed(folder, MARKER, identity), interruptible() as stop, report_disk_full(folder):
        progress = Stoppable(progress, stop)
        # No bench outlives its call: two supernets at once may not fit.
        measured = {
            subject: _contenders(
                benches.open(subject), subject, subject in searched, runs, alone, options, progress
            )
            for subject in subjects
        }
        shown = {contender.text for _, own in measured.values() for contender in own}
        if strange := [folder for folder in alone if folder.resolve().name not in shown]:
            raise RunError(f"{strange[0]} was trained on other rows than what it is compared with")
        rows = []
        for subject, (chosen_on, own) in measured.items():
            alike = [each for other, found in measured.values() if other == chosen_on for each in found]
            rows += _rows(benches.open(subject), own, Limit.of(alike), budgets)
        table = pd.DataFrame([asdict(row) for row in rows])
        write_csv(table, folder / "compare.csv")
        save_figure(draw_comparison(table), folder / "compare.png")
        write_json(folder / MARKER, {"identity": identity, "versions": versions()})
    return rows


def _contenders(
    bench: Bench,
    subject: Subject,
    searched: bool,
    runs: Mapping[str, Run],
    alone: Sequence[Path],
    options: Compare,
    progress: Progress,
) -> tuple[tuple[str, str, str], list[Contender]]:
    """Metric, split and fingerprint of the rows that choose, and what is compared of a subject."""
    entries = options.strategy if searched else ()
    contenders = of_strategies(bench, entries, options.evaluations, options.seeds, progress)
    for text, run in runs.items():
        if Subject.of(run) == subject:
            contenders += of_run(bench, text, run)
    contenders += of_alone(bench, subject, alone)
    split = bench.task.splits[subject.split]
    return (bench.task.metric.name, subject.split, split.fingerprint), contenders


def _rows(
    bench: Bench, contenders: Sequence[Contender], limits: Sequence[Limit], budgets: Mapping[float, Budget]
) -> list[ComparisonRow]:
    """Every contender at every budget within each limit."""
    choices = {
        (contender.text, limit.name, share): _choose(bench, contender, limit, share, budget)
        for limit in limits
        for share, budget in budgets.items()
        for contender in contenders
    }
    evaluator, metric = bench.held_out or bench.evaluator, bench.task.metric
    alone = {one.text: one.held_out for one in contenders if one.held_out is not None}
    inherited = {key: trials for key, (_, trials) in choices.items() if key[0] not in alone}
    evaluator(list(dict.fromkeys(trial.subnet for trials in inherited.values() for trial in trials)))
    statistics = {key: [evaluator.statistics(one.subnet) for one in own] for key, own in inherited.items()}
    statistics |= {key: [alone[key[0]]] * len(own) for key, (_, own) in choices.items() if key[0] in alone}
    controls = {contender.text: contender.control for contender in contenders}
    sign = 1 if metric.higher_is_better else -1
    rows = []
    for (text, limit, share), (row, _) in choices.items():
        own, control = statistics[text, limit, share], controls[text]
        if own:
            score = over_seeds([(1, own)], metric.of_means)
            row = replace(row, score=score.mean, low=score.low, high=score.high)
        if own and control and (other := statistics[control, limit, share]):
            gain = over_seeds([(sign, own), (-sign, other)], metric.of_means)
            row = replace(row, gain=gain.mean, gain_low=gain.low, gain_high=gain.high)
        rows.append(row)
    return rows


def _choose(
    bench: Bench, contender: Contender, limit: Limit, share: float, budget: Budget
) -> tuple[ComparisonRow, list[Trial]]:
    """Choices of a contender's searches within a budget, and their cost; not yet scored."""
    chosen, counts, passes = [], [], []
    full_macs = float(bench.macs([bench.full])[0])
    full = replace(contender.results[0].trials[0], subnet=bench.full, costs={"macs": full_macs})
    for result in contender.results:
        early = limit.first(result.trials)
        counts.append(len(early))
        passes.append(sum(trial.costs["macs"] for trial in early) / full_macs)
        candidates = [trial for trial in early if trial.subnet in result.proposed]
        with contextlib.suppress(BudgetError):  # nothing that cheap: the cell stays empty
            chosen.append(budget.choose(candidates, full))
    evaluator = bench.held_out or bench.evaluator
    row = ComparisonRow(
        supernet=bench.folder.name,
        strategy=contender.text,
        limit=limit.name,
        budget=share,
        seeds=len(chosen),
        evaluations=mean(counts),
        passes=mean(passes),
        metric=bench.task.metric.name,
        chosen_on=bench.evaluator.split,
        split=evaluator.split,
        examples=evaluator.examples,
    )
    if not chosen:
        return row, chosen
    macs = mean(trial.costs["macs"] for trial in chosen)
    share_of_full = mean(trial.costs["macs"] / full_macs for trial in chosen)
    subnets = json.dumps([json.loads(trial.subnet.to_json()) for trial in chosen])
    return replace(row, macs=macs, share=share_of_full, subnets=subnets), chosen


def check_comparison(options: Compare) -> None:
    """Refuse what is named twice: it would be shown twice.

    Raises:
        LdsearchError: Naming it.
    """
    for name in ("strategy", "budget", "supernet"):
        values = [str(value) for value in getattr(options, name)]
        if twice := [value for value in values if values.count(value) > 1]:
            raise LdsearchError(f"{flag_of(name)} names {twice[0]} twice")
