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
from ldsearch.commands.comparison import Comparison, ComparisonRow, Contender, Limit, StrategyEntry
from ldsearch.commands.console import print_table, progress_bars, quiet_libraries, resumable
from ldsearch.commands.contenders import Benches, Subject, of_run, of_strategies, read_runs
from ldsearch.commands.options import Compare
from ldsearch.errors import BudgetError
from ldsearch.evaluation import Evaluator
from ldsearch.files import write_json
from ldsearch.fingerprint import versions, weights_fingerprint
from ldsearch.goal import Budget
from ldsearch.interruption import Stop, interruptible
from ldsearch.intervals import Statistics, Term, bootstrap
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.reports.figures import draw_comparison, save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs import Run, claim, newest_supernet
from ldsearch.supernet.folder import read_record
from ldsearch.training.checkpoints import report_disk_full
from ldsearch.trial import Trial

MARKER = "compare.json"
_LIMITS = {"evaluations": "equally many evaluations", "passes": "as much spent"}


def main(options: Compare) -> dict[str, Any]:
    """Compare and print a table for each supernet and limit."""
    finished = tuple(map(str, options.finished))
    names = options.strategy or (() if finished and not options.supernet else ("surrogate", "every-other"))
    entries = tuple(StrategyEntry.parse(text) for text in names)
    comparison = Comparison(entries, options.budget, options.evaluations, options.seeds, finished)
    quiet_libraries()
    searched = list(options.supernet or dict.fromkeys(Run.open(run).supernet for run in finished))
    searched = (searched or [newest_supernet(options.runs)]) if entries else []
    shown = [path.resolve().name for path in (*searched, *options.finished)]
    folder = options.runs / (options.name or f"{'-'.join(shown)}-compare")
    with resumable("run the same command again; nothing measured is lost"), progress_bars() as bars:
        cells = compare(searched, folder, comparison, data=options.data, runs=options.runs, progress=bars)
    for where in dict.fromkeys((cell.supernet, cell.metric, cell.split) for cell in cells):
        for limit, words in _LIMITS.items():
            rows = [c for c in cells if (c.supernet, c.metric, c.split) == where and c.limit == limit]
            _print_cells(f"{where[0]}: {where[1]} on {rows[0].examples} {where[2]} examples, {words}", rows)
    if any(cell.split == cell.chosen_on for cell in cells):
        print("there are no rows that chose nothing: these scores are optimistic")
    print("a dash: nothing that cheap was found. gain: to random search of the same genes, 95% interval")
    print(f"written: {folder}/ (compare.csv, compare.png, compare.json)")
    return {"run": str(folder), "cells": [asdict(cell) for cell in cells]}


def _print_cells(title: str, cells: Sequence[ComparisonRow]) -> None:
    """One row per strategy: what it spent, then at each budget its score and its gain over random search."""
    budgets = sorted({cell.budget for cell in cells})
    rows = []
    for strategy in dict.fromkeys(cell.strategy for cell in cells):
        row = {cell.budget: cell for cell in cells if cell.strategy == strategy}
        first = row[budgets[0]]
        scores = [_score_and_gain(row[budget]) for budget in budgets]
        rows.append([strategy, f"{first.evaluations:.0f}", f"{first.passes:.1f}", *scores])
    print_table(title, ["strategy", "evaluations", "F", *(f"{budget:g}" for budget in budgets)], rows)


def _score_and_gain(cell: ComparisonRow) -> str:
    if not cell.seeds:
        return "-"
    gain = (
        "" if math.isnan(cell.gain) else f" {cell.gain:+.4f} ({cell.gain_low:+.4f} to {cell.gain_high:+.4f})"
    )
    return f"{cell.score:.4f}{gain}"


@dataclass(frozen=True)
class _Measured:
    """Searches of a subject, and the rows that chose: metric, split and its fingerprint."""

    subject: Subject
    contenders: tuple[Contender, ...]
    rows: tuple[str, str, str]


