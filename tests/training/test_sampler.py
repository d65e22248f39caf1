"""The order of the data: grouped by length, a function of (seed, epoch)."""

import numpy as np

from ldsearch.training.sampler import LengthGroupedSampler

LENGTHS = np.random.default_rng(0).integers(5, 65, 1_003).tolist()


def order(seed: int, epoch: int, batch_size: int = 16) -> list[int]:
    sampler = LengthGroupedSampler(LENGTHS, batch_size, seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_every_example_comes_once():
    assert sorted(order(0, 0)) == list(range(len(LENGTHS)))
    assert sorted(LengthGroupedSampler([3, 1, 2], 16, 0)) == [0, 1, 2]


def test_the_order_is_a_function_of_seed_and_epoch():
    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_batches_hold_examples_of_like_length():
    indices = order(0, 2)
    batches = [indices[i : i + 16] for i in range(0, len(indices), 16)]
    padding = sum(max(LENGTHS[i] for i in b) * len(b) - sum(LENGTHS[i] for i in b) for b in batches)
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(len(LENGTHS))
    random = [shuffled[i : i + 16] for i in range(0, len(shuffled), 16)]
    random_padding = sum(max(LENGTHS[i] for i in b) * len(b) - sum(LENGTHS[i] for i in b) for b in random)
    assert padding < random_padding / 10


def test_the_longest_batch_comes_first_and_the_short_one_last():
    indices = order(3, 0)
    assert max(LENGTHS[i] for i in indices[:16]) == max(LENGTHS)
    assert len(indices) % 16 == 11
    tail = indices[-11:]
    assert max(LENGTHS[i] for i in tail) - min(LENGTHS[i] for i in tail) < 20
