"""Learning drop rates: useless blocks rank last, the choice is fixed, the supernet stays as it was."""

import numpy as np
import pytest
import torch

from ldsearch.errors import TrainingError
from ldsearch.search.rules import strongest
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.training.drop_rates import DropRates, learn_drop_rates
from tests.planted import (
    Carrier,
    Identity,
    Noise,
    Planted,
    batches,
    carriers_and_both,
    carriers_and_identities,
    carriers_and_noise,
    loss_of,
)
from tests.tiny import FAMILIES, padded_batch, tiny_model

GENERIC = "layoutlm"  # no registered family

ONE_NEEDS_ANOTHER = "one needs another"
PLANTED = {
    "identity": carriers_and_identities,
    "noise": carriers_and_noise,
    "both": carriers_and_both,
    # No carrier is of use without the other.
    ONE_NEEDS_ANOTHER: lambda: Planted(
        [Identity(), Carrier(0, 10, 2.0), Noise(2), Carrier(10), Identity(), Identity()]
    ),
}


def learn(network: Planted, seed: int = 0, steps: int = 200, **options: object) -> DropRates:
    rate = options.pop("rate", len(network.useless) / network.blocks)
    sources = len({0, 1, 2} & {layer.source for layer in network.layers if isinstance(layer, Carrier)})
    return learn_drop_rates(
        network, batches(100, seed, sources), loss_of, rate=rate, steps=steps, seed=seed, **options
    )


@pytest.mark.parametrize("name", PLANTED)
def test_planted_useless_blocks_rank_last(name):
    network = PLANTED[name]()
    found = learn(network, 1, steps=300 if name == ONE_NEEDS_ANOTHER else 200)
    carriers = set(range(network.blocks)) - network.useless
    assert set(strongest(found.importance(), len(carriers))) == carriers
    rates = found.rates().detach().numpy()
    assert rates[list(network.useless)].min() > rates[list(carriers)].max() + 0.3


def test_learning_needs_no_rate_that_fits_the_number_of_useless_blocks():
    network = carriers_and_identities()
    carriers = strongest(learn(network, rate=0.7).importance(), network.blocks - 3)
    assert set(range(network.blocks)) - set(carriers) == network.useless


def test_after_learning_no_input_changes_the_choice():
    network = carriers_and_both()
    found = learn(network, steps=50)
    importance, kept = found.importance(), strongest(found.importance(), 3)
    full = Subnet.full(network.blocks)

    def run() -> None:
        for batch in batches(5, seed=99):
            network({**batch, "hidden": batch["hidden"] + 3}, full, between=found.between(np.full(7, 0.5)))

    run()
    assert (found.importance() == importance).all()
    assert strongest(found.importance(), 3) == kept
    # The control: these inputs are unlike those learned from, and would have changed something.
    found.train()
    run()
    assert (found.importance() != importance).any()


def test_a_seed_means_the_same_rates_and_another_seed_others():
    torch_state = torch.get_rng_state()
    first, again, other = (learn(carriers_and_both(), steps=20, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(first.rates(), again.rates())
    assert (first.importance() == again.importance()).all()
    assert not torch.equal(first.rates(), other.rates())
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize("fails", [False, True])
def test_learning_leaves_the_supernet_as_it_was(fails):
    network = carriers_and_identities().train()
    weights = [*network.parameters()]
    weights[0].requires_grad_(False)
    start = [weight.detach().clone() for weight in weights]
    data = iter(batches(3, 0)) if fails else batches(3, 0)
    options = {"rate": 0.5, "steps": 5, "seed": 0}
    if fails:
        with pytest.raises(TrainingError, match="too few batches"):
            learn_drop_rates(network, data, loss_of, **options)
    else:
        assert not learn_drop_rates(network, data, loss_of, **options).training
    assert network.modes == [False] * (3 if fails else 5)
    assert network.training
    assert [weight.requires_grad for weight in weights] == [False, True, True]
    assert all(weight.grad is None for weight in weights)
    assert all(torch.equal(old, new) for old, new in zip(start, weights, strict=True))


@pytest.mark.parametrize("family", [*FAMILIES, GENERIC])
def test_a_gated_pass_is_the_subnetwork_of_the_blocks_whose_gates_are_open(family):
    supernet = Supernet(tiny_model(family))
    batch = padded_batch([7, 4, 9])
    gates = DropRates(4, 16, 0.5, np.random.default_rng(0)).between(np.array([0.9, 0.1, 0.6, 0.2]))
    gated = supernet(batch, Subnet.full(4), between=gates).logits
    torch.testing.assert_close(gated, inference(supernet, batch, Subnet.of_encoder((0, 2))))
    assert not torch.allclose(gated, inference(supernet, batch, Subnet.full(4)), atol=1e-2)


def test_learning_without_steps_or_batches_is_refused():
    for data, steps in (([], 5), (batches(1, 0), 0)):
        with pytest.raises(TrainingError, match="drop rates"):
            learn_drop_rates(carriers_and_noise(), data, loss_of, rate=0.5, steps=steps, seed=0)