def compare(
    supernets: Sequence[str | Path],
    folder: Path,
    asked: Comparison,
    *,
    data: str | None = None,
    runs: Path | None = None,
    progress: Progress = NO_PROGRESS,
) -> list[ComparisonRow]:
    """Search every supernet with every strategy; score what each budget buys on rows that chose nothing.

    Finished runs stand beside them with what they measured. Run again it goes on: measurements are kept.

    Args:
        supernets: Folders of those that the strategies search.
        folder: Where compare.csv, compare.json and compare.png go.
        asked: What is compared.
        data: Read the data from here instead of where training read it (a moved file).
        runs: Where measurements of ``supernets`` are kept; None: beside each. A run has its own place.
        progress: Receives phases and trials.

    Raises:
        LdsearchError: One line for a bad folder, strategy or gene, or a run of another state of its supernet.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    finished = read_runs(asked.runs)
    homes = [Path(one).resolve() for one in supernets]
    searched = [Subject(home, "search", (runs or home.parent).resolve()) for home in homes]
    subjects = list(dict.fromkeys([*searched, *map(Subject.of, finished.values())]))
    for subject in subjects:
        read_record(subject.folder)
    identity = {
        **asdict(asked),
        "searched": [dict(run.identity) for run in finished.values()],
        "weights": [weights_fingerprint(subject.folder) for subject in subjects],
    }
    claim(folder, MARKER, identity)
    benches = Benches(data)
    with interruptible() as stop, report_disk_full(folder):
        measured = [
            _measured(benches.open(one), one, asked if one in searched else None, finished, progress, stop)
            for one in subjects
        ]
        cells = [cell for one in measured for cell in _cells(benches.open(one.subject), one, measured, asked)]
        table = pd.DataFrame([asdict(cell) for cell in cells])
        write_csv(table, folder / "compare.csv")
        save_figure(draw_comparison(table), folder / "compare.png")
        write_json(folder / MARKER, {"identity": identity, "versions": versions()})
    return cells


def _measured(
    bench: Bench,
    subject: Subject,
    asked: Comparison | None,
    runs: Mapping[str, Run],
    progress: Progress,
    stop: Stop,
) -> _Measured:
    found = of_strategies(bench, asked, progress, stop) if asked else []
    for text, run in runs.items():
        if Subject.of(run) == subject:
            found += of_run(bench, text, run)
    split = bench.evaluator.split
    rows = (bench.task.metric.name, split, bench.task.splits[split].fingerprint)
    return _Measured(subject, tuple(found), rows)


@dataclass(frozen=True)
class _Choices:
    """Choices of a contender's searches within a budget, and the cost of those searches."""

    contender: Contender
    limit: str
    budget: float
    trials: tuple[Trial, ...]
    full_macs: float
    evaluations: float
    passes: float

    @property
    def key(self) -> tuple[str, str, float]:
        return self.contender.text, self.limit, self.budget


def _cells(
    bench: Bench, own: _Measured, measured: Sequence[_Measured], asked: Comparison
) -> list[ComparisonRow]:
    """Every contender at every budget within each limit."""
    alike = [contender for one in measured if one.rows == own.rows for contender in one.contenders]
    choices = [
        _chosen(contender, limit, budget)
        for limit in Limit.of(alike)
        for budget in asked.budgets
        for contender in own.contenders
    ]
    evaluator = bench.held_out or bench.evaluator
    evaluator(list(dict.fromkeys(trial.subnet for choice in choices for trial in choice.trials)))
    terms = {
        choice.key: _mean_of([evaluator.statistics(trial.subnet) for trial in choice.trials])
        for choice in choices
    }
    return [_cell(bench, evaluator, choice, terms) for choice in choices]


def _chosen(contender: Contender, limit: Limit, budget: float) -> _Choices:
    limited = Budget.parse(f"{budget:g}")
    chosen, counts, costs = [], [], []
    full_macs = contender.results[0].trials[0].costs["macs"]
    for result in contender.results:
        early = limit.first(result.trials)
        counts.append(len(early))
        costs.append(sum(trial.costs["macs"] for trial in early) / full_macs)
        candidates = [trial for trial in early if trial.subnet in result.proposed]
        with contextlib.suppress(BudgetError):  # nothing that cheap: the cell stays empty
            chosen.append(limited.choose(candidates, result.trials[0]))
    return _Choices(contender, limit.name, budget, tuple(chosen), full_macs, mean(counts), mean(costs))


def _mean_of(statistics: Sequence[Statistics]) -> list[Term]:
    return [(1 / len(statistics), own) for own in statistics]


def _cell(
    bench: Bench,
    evaluator: Evaluator,
    choice: _Choices,
    terms: Mapping[tuple[str, str, float], list[Term]],
) -> ComparisonRow:
    metric = bench.task.metric
    cell = ComparisonRow(
        supernet=bench.folder.name,
        strategy=choice.contender.text,
        limit=choice.limit,
        budget=choice.budget,
        evaluations=choice.evaluations,
        passes=choice.passes,
        metric=metric.name,
        chosen_on=bench.evaluator.split,
        split=evaluator.split,
        examples=evaluator.examples,
    )
    own = terms[choice.key]
    if not own:
        return cell
    score = bootstrap(own, metric.of_means)
    cell = replace(
        cell,
        seeds=len(own),
        macs=mean(trial.costs["macs"] for trial in choice.trials),
        share=mean(trial.costs["macs"] / choice.full_macs for trial in choice.trials),
        score=score.mean,
        low=score.low,
        high=score.high,
        subnets=json.dumps([json.loads(trial.subnet.to_json()) for trial in choice.trials]),
    )
    control = choice.contender.control
    other = terms[control, choice.limit, choice.budget] if control else []
    if not other:
        return cell
    sign = 1 if metric.higher_is_better else -1
    weighted = [(sign * weight, values) for weight, values in own]
    weighted += [(-sign * weight, values) for weight, values in other]
    gain = bootstrap(weighted, metric.of_means)
    return replace(cell, gain=gain.mean, gain_low=gain.low, gain_high=gain.high)
