"""Searches a supernet without labels: for outputs like the full model's."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ldsearch.evaluation import Evaluator
from ldsearch.interruption import interruptible
from ldsearch.search.loop import SearchStrategy
from ldsearch.search.shortlist import Shortlist
from ldsearch.subnet import Subnet
from ldsearch.tasks.imitation import Imitation
from ldsearch.trial import Trial
from ldsearch.workflows.outcome import Watcher
from ldsearch.workflows.workbench import Workbench, split_evaluator

ROWS = 256


def imitator(bench: Workbench) -> Evaluator:
    """Measures, on some rows of those that choices are made by, how far outputs are from the full model's.

    The divergence moves with every example, so a few hundred tell what thousands of right and wrong do.

    Raises:
        DataError: If the task has no class probabilities to compare.
    """
    blank = Imitation.of(bench.task)  # refuses before anything runs
    count = bench.evaluator.examples
    rows = sorted(np.random.default_rng(0).permutation(count)[:ROWS].tolist())
    outputs = bench.evaluator.outputs(bench.full)
    task = replace(blank, teacher=tuple(outputs[row] for row in rows))
    parts = (bench.folder, bench.supernet, bench.record, bench.tokenizer, task)
    evaluator = split_evaluator(*parts, bench.evaluator.split, bench.runs, rows=rows)[0]
    evaluator.costs = bench.evaluator.costs  # a sub-network costs the same, whatever rows are looked at
    # The screen is part of what the search takes.
    evaluator.counts, evaluator.cache_budget = bench.evaluator.counts, bench.evaluator.cache_budget
    return evaluator


def shortlist(
    bench: Workbench, strategy: SearchStrategy, evaluations: int, patience: int | None, watcher: Watcher
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

    return Shortlist(strategy, evaluate, bench.full, evaluations, patience, f"{strategy.name}-kl")
