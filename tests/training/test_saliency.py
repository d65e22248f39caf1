"""Fitting the learned token score: planted weights, gradients by hand, and what a training makes of it."""

import numpy as np
import pytest
import torch
from scipy.special import rel_entr

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.left_behind import MAP, left_behind
from ldsearch.supernet.saliency import LEARNED, WEIGHTS
from ldsearch.tasks import TASKS
from ldsearch.training.left_behind import StateSums
from ldsearch.training.saliency import LEAST, RIDGE, Sums, fit_to, is_fitted, recorded
from ldsearch.training.strategies import Pass, Setting, make_strategy
from tests.tiny import FAMILIES, padded_batch, tiny_encoder_decoder, tiny_model
from tests.training.test_trainer import Fixed, trainer_for

SHORT = Subnet.of_encoder(range(4), [12, 8, 6, 4], 16)


def weights_of(supernet: Supernet) -> torch.Tensor:
    return torch.stack([getattr(layer, WEIGHTS) for layer in supernet.layers_of("encoder")])


def labelled(lengths: list[int], seed: int) -> dict[str, torch.Tensor]:
    batch = padded_batch(lengths, seed=seed)
    return {**batch, "labels": torch.arange(len(lengths)) % 3}


def loss(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, batch["labels"])


def test_planted_weights_are_found_whatever_is_added_to_a_row():
    """Against least squares with a constant for every row, and the ridge as rows of its own."""
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(8, 20, 5, generator=rng, dtype=torch.float64)
    real = torch.arange(20) < torch.tensor([20, 20, 9, 5, 14, 20, 1, 7])[:, None]
    planted = torch.tensor([3.0, -2.0, 0.0, 1.0, 0.5], dtype=torch.float64)
    targets = features @ planted + 100 * torch.arange(8)[:, None]
    sums = Sums(5)
    for rows in (slice(0, 3), slice(3, 8)):
        noise = torch.where(real[rows], 0.0, torch.nan)  # pads must not be read
        sums.add(torch.nan_to_num(features[rows] + noise[..., None], 7.0), targets[rows], real[rows])
    solved = sums.solution()
    torch.testing.assert_close(solved, planted, atol=0.05, rtol=0.02)
    row_of, inputs = torch.nonzero(real)[:, 0].numpy(), features[real].numpy()
    dummies = np.eye(8)[row_of]
    within = inputs - dummies @ np.linalg.lstsq(dummies, inputs, rcond=None)[0]
    ridge = np.sqrt(RIDGE * np.square(within).sum(axis=0).mean()) * np.eye(5)
    left = np.block([[inputs, dummies], [ridge, np.zeros((5, 8))]])
    right = np.concatenate([targets[real].numpy(), np.zeros(5)])
    np.testing.assert_allclose(solved.numpy(), np.linalg.lstsq(left, right, rcond=None)[0][:5], atol=1e-4)


def test_rows_of_one_token_tell_nothing():
    sums = Sums(2)
    sums.add(torch.randn(3, 1, 2), torch.randn(3, 1), torch.ones(3, 1, dtype=torch.bool))
    assert torch.equal(sums.solution(), torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_fitted_and_nothing_else_of_it_changes(family: str):
    supernet = Supernet(tiny_model(family).train(), LEARNED)
    before = {name: tensor.clone() for name, tensor in supernet.model.state_dict().items()}
    assert not is_fitted(supernet)
    batch = labelled([9, 5, 16, 12], seed=1)
    fit_to(supernet, [batch], loss)
    assert is_fitted(supernet)
    assert weights_of(supernet).any(dim=1).all()
    for name, tensor in supernet.model.state_dict().items():
        assert name.endswith(WEIGHTS) or torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in supernet.parameters())
    assert supernet.training


