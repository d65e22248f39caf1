"""Cheap dropout: how much it drops, that the mean stays, and that torch's random state alone decides."""

import pytest
import torch
from torch import nn

from ldsearch.supernet.dropout import dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.9])
def test_so_many_are_dropped_and_the_others_are_scaled_up(rate: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    count = 400_001  # no multiple of the masks that come from 64 bits
    dropped = dropout(torch.ones(count, dtype=dtype), rate)
    kept = dropped[dropped != 0].float()
    deviation = (rate * (1 - rate) / count) ** 0.5
    assert abs(1 - len(kept) / count - rate) < 4 * deviation + 2**-16
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)), rtol=4e-3, atol=0)


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    kept = dropout(torch.ones(2**20), 0.5).ne(0).double()
    for distance in (1, 2, 3, 4, 8, 384):
        together = (kept[distance:] * kept[:-distance]).mean()
        assert abs(float(together) - 0.25) < 4 * (0.25 * 0.75 / 2**20) ** 0.5


def test_torchs_random_state_decides_and_moves_on() -> None:
    hidden = torch.ones(1000)
    state = torch.get_rng_state()
    first, second = dropout(hidden, 0.5), dropout(hidden, 0.5)
    torch.set_rng_state(state)
    assert torch.equal(dropout(hidden, 0.5), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("rate", "rows"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_none_and_all_are_torchs_and_nothing_stays_nothing(rate: float, rows: int) -> None:
    hidden = torch.randn(rows, 4)
    assert torch.equal(dropout(hidden, rate), nn.functional.dropout(hidden, rate))
