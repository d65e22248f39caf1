"""Searches a supernet without labels: for outputs like the full model's."""

from dataclasses import replace

import numpy as np
from torch import Tensor

from ldsearch.bench import Bench
from ldsearch.errors import DataError
from ldsearch.evaluation import Evaluator
from ldsearch.supernet.supernet import inference
from ldsearch.tasks.imitation import Imitation, Key

# The most rows that are compared: the divergence moves with every example, so that a few hundred tell what
# thousands of right and wrong do.
ROWS = 256
# Bytes for the full model's logits: a language model's have a vocabulary at every position.
BUDGET = 2 * 2**30


def imitator(bench: Bench, budget: int = BUDGET) -> Evaluator:
    """Measures, on some rows of those that choices are made by, how far outputs are from the full model's.

    Args:
        bench: The supernet.
        budget: Bytes for the full model's logits. As many rows are taken, in a fixed random order and at
            most ``ROWS``, as fit: the score is the same, of fewer rows.

    Raises:
        DataError: If the task's answers are no distributions, or not even one row fits.
    """
    blank = Imitation(bench.task)  # refuses before anything runs
    bound = bench.evaluator.bound
    teacher = _teacher(bench, blank, budget if bound is None else min(budget, int(bound / 4)))
    answers = {key: logits for own in teacher.values() for key, logits in own.items()}
    evaluator = bench.evaluator_of(replace(blank, teacher=answers), bench.split, rows=sorted(teacher))
    evaluator.costs = bench.evaluator.costs  # a sub-network costs the same, whatever rows are looked at
    # The screen is part of what the search takes.
    evaluator.counts, evaluator.bound = bench.evaluator.counts, bound
    bench.evaluator.forget()  # its share is smaller beside the full model's logits
    return evaluator


def _teacher(bench: Bench, task: Imitation, budget: int) -> dict[int, dict[Key, Tensor]]:
    """By row the full model's answer to each of its features."""
    encoded, collate = bench.evaluator.encoded, task.collate(bench.tokenizer, None)
    found: dict[int, dict[Key, Tensor]] = {}
    for row in np.random.default_rng(0).permutation(encoded.examples)[:ROWS].tolist():
        own: dict[Key, Tensor] = {}
        for feature in encoded.take([row]):
            batch = collate([feature])
            logits = inference(bench.supernet, bench.supernet.inputs(batch), bench.full)
            on_device = {name: tensor.to(logits.device) for name, tensor in batch.items()}
            # Rows may be views of logits that are much larger.
            own |= {key: kept.clone() for key, kept in task.answers(logits.float(), on_device)}
        budget -= sum(4 * logits.numel() for logits in own.values())
        if budget < 0:
            break
        found[row] = own
    if not found:
        raise DataError("the full model's logits of a single row are larger than the budget for all of them")
    return found