def test_a_regression_that_is_right_everywhere_is_fitted_as_one_that_is_wrong():
    """Its loss has no gradient where it is right; what its output depends on is the same."""
    task, generator = TASKS["regression"]({}, ("score",), {}), torch.Generator()
    model = tiny_model("bert", blocks=2, labels=1)
    batch = padded_batch([9, 5, 16, 12], seed=1)
    fitted = []
    for probe in (
        lambda logits, batch: task.probe(logits, batch, generator),
        lambda logits, batch: task.objective.loss(logits, {**batch, "labels": logits.detach()[:, 0] - 2}),
    ):
        supernet = Supernet(model, LEARNED)
        fit_to(supernet, [batch], probe)
        fitted.append(weights_of(supernet).clone())
    assert fitted[0].any()
    torch.testing.assert_close(fitted[0], fitted[1], atol=1e-3, rtol=1e-3)


def test_what_a_vector_depends_on_is_its_jacobian():
    """The squared gradients along random directions are in the mean those of all its numbers together."""
    task, generator = TASKS["embedding"]({}, (), {}), torch.Generator().manual_seed(0)
    weights = torch.randn(6, 4)
    state = torch.randn(4000, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(task.probe(state @ weights, {}, generator), state)
    torch.testing.assert_close(
        gradient.square().mean(dim=0), weights.square().sum(dim=1), rtol=0.1, atol=0.05
    )


def test_a_prior_is_fitted_beside_the_gradients():
    """The targets are a sum, so the weights are: those without it, and those of it alone."""
    model, batch = tiny_model("bert", blocks=2), labelled([9, 5, 16, 12], seed=1)

    def prior(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return 3 * torch.sin(batch["input_ids"].float())

    plain, with_prior = Supernet(model, LEARNED), Supernet(tiny_model("bert", blocks=2), LEARNED)
    fit_to(plain, [batch], loss)
    fit_to(with_prior, [batch], loss, prior)
    with recorded(plain) as seen:
        plain(plain.inputs(batch), plain.full)
    added, real = weights_of(with_prior) - weights_of(plain), batch["attention_mask"].bool()
    for (entered, context, _), found in zip(seen, added, strict=True):
        sums = Sums(len(found))
        sums.add(torch.cat([entered, context], dim=-1).detach(), prior(entered, batch), real)
        torch.testing.assert_close(found, sums.solution().float(), atol=1e-2, rtol=1e-2)


def test_a_question_keeps_the_tokens_at_which_its_answer_may_start_or_end():
    """Start at tokens 1 or 2, end at 2 or 3 with as many odds; a pad is no answer."""
    task = TASKS["questions"]({}, (), {})
    logits = torch.tensor([[-50.0, 0, 0, -50, 9], [-50, -50, 0, 0, 9]]).T[None]
    batch = {"attention_mask": torch.tensor([[1, 1, 1, 1, 0]]), "labels": torch.zeros(1, 2, dtype=torch.long)}
    found = task.token_prior(logits, batch).exp()[0]
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5, 1.0, 0.5, 0.0]))


def test_padding_changes_no_weight():
    alone, together = (Supernet(tiny_model("bert"), LEARNED) for _ in range(2))
    batch = labelled([9, 5, 16], seed=2)
    rows = [
        {name: t[i : i + 1, :n] if t.ndim > 1 else t[i : i + 1] for name, t in batch.items()}
        for i, n in enumerate((9, 5, 16))
    ]
    fit_to(together, [batch], loss)
    fit_to(alone, rows, loss)
    torch.testing.assert_close(weights_of(alone), weights_of(together), atol=1e-3, rtol=1e-3)


def test_a_training_fits_before_the_first_pass_that_drops_and_no_sooner(tmp_path):
    supernet = Supernet(tiny_model("bert"), LEARNED)
    for subnet in (supernet.full, SHORT):
        trainer_for(tmp_path, Fixed([Pass(subnet, "label", 1.0)]), supernet, max_steps=2).train()
        assert is_fitted(supernet) == (subnet == SHORT)


