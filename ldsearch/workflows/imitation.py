"""Searches a supernet without labels: for outputs like the full model's."""

from collections.abc import Sequence
from dataclasses import replace

from ldsearch.evaluation import Evaluator
from ldsearch.interruption import interruptible
from ldsearch.search.loop import SearchStrategy
from ldsearch.search.shortlist import Shortlist
from ldsearch.subnet import Subnet
from ldsearch.tasks.imitation import Imitation
from ldsearch.trial import Trial
from ldsearch.workflows.outcome import Watcher
from ldsearch.workflows.workbench import Workbench, split_evaluator


def imitator(bench: Workbench) -> Evaluator:
    """Measures, on the rows that choices are made by, how far outputs are from the full model's.

    Raises:
        DataError: If the task has no class probabilities to compare.
    """
    blank = Imitation.of(bench.task)  # refuses before anything runs
    task = replace(blank, teacher=tuple(bench.evaluator.outputs(bench.full)))
    parts = (bench.folder, bench.supernet, bench.record, bench.tokenizer, task)
    evaluator = split_evaluator(*parts, bench.evaluator.split, bench.runs)[0]
    # The screen is part of what the search takes.
    evaluator.counts, evaluator.cache_budget = bench.evaluator.counts, bench.evaluator.cache_budget
    return evaluator


def shortlist(
    bench: Workbench, strategy: SearchStrategy, evaluations: int, watcher: Watcher
) -> SearchStrategy:
    """A search without labels; what it proposes for measuring by the score is its frontier.

    Raises:
        DataError: If the task has no class probabilities to compare.
    """
    evaluator = imitator(bench)

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        with interruptible() as stop:

            def on_trial(trial: Trial) -> None:
                watcher.trial(trial)
                stop.check()

            return evaluator(subnets, generation, on_trial)

    return Shortlist(strategy, evaluate, bench.full, evaluations, f"{strategy.name}-kl")
