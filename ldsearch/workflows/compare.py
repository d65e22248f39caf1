"""Compares strategies and supernets: what each finds for a budget, on rows that chose nothing."""

import contextlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

import pandas as pd

from ldsearch.costs.budget import Budget
from ldsearch.errors import BudgetError
from ldsearch.evaluation import Evaluator
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.interruption import interruptible
from ldsearch.intervals import Statistics, Term, bootstrap
from ldsearch.reports.compare import draw_comparison
from ldsearch.reports.figures import save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs import claim
from ldsearch.search.loop import Evaluate, SearchResult, search
from ldsearch.search.searches import SEARCHES, Asked, search_named
from ldsearch.selector import WithinBudget
from ldsearch.training.checkpoints import Writing
from ldsearch.trial import Trial
from ldsearch.workflows.comparison import Cell, Comparison, Entry
from ldsearch.workflows.outcome import Question
from ldsearch.workflows.select import RULES, rule_named
from ldsearch.workflows.spaces import search_space
from ldsearch.workflows.watching import Unwatched, Watcher, watched
from ldsearch.workflows.workbench import Workbench

MARKER = "compare.json"
Searches = dict[Entry, list[SearchResult]]


def compare(
    benches: Sequence[Workbench], folder: Path, asked: Comparison, watcher: Watcher | None = None
) -> list[Cell]:
    """Search every supernet with every strategy; score what each budget buys on rows that chose nothing.

    Run again it goes on: measurements are kept beside the supernets.

    Args:
        benches: The supernets.
        folder: Where compare.csv, compare.json and compare.png go.
        asked: What is compared.
        watcher: Is told what happens.

    Raises:
        LdsearchError: One line for a bad folder, strategy or gene.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    watcher = watcher or Unwatched()
    identity = {**asdict(asked), "fingerprints": [bench.evaluator.fingerprint for bench in benches]}
    claim(folder, MARKER, identity)
    cells: list[Cell] = []
    with interruptible() as stop, Writing(folder):
        for bench in benches:
            found: Searches = {}
            for entry in asked.all_entries:
                watcher.phase(f"{bench.folder.name}: {entry.text}", None)
                found[entry] = _searched(bench, entry, asked, watched(bench.evaluator, watcher, stop))
            cells += _cells(bench, found, asked)
        table = pd.DataFrame([asdict(cell) for cell in cells])
        write_csv(table, folder / "compare.csv")
        save_figure(draw_comparison(table), folder / "compare.png")
        write_json(folder / MARKER, {"identity": identity, "versions": versions()})
    return cells


def _searched(bench: Workbench, entry: Entry, asked: Comparison, evaluate: Evaluate) -> list[SearchResult]:
    """One search for each seed; only one of a rule that draws nothing."""
    # What a rule goes by may take a training: only one that draws is made for every seed.
    first = _question(bench, entry, asked.evaluations, 0)
    draws = entry.strategy in SEARCHES or "seed" in first.identity
    others = range(1, asked.seeds if draws else 1)
    questions = [first, *(_question(bench, entry, asked.evaluations, seed) for seed in others)]
    return [
        search(
            question.strategy,
            evaluate,
            bench.full,
            evaluations=question.evaluations,
            patience=question.patience,
            wanted=question.wanted,
        )
        for question in questions
    ]


def _question(bench: Workbench, entry: Entry, evaluations: int, seed: int) -> Question:
    if entry.strategy in RULES:
        return rule_named(bench, entry.strategy, seed=seed).question()
    space = search_space(bench, genes=entry.genes)
    found = search_named(entry.strategy)
    most = max(2, min(evaluations, space.size() + 1))
    strategy = found.build(Asked(space, bench.macs, seed, most))
    return Question(strategy, {"seed": seed}, most, patience=None)


@dataclass(frozen=True)
class _Choices:
    """What an entry's searches chose within a budget, and what those searches took."""

    entry: Entry
    limit: str
    budget: float
    trials: tuple[Trial, ...]
    full_macs: float
    evaluations: float
    passes: float


def _cells(bench: Workbench, found: Searches, asked: Comparison) -> list[Cell]:
    """Every entry at every budget: with all its trials, and with as many as the cheapest search pays for."""
    passes = {entry: [_passes(one.trials) for one in results] for entry, results in found.items()}
    seeded = [sum(own) for entry, each in passes.items() if entry.strategy in SEARCHES for own in each]
    limits = {"evaluations": math.inf, "passes": min(seeded, default=math.inf)}
    choices = [
        _chosen(entry, limit, most, budget, results)
        for limit, most in limits.items()
        for budget in asked.budgets
        for entry, results in found.items()
    ]
    evaluator = bench.held_out or bench.evaluator
    evaluator(list(dict.fromkeys(trial.subnet for choice in choices for trial in choice.trials)))
    terms = {
        (choice.entry, choice.limit, choice.budget): _mean_of(
            [evaluator.statistics(trial.subnet) for trial in choice.trials]
        )
        for choice in choices
    }
    return [_cell(bench, evaluator, choice, terms) for choice in choices]


def _passes(trials: Sequence[Trial]) -> list[float]:
    """What each trial costs in passes of the full model."""
    return [trial.costs["macs"] / trials[0].costs["macs"] for trial in trials]


def _chosen(
    entry: Entry, limit: str, most: float, budget: float, results: Sequence[SearchResult]
) -> _Choices:
    selector = WithinBudget(Budget.parse(f"{budget:g}"))
    chosen, counts, costs = [], [], []
    for result in results:
        spent = list(itertools.accumulate(_passes(result.trials)))
        affordable = sum(cost <= most * (1 + 1e-9) for cost in spent)
        early = result.trials[:affordable]
        counts.append(len(early))
        costs.append(spent[affordable - 1])
        candidates = [trial for trial in early if trial.subnet in result.proposed]
        with contextlib.suppress(BudgetError):  # nothing that cheap: the cell stays empty
            chosen.append(selector.choose(candidates, result.trials[0]))
    full_macs = results[0].trials[0].costs["macs"]
    return _Choices(entry, limit, budget, tuple(chosen), full_macs, mean(counts), mean(costs))


def _mean_of(statistics: Sequence[Statistics]) -> list[Term]:
    return [(1 / len(statistics), own) for own in statistics]


def _cell(
    bench: Workbench,
    evaluator: Evaluator,
    choice: _Choices,
    terms: Mapping[tuple[Entry, str, float], list[Term]],
) -> Cell:
    metric = bench.task.metric
    cell = Cell(
        supernet=bench.folder.name,
        strategy=choice.entry.text,
        limit=choice.limit,
        budget=choice.budget,
        evaluations=choice.evaluations,
        passes=choice.passes,
        metric=metric.name,
        examples=evaluator.examples,
    )
    own = terms[choice.entry, choice.limit, choice.budget]
    if not own:
        return cell
    score = bootstrap(own, metric.of_means)
    cell = replace(
        cell,
        seeds=len(own),
        share=mean(trial.costs["macs"] / choice.full_macs for trial in choice.trials),
        score=score.mean,
        low=score.low,
        high=score.high,
        subnets=json.dumps([json.loads(trial.subnet.to_json()) for trial in choice.trials]),
    )
    control = terms[choice.entry.control, choice.limit, choice.budget]
    if not control or choice.entry == choice.entry.control:
        return cell
    sign = 1 if metric.higher_is_better else -1
    weighted = [(sign * weight, values) for weight, values in own]
    weighted += [(-sign * weight, values) for weight, values in control]
    gain = bootstrap(weighted, metric.of_means)
    return replace(cell, gain=gain.mean, gain_low=gain.low, gain_high=gain.high)
