"""How long a training will take: the work of its steps, and the time of a plain one."""

import numpy as np

from ldsearch.costs.macs import Cost
from ldsearch.training.strategies import Draws, Plan
from ldsearch.training.trainer import SupernetTrainer

_DRAWS = 200  # steps whose mean work stands for all
FORWARD = 1 / 3  # of a forward and backward pass: backward takes twice the products


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

    def draws(step: int) -> Draws:
        return lambda index: np.random.default_rng([seed, step, 0, index])

    passes = [one for step in range(steps) for one in plan.passes(draws(step), step / steps)]
    shares = np.array([1 / one.rows[1] for one in passes])  # of the batch
    return float(macs([one.subnet for one in passes]) @ shares / (steps * full))


def training_minutes(trainer: SupernetTrainer, steps: int) -> tuple[float, float]:
    """Minutes that so many optimizer steps take here, and the work of one over that of a plain one.

    From the time of the full model's pass over a few batches and the work of the passes that the strategy
    draws. Evaluations and checkpoints come on top.
    """
    args, net = trainer.args, trainer.supernet
    macs = net.macs(trainer.train_rows.workload)
    work = step_work(trainer.strategy, macs, float(macs([net.full])[0]), args.seed)
    batches = steps * args.gradient_accumulation_steps
    passes = batches * work
    if trainer.teacher is not None:
        own = batches if trainer.taught is None else len(trainer.taught) / args.train_batch_size
        passes += FORWARD * own
    return passes * trainer.plain_seconds() / 60, work
