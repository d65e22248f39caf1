"""Measuring for a search: by an evaluator that reports every trial, on all rows or on some of them."""

import itertools
from collections.abc import Sequence

from ldsearch.bench import Bench
from ldsearch.evaluation import Evaluator
from ldsearch.search.loop import Evaluate
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Trial
from ldsearch.work.progress import Progress


def evaluate_with(evaluator: Evaluator, progress: Progress) -> Evaluate:
    """An evaluator that reports every trial, and that it waits for other workers."""

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        return evaluator(subnets, generation, progress.trial, progress.waiting)

    return evaluate


def evaluate_share(bench: Bench, evaluator: Evaluator, progress: Progress, rows: float) -> Evaluate:
    """As ``evaluate_with``, on a share of its rows; a step for as many as make an evaluation on all."""
    own = bench.share_of(evaluator, rows)

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        counted = itertools.count(1)

        def measured(trial: Trial) -> None:
            count = next(counted)
            if int(count * rows) > int((count - 1) * rows):
                progress.step()

        return own(subnets, generation, measured, progress.waiting)

    return evaluate
