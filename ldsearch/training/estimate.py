"""How long a training will take: the work of its steps, and the time of a few of them."""

from collections.abc import Sequence

import numpy as np

from ldsearch.costs.macs import Cost
from ldsearch.training.strategies import Draws, Pass, Plan
from ldsearch.training.trainer import SupernetTrainer

_DRAWS = 200  # steps whose mean work stands for all
_TIMED = 8  # of these, evenly spaced, are timed


def step_work(plan: Plan, macs: Cost, full: float, seed: int = 0, steps: int = _DRAWS) -> float:
    """Work of a mean step over that of a plain one, whose only pass is the full model's over the batch.

    Work is multiply-accumulates; backward passes take the same multiple of forward ones whatever runs. A
    separate teacher's passes are not counted.

    Args:
        plan: Names the passes.
        macs: Of sub-networks, at the training rows' lengths.
        full: Of the full model.
        seed: Of the draws.
        steps: How many are drawn, evenly over the training.
    """
    return _work(_drawn(plan, seed, steps), macs, full)


def _drawn(plan: Plan, seed: int, steps: int) -> list[Sequence[Pass]]:
    """The passes of steps that lie evenly over the training."""

    def draws(step: int) -> Draws:
        return lambda index: np.random.default_rng([seed, step, 0, index])

    return [plan.passes(draws(step), step / steps) for step in range(steps)]


def _work(steps: Sequence[Sequence[Pass]], macs: Cost, full: float) -> float:
    passes = [one for step in steps for one in step]
    shares = np.array([1 / one.rows[1] for one in passes])  # of the batch
    return float(macs([one.subnet for one in passes]) @ shares / (len(steps) * full))


def training_minutes(trainer: SupernetTrainer, steps: int) -> tuple[float, float]:
    """Minutes that so many optimizer steps take here, and the work of one over that of a plain one.

    Passes of a few drawn steps are timed, and their mean is scaled by the work of many: what a pass takes
    is no multiple of its work where processors multiply faster than they copy (AMX). Evaluations and
    checkpoints come on top.
    """
    args, net = trainer.args, trainer.supernet
    macs = net.macs(trainer.train_rows.workload)
    full = float(macs([net.full])[0])
    drawn = _drawn(trainer.strategy, args.seed, _DRAWS)
    timed = drawn[:: _DRAWS // _TIMED]
    work = _work(drawn, macs, full)
    seconds, teaching = trainer.step_seconds(timed)
    batches = steps * args.gradient_accumulation_steps
    read = batches if trainer.taught is None else len(trainer.taught) / args.train_batch_size
    return (batches * seconds * work / _work(timed, macs, full) + read * teaching) / 60, work
