"""States kept between generations: the same logits in any budget, nothing computed twice, bytes that hold."""

import itertools
import random

import pytest
import torch

from ldsearch.evaluation.executor import Executor
from ldsearch.evaluation.prefixes import Outcome, PrefixCache
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import State
from tests.evaluation.test_prefix_tree import (
    EVERY,
    HEADS,
    LENGTHS,
    REFERENCE,
    Alive,
    encoder,
    many,
    nothing,
    together,
)
from tests.tiny import padded_batch, row, tiny_model


def generations(subnets: list[Subnet], size: int) -> list[list[Subnet]]:
    return [subnets[start : start + size] for start in range(0, len(subnets), size)]


@pytest.mark.parametrize("budget", [0, 100_000, 2**30])
@pytest.mark.parametrize(
    ("family", "head"), [("bert", "TokenClassification"), ("modernbert", "SequenceClassification")]
)
def test_logits_are_those_of_one_by_one_in_any_budget(family, head, budget):
    supernet = Supernet(tiny_model(family, head=head))
    executor, cache, whole = Executor(supernet), PrefixCache(budget), padded_batch(LENGTHS)
    subnets = many(10, seed=11)
    random.Random(0).shuffle(subnets)
    for generation in generations(subnets, 9):
        found = together(executor, whole, generation, cache)
        assert cache.bytes <= budget
        for subnet, logits in zip(generation, found, strict=True):
            for index, length in enumerate(LENGTHS):
                theirs = inference(supernet, row(whole, index), subnet)[0]
                ours = logits[index] if theirs.dim() == 1 else logits[index, :length]
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert (executor.work.hits > 0) == (budget > 0)


@pytest.mark.parametrize("head", HEADS)
def test_every_prefix_is_evaluated_once_over_all_generations(head):
    supernet = Supernet(tiny_model("bert", head=head))
    # Every length drops something, so the first evaluation of a prefix leaves what all its children need.
    drops = [encoder(EVERY, lengths) for lengths in itertools.combinations((20, 16, 12, 9, 6, 3), 4)]
    subnets = [encoder(EVERY, sorted(s.encoder.lengths.tokens, reverse=True)) for s in drops]
    random.Random(1).shuffle(subnets)
    prefixes = {subnet.encoder.lengths.tokens[:place] for subnet in subnets for place in range(len(EVERY))}
    executor, cache = Executor(supernet), PrefixCache(2**30)
    for generation in generations(subnets, 4):
        executor.run(padded_batch([REFERENCE]), generation, nothing, cache)
    assert executor.work.evaluations == len(prefixes)
    macs = executor.work.macs
    executor.run(padded_batch([REFERENCE]), subnets, nothing, cache)
    assert executor.work.evaluations == len(prefixes)
    own = supernet.shape.head_per_example + REFERENCE * supernet.shape.head_per_token
    assert executor.work.macs - macs <= len(subnets) * own
    without = Executor(supernet)
    for generation in generations(subnets, 4):
        without.run(padded_batch([REFERENCE]), generation, nothing)
    assert macs < without.work.macs


@pytest.mark.parametrize("head", HEADS)
def test_the_bytes_are_those_that_stay_alive(head):
    executor = Executor(Supernet(tiny_model("bert", head=head)))
    cache = PrefixCache(2**30)
    with Alive() as alive:
        executor.run(padded_batch([REFERENCE] * 8), many(60, seed=3), nothing, cache)
    # What two of them share is counted with each: never too few.
    assert alive.now <= cache.bytes <= 2 * alive.now


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_peak_is_within_both_budgets(share):
    supernet = Supernet(tiny_model("bert"))
    executor, everything = Executor(supernet, 2**20), PrefixCache(2**30)
    batch = padded_batch([REFERENCE] * executor.rows(REFERENCE))
    executor.run(batch, many(80, seed=3), nothing, everything)
    cache = PrefixCache(int(share * everything.bytes))
    with Alive() as alive:
        for _ in range(3):
            executor.run(batch, many(80, seed=3), nothing, cache)
    assert alive.most <= 2**20 + cache.budget
    assert 0 < len(cache) < len(everything)


def outcome(floats: int) -> Outcome:
    return Outcome(State(torch.zeros(1, 1, floats), torch.ones(1, 1, dtype=torch.bool)), None)


def test_what_was_used_last_stays():
    size = outcome(10).bytes
    assert size == 41
    cache = PrefixCache(2 * size)
    first, second, third = ((7,), 0), ((8,), 0), ((9,), 0)
    cache.put(first, outcome(10))
    cache.put(second, outcome(10))
    assert cache.get(first) is not None
    cache.put(third, outcome(10))
    assert [cache.get(path) is not None for path in (third, second, first)] == [True, False, True]
    cache.put(third, outcome(10))  # again: counted once
    assert (cache.bytes, len(cache)) == (2 * size, 2)
    cache.put(third, outcome(100))  # larger than everything: the others stay
    assert cache.get(first) is not None
    assert (cache.bytes, len(cache)) == (size, 1)


def test_prefixes_outlive_what_hangs_on_them():
    """A sweep over more than fits, again and again: the first block stays, and is not run again."""
    model = tiny_model("bert")
    runs = []
    model.bert.encoder.layer[0].intermediate.dense.register_forward_hook(lambda *_: runs.append(1))
    subnets = [encoder(EVERY, [20, a, b, 3]) for a in (16, 12, 9) for b in (8, 6, 5)]
    executor, everything = Executor(Supernet(model)), PrefixCache(2**30)
    executor.run(padded_batch([REFERENCE]), subnets, nothing, everything)
    cache, already = PrefixCache(everything.bytes // 2), len(runs)
    for _ in range(3):
        executor.run(padded_batch([REFERENCE]), subnets, nothing, cache)
    assert len(runs) == already + 1
