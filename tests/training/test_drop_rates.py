"""Drop rates as written (schedules, targets, lists) and as learned (mean, gates, gradients, choice)."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, check_grad
from scipy.special import softmax

from ldsearch.errors import TrainingError
from ldsearch.search.rules import strongest
from ldsearch.supernet.tokens import State
from ldsearch.training.drop_rates import DropRates, constant, layer_rates, mean_rate, rates_of, target_rate
from ldsearch.training.strategies import StackSetting
from ldsearch.training.strategies.layerdrop import draw_stack
from tests.planted import WIDTH


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
    assert layer_rates(3, None, "constant", None) == (0.2, 0.2, 0.2)
    assert layer_rates(3, (0.5,), "constant", None) == (0.5, 0.5, 0.5)
    assert layer_rates(4, (0.8,), "linear", None) == (0.2, 0.4, 0.6, 0.8)
    assert layer_rates(5, None, "linear", None) == (0.04, 0.08, 0.12, 0.16, 0.2)
    assert layer_rates(3, (0.0, 1.0, 0.5), "constant", None) == (0.0, 1.0, 0.5)
    assert layer_rates(1, (0.5,), "linear", None) == (0.5,)
    assert layer_rates(3, (0.0,), "linear", None) == (0.0, 0.0, 0.0)
    # The paper's, of a target depth.
    for blocks, keep, rate in ((16, 8, 1 / 2), (12, 3, 3 / 4), (12, 8, 1 / 3), (6, 6, 0.0)):
        assert layer_rates(blocks, None, "constant", keep) == (rate,) * blocks


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((3, (0.1, 0.2), "constant", None), "2 LayerDrop rates for 3 blocks"),
        ((3, (), "constant", None), "0 LayerDrop rates for 3 blocks"),
        ((3, (0.1, 0.2, 0.3), "linear", None), "linear takes one rate"),
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


def module(blocks: int = 5, rate: float = 0.4, seed: int = 0) -> DropRates:
    return DropRates(blocks, WIDTH, rate, np.random.default_rng(seed))


def moved(blocks: int = 5, rate: float = 0.4, scale: float = 1.0) -> DropRates:
    """Rates that differ, as if learned; in eval mode and float64, for finite differences."""
    found = module(blocks, rate).double().eval()
    rng = np.random.default_rng(1)
    with torch.no_grad():
        found.direction.copy_(torch.from_numpy(scale * rng.standard_normal(len(found.direction)) / 4))
        found.activations.copy_(torch.from_numpy(rng.standard_normal((blocks, WIDTH))))
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


@pytest.mark.parametrize("mean", [1e-6, 0.1, 1 / 3, 0.5, 0.9, 1 - 1e-9])
def test_the_mean_rate_is_exact_and_every_rate_a_probability_whatever_the_scores(mean):
    for scores in hard_scores():
        rates = rates_of(torch.tensor(scores, dtype=torch.float32), mean).numpy()
        assert abs(rates.mean(dtype=np.float64) - mean) < 1e-6
        assert rates.min() >= 0
        assert rates.max() <= 1
        # A block that matters more is never dropped more often.
        assert (np.diff(rates[np.argsort(scores, kind="stable")]) <= 1e-7).all()


@pytest.mark.parametrize("mean", [0.1, 0.5, 0.8])
def test_rates_are_shares_times_a_constant_cut_at_one(mean):
    for scores in hard_scores():
        if np.abs(scores).max() > 20:
            continue  # the constant is out of the reach of a root finder
        shares, target = softmax(-scores), mean * len(scores)
        constant = brentq(lambda c: np.minimum(1, c * shares).sum() - target, 0, 1 / shares.min(), xtol=1e-13)  # noqa: B023
        expected = np.minimum(1, constant * shares)
        assert rates_of(torch.tensor(scores), mean).numpy() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("scores", [[0.1, -0.2, 0.3, 0.0], [3.0, -2.0, -2.5, 0.0], [9.0, -30.0, 1.0, -31.0]])
def test_the_gradient_of_the_rates_is_that_of_finite_differences(scores):
    start = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: rates_of(s, 0.6), (start,), eps=1e-7)


def test_all_rates_start_equal_and_ties_go_to_the_earlier_block():
    fresh = module(blocks=6, rate=0.3)
    assert fresh.rates().tolist() == pytest.approx([0.3] * 6, abs=1e-7)
    assert strongest(fresh.importance(), 4) == (0, 1, 2, 3)


def test_a_gate_hands_on_output_or_input_exactly_as_the_uniform_number_says():
    found = moved()
    rates = found.rates().detach().numpy()
    before, after = states()
    kept, dropped = found.between(rates.copy()), found.between(np.nextafter(rates, 0))
    for block in range(5):
        assert torch.equal(kept(block, before, after), after.hidden)
        assert torch.equal(dropped(block, before, after), before.hidden)


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


def test_hidden_states_get_the_gradient_of_what_was_handed_on():
    found = moved()
    for uniform, to_before, to_after in ((0.0, 1.0, 0.0), (1.0, 0.0, 1.0)):
        before, after = states()
        found.between(np.full(5, uniform))(2, before, after).sum().backward()
        for state, value in ((before, to_before), (after, to_after)):
            gradient = state.hidden.grad
            gradient = torch.zeros_like(state.hidden) if gradient is None else gradient
            assert torch.equal(gradient, torch.full_like(state.hidden, value))


def test_the_running_mean_is_over_real_tokens_and_forgets_old_batches():
    found = module(blocks=2)
    gate = found.between(np.ones(2))
    real = torch.tensor([[True, True, True], [True, False, False]])
    for value in (1.0, 2.0, 6.0):
        hidden = torch.full((2, 3, WIDTH), value)
        hidden[1, 1:] = 1e6
        hidden[1, 0] += 4.0  # one of four real tokens
        gate(1, State(hidden, real), State(hidden, real))
    assert found.activations[1].tolist() == pytest.approx([1 + 3.0] * WIDTH)
    assert found.activations[0].tolist() == [0.0] * WIDTH
    for _ in range(200):
        hidden = torch.full((2, 3, WIDTH), -1.0)
        gate(1, State(hidden, real), State(hidden, real))
    assert found.activations[1].tolist() == pytest.approx([-1.0] * WIDTH, abs=1e-3)


def test_bad_input_is_refused_in_one_line():
    for rate in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(TrainingError, match="must lie in"):
            module(rate=rate)
    with pytest.raises(TrainingError, match="for 5 blocks"):
        module().between(np.zeros(4))
    before, after = states()
    with pytest.raises(TrainingError, match="full length"):
        module().between(np.zeros(5))(0, before, State(after.hidden[:, :2], after.real[:, :2]))