@pytest.mark.parametrize(("name", "found"), [("lengthdrop", LEARNED), ("layerdrop", "column")])
def test_a_score_that_nobody_names_is_learned_where_lengths_are_trained(tmp_path, name: str, found: str):
    """As train-supernet's default."""
    for score in (None, "power"):
        net = Supernet(tiny_model("bert"), score)
        before = {*net.model.state_dict()}
        assert net.score == (score or "column")
        strategy = make_strategy(name, Setting.of(net, 24, layer_drop=(0.2,)))
        trainer_for(tmp_path, strategy, net, max_steps=2).train()
        assert net.score == (score or found)
        assert ({*net.model.state_dict()} > before) == (net.score == LEARNED)
        assert is_fitted(net)


@pytest.mark.parametrize("name", ["marian", "bart"])
def test_an_encoder_learns_from_what_its_decoder_loses(name: str):
    supernet = Supernet(tiny_encoder_decoder(name), LEARNED)
    batch = {**padded_batch([9, 6], seed=1), "labels": torch.tensor([[7, 8, 3], [9, 3, -100]])}
    fit_to(supernet, [batch], lambda logits, given: loss(logits.mT, given))
    assert weights_of(supernet).any(dim=1).all()


@pytest.mark.parametrize(("head", "block"), [("SequenceClassification", 0), ("TokenClassification", 1)])
def test_targets_are_gradients_and_what_would_answer_otherwise_if_it_were_dropped(head: str, block: int):
    """At the states that leave a block of the stock model; of heads that tag tokens with the maps."""
    model = tiny_model("bert", blocks=2, head=head)
    supernet, batch = Supernet(model, LEARNED), padded_batch([9, 5, 12], seed=3)
    fit_to(supernet, [batch, batch], lambda logits, batch: logits.square().sum())
    layer, real = supernet.layers_of("encoder")[block], batch["attention_mask"].bool()
    contexts: list[torch.Tensor] = []
    reads = layer.attention.output.dense
    reads.register_forward_pre_hook(lambda _, given: contexts.append(given[0].detach()))
    output = model(**batch, output_hidden_states=True)
    entered, left = output.hidden_states[block : block + 2]
    (gradient,) = torch.autograd.grad(output.logits.square().sum(), [left])
    norms = gradient.norm(dim=-1).masked_fill(~real, 0.0)
    target = (norms / norms.amax(dim=1, keepdim=True) + LEAST).log()
    entered = entered.detach()
    if head == "TokenClassification":
        states, dropped = StateSums(entered.shape[-1]), torch.nn.Module()
        states.add(entered[real], output.hidden_states[-1][real].detach())
        dropped.register_buffer(MAP, states.solution(entered.shape[-1]))
        mapped = left_behind(dropped, entered)
        torch.testing.assert_close(left_behind(layer, entered), mapped, atol=1e-3, rtol=1e-3)
        answers = model.classifier(mapped).softmax(dim=-1).detach()
        gap = rel_entr(output.logits.softmax(dim=-1).detach().numpy(), answers.numpy()).sum(axis=-1)
        target = target + torch.from_numpy(gap + 0.01).log()
    sums = Sums(len(layer.token_score))
    sums.add(torch.cat([entered, contexts[0]], dim=-1), target, real)
    torch.testing.assert_close(layer.token_score.double(), sums.solution(), atol=1e-2, rtol=1e-2)


def test_maps_of_zeros_are_not_fitted():
    supernet = Supernet(tiny_model("bert", blocks=2, head="TokenClassification"), LEARNED)
    fit_to(supernet, [padded_batch([9, 5])], lambda logits, batch: logits.square().sum())
    assert is_fitted(supernet)
    for layer in supernet.layers_of("encoder"):
        getattr(layer, MAP).zero_()
    assert not is_fitted(supernet)


def test_sums_are_of_whole_precision_under_autocast():
    generator, found = torch.Generator().manual_seed(0), []
    features, targets = (torch.randn(*shape, generator=generator) for shape in ((4, 30, 6), (4, 30)))
    for half in (False, True):
        sums, states = Sums(6), StateSums(6)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            sums.add(features, targets, torch.ones(4, 30, dtype=torch.bool))
            states.add(features[0], features[1])
        found.append((sums.solution(), states.solution(3)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
