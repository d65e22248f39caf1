"""The correction against sums by hand, and the sub-networks that it is fitted on."""

import numpy as np
import pytest

from ldsearch.latency.correction import Correction, Wholes, spread

DROPS = np.array([0, 0, 1, 2, 3, 3])
ADDED = np.array([10.0, 40.0, 15.0, 20.0, 30.0, 12.0])


@pytest.mark.parametrize(("factor", "per_drop"), [(1.0, 0.0), (0.9, 0.0), (1.2, 1.5)])
def test_what_was_planted_is_found(factor, per_drop):
    measured = factor * ADDED + per_drop * DROPS
    found = Correction.fit(ADDED, DROPS, measured)
    assert (found.factor, found.per_drop) == pytest.approx((factor, per_drop), abs=1e-12)
    assert found(np.array([7.0]), np.array([2])) == pytest.approx([7 * factor + 2 * per_drop])
    assert np.allclose(Wholes(ADDED, DROPS, measured).errors, 0)


def test_nothing_is_taken_off_per_block_and_errors_are_relative():
    """Blocks that drop are too slow in the sum, so only the factor is left: its closed form."""
    measured = ADDED - DROPS
    found = Correction.fit(ADDED, DROPS, measured)
    shares = ADDED / measured
    assert found.per_drop == 0
    assert found.factor == pytest.approx(shares.sum() / (shares**2).sum())


def test_each_error_is_of_a_fit_without_it():
    measured = ADDED + DROPS
    measured[1] *= 2  # only its own prediction does not know
    errors = Wholes(ADDED, DROPS, measured).errors
    assert errors[1] == pytest.approx(-0.5)
    assert (np.abs(np.delete(errors, 1)) > 1e-3).all()


@pytest.mark.parametrize(
    ("blocks", "length", "count"), [(12, 384, 8), (6, 128, 8), (2, 8, 8), (1, 8, 4), (1, 3, 3)]
)
def test_a_handful_is_spread_over_depths_and_lengths(blocks, length, count):
    found = spread(blocks, length)
    assert len(found) == len(set(found)) == count
    assert {len(own.encoder.blocks) for own in found} == {blocks, (blocks + 1) // 2}
    assert all(own.encoder.blocks[0] == 0 for own in found)
    assert all(own.encoder.blocks[-1] == blocks - 1 for own in found if len(own.encoder.blocks) > 1)
    whole = [own for own in found if own.encoder.lengths is None]
    assert len(whole) == (1 if blocks == 1 else 2)
    last = [own.encoder.lengths.tokens[-1] for own in found if own not in whole]
    assert sorted({*last}) == sorted({max(1, round(length * share)) for share in (0.5, 0.25, 0.1)})
