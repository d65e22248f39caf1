"""Batches of like length: every row once, no more than fit, of one length where that is enough."""

import numpy as np
import pytest

from ldsearch.evaluation.evaluator import length_batches


@pytest.mark.parametrize("least", [1, 4, 100])
def test_every_row_is_in_one_batch_that_fits_its_longest(least):
    lengths = np.random.default_rng(0).integers(1, 20, 300)
    batches = length_batches(lengths, lambda n: 60 // n, least)
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    assert [n for batch in batches for n in lengths[batch]] == sorted(lengths)
    assert all(len(batch) <= max(1, 60 // lengths[batch].max()) for batch in batches)
    for batch in batches:
        # Where the length changes, there were not enough rows.
        changes = np.flatnonzero(np.diff(lengths[batch]))
        assert all(change + 1 < least for change in changes)


def test_the_cuts():
    cuts = lambda most, least: [b.tolist() for b in length_batches([5, 3, 5, 3, 9, 5], lambda n: most, least)]  # noqa: E731
    assert cuts(10, 2) == [[1, 3], [0, 2, 5], [4]]
    assert cuts(10, 3) == [[1, 3, 0, 2, 5], [4]]
    assert cuts(2, 2) == [[1, 3], [0, 2], [5, 4]]
    assert cuts(10, 99) == [[1, 3, 0, 2, 5, 4]]
    assert length_batches([], lambda n: 1, 1) == []
