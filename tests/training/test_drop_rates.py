"""Drop rates as written (schedules, targets, lists) and learned: mean, gates, gradients, useless blocks."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, check_grad
from scipy.special import softmax

from ldsearch.errors import TrainingError
from ldsearch.search.rules import strongest
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import State
from ldsearch.training.drop_rates import (
    DropRates,
    constant,
    layer_rates,
    learn_drop_rates,
    mean_rate,
    rates_of,
    target_rate,
)
from ldsearch.training.strategies import StackSetting
from ldsearch.training.strategies.layerdrop import draw_stack
from tests.planted import (
    WIDTH,
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


def test_the_mean_of_equal_rates_is_that_rate():
    for blocks in range(1, 49):
        assert mean_rate(constant(0.2, blocks)) == 0.2  # a sum of floats misses it from 3 blocks on


@pytest.mark.parametrize(
    ("blocks", "target", "pinned", "least"),
    [(6, 2, 1, 0), (6, 2, 0, 2), (6, 3, 0, 2), (12, 5, 2, 4), (6, 6, 1, 3)],
)
def test_the_mean_of_drawn_depths_is_the_target(blocks, target, pinned, least):
    """By every draw and its probability; pinned blocks and a least number counted."""
    rate = target_rate(blocks, target, pinned, least)
    mean = 0.0
    for drawn in itertools.product((0, 1), repeat=blocks - pinned):
        runs = sum(drawn)
        mean += rate ** (len(drawn) - runs) * (1 - rate) ** runs * max(pinned + runs, least)
    assert mean == pytest.approx(target)
    setting = StackSetting(blocks, (rate,) * blocks, tuple(range(pinned)), least)
    rng = np.random.default_rng(0)
    depths = [len(draw_stack(setting, ("layer",), rng).blocks) for _ in range(4_000)]
    assert np.mean(depths) == pytest.approx(target, abs=4 * np.std(depths) / 4_000**0.5 + 1e-9)


def test_what_is_asked_for_becomes_one_rate_per_block():
    assert layer_rates(3, (0.5,), "constant", None) == (0.5, 0.5, 0.5)
    assert layer_rates(4, (0.8,), "linear", None) == (0.2, 0.4, 0.6, 0.8)
    assert layer_rates(5, None, "linear", None) == (0.04, 0.08, 0.12, 0.16, 0.2)
    assert layer_rates(3, (0.0, 1.0, 0.5), "constant", None) == (0.0, 1.0, 0.5)
    # The paper's, of a target depth.
    for blocks, keep, rate in ((16, 8, 1 / 2), (12, 3, 3 / 4), (12, 8, 1 / 3), (6, 6, 0.0)):
        assert layer_rates(blocks, None, "constant", keep) == (rate,) * blocks


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((3, (0.1, 0.2), "constant", None), "2 LayerDrop rates for 3 blocks"),
        ((3, (), "constant", None), "0 LayerDrop rates for 3 blocks"),
        ((3, (0.1, 0.2, 0.3), "linear", None), "linear takes one rate"),
        ((2, (0.1, 0.2), "learned", None), "learned takes one rate"),
        ((3, (0.1,), "rising", None), "use constant or linear"),
        ((3, (0.1,), "constant", 2), "neither --layer-drop"),
        ((3, None, "linear", 2), "nor another --layer-drop-schedule"),
        ((3, None, "constant", 0), r"1\.\.3 for this model, not 0"),
        ((3, None, "constant", 1, 2), r"2\.\.3 for this model, not 1"),
        ((3, None, "constant", 1, 0, 2), r"2\.\.3 for this model, not 1"),
        ((3, None, "constant", 4), r"1\.\.3 for this model, not 4"),
        ((3, (1.1,), "constant", None), r"\[0, 1\], not 1\.1"),
        ((3, (1.1,), "linear", None), r"\[0, 1\], not 1\.1"),
        ((2, (0.5, -0.1), "constant", None), r"\[0, 1\], not -0\.1"),
        ((2, (float("nan"),), "linear", None), "not nan"),
    ],
)
def test_contradictions_are_refused_in_one_line(options, says):
    with pytest.raises(TrainingError, match=says) as refused:
        layer_rates(*options)
    assert "\n" not in str(refused.value)


def module(blocks: int = 5, rate: float = 0.4) -> DropRates:
    return DropRates(blocks, WIDTH, rate, np.random.default_rng(0))


def moved() -> DropRates:
    """Rates that differ, as if learned; in eval mode and float64, for finite differences."""
    found, rng = module().double().eval(), np.random.default_rng(1)
    with torch.no_grad():
        found.direction.copy_(torch.from_numpy(rng.standard_normal(len(found.direction)) / 4))
        found.activations.copy_(torch.from_numpy(rng.standard_normal(found.activations.shape)))
    return found


def states(seed: int = 0, rows: int = 3, n: int = 4) -> tuple[State, State]:
    generator = torch.Generator().manual_seed(seed)
    before, after = torch.randn(2, rows, n, WIDTH, generator=generator, dtype=torch.float64)
    real = torch.ones(rows, n, dtype=torch.bool)
    return State(before.requires_grad_(), real), State(after.requires_grad_(), real)


def hard_scores() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = [
        scale * rng.standard_normal(count) for count in (1, 2, 7, 12, 96) for scale in (0, 0.1, 3, 100, 1e30)
    ]
    one_apart = [sign * 1e4 * np.eye(12)[3] for sign in (-1, 1)]
    return [*drawn, *one_apart, np.repeat([0.0, 50.0, 1e6], 4)]


@pytest.mark.parametrize("mean", [1e-6, 0.1, 1 / 3, 0.5, 0.8, 1 - 1e-9])
def test_rates_are_shares_times_a_constant_cut_at_one_that_makes_their_mean_exact(mean):
    for scores in hard_scores():
        rates = rates_of(torch.tensor(scores, dtype=torch.float32), mean).numpy()
        assert abs(rates.mean(dtype=np.float64) - mean) < 1e-6
        assert rates.min() >= 0
        assert rates.max() <= 1
        # A block that matters more is never dropped more often.
        assert (np.diff(rates[np.argsort(scores, kind="stable")]) <= 1e-7).all()
        if np.abs(scores).max() > 20 or not 0.1 <= mean <= 0.8:
            continue  # the constant is out of the reach of a root finder
        shares, target = softmax(-scores), mean * len(scores)
        constant = brentq(lambda c: np.minimum(1, c * shares).sum() - target, 0, 1 / shares.min(), xtol=1e-13)  # noqa: B023
        expected = np.minimum(1, constant * shares)
        assert rates_of(torch.tensor(scores), mean).numpy() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("scores", [[0.1, -0.2, 0.3, 0.0], [3.0, -2.0, -2.5, 0.0], [9.0, -30.0, 1.0, -31.0]])
def test_the_gradient_of_the_rates_is_that_of_finite_differences(scores):
    start = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: rates_of(s, 0.6), (start,), eps=1e-7)


def test_a_gate_hands_on_output_or_input_and_its_gradient_exactly_as_the_uniform_number_says():
    found = moved()
    rates = found.rates().detach().numpy()
    for runs, uniforms in ((True, rates.copy()), (False, np.nextafter(rates, 0))):
        gate = found.between(uniforms)
        for block in range(5):
            before, after = states()
            handed_on = gate(block, before, after)
            chosen, other = (after, before) if runs else (before, after)
            assert torch.equal(handed_on, chosen.hidden)
            handed_on.sum().backward(retain_graph=True)  # of the rates
            assert torch.equal(chosen.hidden.grad, torch.ones_like(chosen.hidden))
            assert other.hidden.grad is None or not other.hidden.grad.any()


def test_the_gradient_of_the_gates_is_that_of_expected_residuals():
    """d/dθ of Σ_d (1 - p_d(θ)) <G_d, after_d - before_d>, whichever way the gates fell."""
    found = moved()
    upstream = torch.randn(5, 3, 4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    pairs = [states(seed) for seed in range(5)]
    gains = [
        float((upstream[d] * (after.hidden - before.hidden)).sum().detach())
        for d, (before, after) in enumerate(pairs)
    ]

    def expected(direction: np.ndarray) -> float:
        with torch.no_grad():
            found.direction.copy_(torch.from_numpy(direction))
            return float(((1 - found.rates().numpy()) * gains).sum())

    start = found.direction.detach().numpy().copy()
    for uniforms in (np.zeros(5), np.ones(5), np.linspace(0, 1, 5)):
        gate = found.between(uniforms)
        found.zero_grad()
        sum((upstream[d] * gate(d, *pair)).sum() for d, pair in enumerate(pairs)).backward()
        gradient = found.direction.grad.numpy().copy()
        assert check_grad(expected, lambda _: gradient, start, epsilon=1e-7) < 1e-4 * np.linalg.norm(gradient)  # noqa: B023
        expected(start)


def test_the_running_mean_is_over_real_tokens_and_forgets_old_batches():
    found = module(blocks=2)
    gate, real = found.between(np.ones(2)), torch.tensor([[True, True, True], [True, False, False]])

    def see(value: float) -> None:
        hidden = torch.full((2, 3, WIDTH), value)
        hidden[1, 1:] = 1e6
        hidden[1, 0] += 4.0  # one of four real tokens
        gate(1, State(hidden, real), State(hidden, real))

    for value in (1.0, 2.0, 6.0):
        see(value)
    assert found.activations[1].tolist() == pytest.approx([1 + 3.0] * WIDTH)
    assert found.activations[0].tolist() == [0.0] * WIDTH
    for _ in range(200):
        see(-2.0)
    assert found.activations[1].tolist() == pytest.approx([-2 + 1.0] * WIDTH, abs=1e-3)


def test_rates_and_gates_that_make_no_sense_are_refused_in_one_line():
    for rate in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(TrainingError, match="must lie in"):
            module(rate=rate)
    with pytest.raises(TrainingError, match="for 5 blocks"):
        module().between(np.zeros(4))
    before, after = states()
    with pytest.raises(TrainingError, match="full length"):
        module().between(np.zeros(5))(0, before, State(after.hidden[:, :2], after.real[:, :2]))


def one_needs_another() -> Planted:
    """No carrier is of use without the other."""
    return Planted([Identity(), Carrier(0, 10, 2.0), Noise(2), Carrier(10), Identity(), Identity()])


def learn(network: Planted, seed: int = 0, steps: int = 200, rate: float = 4 / 7) -> DropRates:
    sources = len({0, 1, 2} & {layer.source for layer in network.layers if isinstance(layer, Carrier)})
    return learn_drop_rates(network, batches(100, seed, sources), loss_of, rate=rate, steps=steps, seed=seed)


@pytest.mark.parametrize(
    ("make", "steps", "rate"),
    [
        (carriers_and_identities, 200, 0.7),  # which need not fit the number of useless blocks
        (carriers_and_both, 200, 4 / 7),
        (one_needs_another, 300, 4 / 6),
    ],
)
def test_planted_useless_blocks_rank_last(make, steps, rate):
    network = make()
    found = learn(network, 1, steps, rate)
    carriers = set(range(network.blocks)) - network.useless
    assert set(strongest(found.importance(), len(carriers))) == carriers
    rates = found.rates().detach().numpy()
    assert rates[list(network.useless)].min() > rates[list(carriers)].max() + 0.3


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


@pytest.mark.parametrize("family", [*FAMILIES, "layoutlm"])
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
