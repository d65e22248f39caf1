"""What dropped tokens answer with is the best map of its rank: against closed forms of others."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from ldsearch.supernet.left_behind import MAP, left_behind
from ldsearch.training.left_behind import RIDGE, StateSums

WIDTH, TOKENS = 12, 400


def fitted(entered: Tensor, left: Tensor, rank: int) -> Tensor:
    """What a layer makes of what entered, fitted in three parts."""
    sums, layer = StateSums(WIDTH), nn.Module()
    for part in torch.arange(len(entered)).chunk(3):
        sums.add(entered[part], left[part])
    layer.register_buffer(MAP, sums.solution(rank))
    return left_behind(layer, entered[None])[0]


@pytest.fixture
def states() -> tuple[Tensor, Tensor]:
    """States that enter and leave, the latter only partly a map of the former; no mean is 0."""
    generator = torch.Generator().manual_seed(0)
    entered = torch.randn(TOKENS, WIDTH, generator=generator) + 3
    noise = torch.randn(TOKENS, WIDTH, generator=generator)
    # Numbers of a state vary differently.
    entered, noise = entered * torch.arange(1.0, WIDTH + 1), noise * torch.arange(WIDTH, 0.0, -1)
    return entered, entered @ torch.randn(WIDTH, WIDTH, generator=generator) / 10 + noise - 5


def test_of_full_rank_it_is_the_ridge_regression_of_scikit_learn(states: tuple[Tensor, Tensor]):
    entered, left = (one.double().numpy() for one in states)
    scaled = entered / entered.std(axis=0)
    ridge = Ridge(alpha=RIDGE * TOKENS).fit(scaled, left)
    assert_allclose(fitted(*states, WIDTH), ridge.predict(scaled), atol=2e-3)


@pytest.mark.parametrize("rank", [1, 4])
def test_of_a_rank_it_is_its_predictions_in_their_principal_directions(
    states: tuple[Tensor, Tensor], rank: int
):
    whole = fitted(*states, WIDTH).double().numpy()
    mean, deviation = whole.mean(axis=0), states[1].double().numpy().std(axis=0)
    left, values, right = np.linalg.svd((whole - mean) / deviation, full_matrices=False)
    best = mean + (left * values)[:, :rank] @ right[:rank] * deviation
    assert_allclose(fitted(*states, rank), best, atol=5e-3)


@pytest.mark.parametrize("scale", [0.0, float("nan")])
def test_states_that_are_constant_or_not_finite_have_no_map(scale: float):
    sums = StateSums(WIDTH)
    sums.add(torch.ones(TOKENS, WIDTH) * scale, torch.randn(TOKENS, WIDTH))
    assert torch.equal(sums.solution(2), torch.zeros(5, WIDTH))
