"""Block influence: closed forms, weighting by tokens, planted identity blocks."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine

from ldsearch.errors import SupernetError
from ldsearch.subnet import Subnet
from ldsearch.supernet.signals import BlockInfluence
from ldsearch.supernet.tokens import State
from tests.planted import Planted, batches, carriers_and_identities


def state(hidden: torch.Tensor, real: torch.Tensor | None = None) -> State:
    return State(hidden, torch.ones(hidden.shape[:2], dtype=torch.bool) if real is None else real)


def influence(network: Planted, data: list[dict[str, torch.Tensor]]) -> np.ndarray:
    collector = BlockInfluence(network.blocks)
    for batch in data:
        network(batch, Subnet.full(network.blocks), between=collector.observe)
    return collector.values()


def test_a_turn_by_an_angle_counts_one_minus_its_cosine_and_length_does_not_count():
    entered = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    angles = (0.0, 1e-3, 0.5, np.pi / 2, np.pi)
    collector = BlockInfluence(len(angles))
    for block, angle in enumerate(angles):
        c, s = np.cos(angle), np.sin(angle)
        turn = torch.tensor([[c, s], [-s, c]], dtype=torch.float32)
        collector.observe(block, state(entered), state(5 * entered @ turn))
    # 1e-3 is below what a difference of float32 cosines can resolve.
    assert collector.values() == pytest.approx([1 - np.cos(angle) for angle in angles], rel=1e-4, abs=1e-12)


def test_it_is_the_mean_cosine_distance_of_the_real_tokens():
    generator = torch.Generator().manual_seed(0)
    before, after = torch.randn(2, 4, 6, 8, generator=generator)
    real = torch.arange(6) < torch.tensor([6, 4, 1, 3])[:, None]
    for hidden in (before, after):
        hidden[~real] = torch.nan  # pads may hold anything
    collector = BlockInfluence(1)
    assert collector.observe(0, state(before, real), state(after, real)) is after
    expected = np.mean([cosine(before[i, j], after[i, j]) for i, j in real.nonzero().tolist()])
    assert collector.values() == pytest.approx([expected], rel=1e-5)


def test_batching_does_not_matter_because_tokens_are_weighed():
    network, (batch,) = carriers_and_identities(), batches(1, seed=0)
    uneven = [{name: tensor[part] for name, tensor in batch.items()} for part in (slice(0, 3), slice(3, 16))]
    assert influence(network, uneven) == pytest.approx(influence(network, [batch]), rel=1e-5, abs=1e-9)


def test_identity_blocks_have_exactly_no_influence_and_the_others_some():
    network = carriers_and_identities()
    values = influence(network, batches(4, seed=0))
    assert values[list(network.useless)].tolist() == [0.0] * 3
    assert np.delete(values, list(network.useless)).min() > 1e-3


def test_bad_input_is_refused_in_one_line():
    collector = BlockInfluence(3)
    hidden = torch.randn(1, 4, 8)
    collector.observe(1, state(hidden), state(hidden))
    with pytest.raises(SupernetError, match="never ran: 0, 2"):
        collector.values()
    with pytest.raises(SupernetError, match="full length"):
        collector.observe(0, state(hidden), state(hidden[:, :2]))
