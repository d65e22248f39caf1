"""Fitting the learned token score: planted weights, gradients by hand, and what a training makes of it."""

import numpy as np
import pytest
import torch
from scipy.special import rel_entr

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.left_behind import MAP, RANK, left_behind
from ldsearch.supernet.saliency import LEARNED, WEIGHTS
from ldsearch.supernet.supernet import inference
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


def test_targets_are_gradients_at_the_states_that_leave_each_block():
    """Against the stock model's hidden states, and each token's change by finite differences."""
    model = tiny_model("bert", blocks=2, head="SequenceClassification").double().eval()
    supernet, batch = Supernet(model, LEARNED), labelled([7], seed=3)
    fit_to(supernet, [batch], loss)
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    states = model(**inputs, output_hidden_states=True).hidden_states
    layer, step = model.bert.encoder.layer[1], 1e-6
    norms = []
    for token in range(7):
        slopes = []
        for axis in range(states[1].shape[-1]):
            ends = []
            for sign in (1, -1):
                moved = states[1].detach().clone()
                moved[0, token, axis] += sign * step
                ends.append(loss(model.classifier(model.bert.pooler(layer(moved))), batch))
            slopes.append((ends[0] - ends[1]) / (2 * step))
        norms.append(torch.stack(slopes).norm())
    wanted = (torch.stack(norms) / max(norms) + LEAST).log().detach()
    contexts = []
    output = model.bert.encoder.layer[0].attention.output.dense
    handle = output.register_forward_pre_hook(lambda _, given: contexts.append(given[0].detach()))
    model(**inputs)
    handle.remove()
    sums = Sums(len(supernet.layers_of("encoder")[0].token_score))
    features = torch.cat([states[0].detach(), contexts[0]], dim=-1)
    sums.add(features.float(), wanted[None].float(), torch.ones(1, 7, dtype=torch.bool))
    expected = sums.solution()
    found = supernet.layers_of("encoder")[0].token_score.double()
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_fitted_and_nothing_else_of_it_changes(family: str):
    supernet = Supernet(tiny_model(family).train(), LEARNED)
    before = {name: tensor.clone() for name, tensor in supernet.model.state_dict().items()}
    assert not is_fitted(supernet)
    batch = labelled([9, 5, 16, 12], seed=1)
    fit_to(supernet, [batch], loss)
    assert is_fitted(supernet)
    assert weights_of(supernet).any(dim=1).all()
    changed = {
        name for name, tensor in supernet.model.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert all(name.endswith(WEIGHTS) for name in changed)
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
    for (entered, context, _), before, after in zip(
        seen, weights_of(plain), weights_of(with_prior), strict=True
    ):
        sums = Sums(len(before))
        sums.add(
            torch.cat([entered, context], dim=-1).detach(),
            prior(entered, batch),
            batch["attention_mask"].bool(),
        )
        torch.testing.assert_close(after - before, sums.solution().float(), atol=1e-2, rtol=1e-2)


def test_a_question_keeps_the_tokens_at_which_its_answer_may_start_or_end():
    """Start at tokens 1 or 2, end at 2 or 3 with as many odds; a pad is no answer."""
    task = TASKS["questions"]({}, (), {})
    never = -50.0
    logits = torch.tensor([[never, 0, 0, never, 9], [never, never, 0, 0, 9]]).T[None]
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


def test_tokens_that_decide_are_kept():
    """A model that reads one kind of token: after the fit those stay, by attention received they need not."""
    model = tiny_model("bert", blocks=2)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:  # everybody looks everywhere alike
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.zero_()
        table = model.bert.embeddings.word_embeddings.weight
        table[5:20] *= 0.05  # words that say little
    generator = torch.Generator().manual_seed(0)
    supernet = Supernet(model, LEARNED)

    def rows(seed: int) -> dict[str, torch.Tensor]:
        batch = labelled([16] * 32, seed)
        ids = torch.randint(5, 20, (32, 16), generator=generator)
        places = torch.stack([torch.randperm(15, generator=generator)[:3] + 1 for _ in range(32)])
        loud = torch.randint(20, 60, (32, 3), generator=generator)
        return {**batch, "input_ids": ids.scatter(1, places, loud)}

    fit_to(supernet, [rows(seed) for seed in range(6)], loss)
    held = rows(9)
    subnet = Subnet.of_encoder([0, 1], [4, 4], 16)
    full, short, blind = (
        inference(net, held, one)
        for net, one in ((supernet, supernet.full), (supernet, subnet), (Supernet(model, "column"), subnet))
    )
    assert (short - full).abs().mean() < (blind - full).abs().mean()


def test_a_training_fits_before_the_first_pass_that_drops_and_no_sooner(tmp_path):
    supernet = Supernet(tiny_model("bert"), LEARNED)
    trainer = trainer_for(tmp_path, Fixed([Pass(supernet.full, "label", 1.0)]), supernet, max_steps=2)
    trainer.train()
    assert not is_fitted(supernet)
    trainer = trainer_for(tmp_path, Fixed([Pass(SHORT, "label", 1.0)]), supernet, max_steps=2)
    trainer.train()
    assert is_fitted(supernet)


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


def test_two_trainings_of_one_seed_fit_alike(tmp_path):
    nets = [Supernet(tiny_model("bert"), LEARNED) for _ in range(2)]
    for net in nets:
        trainer_for(tmp_path, Fixed([Pass(SHORT, "label", 1.0)]), net, max_steps=2, seed=3).train()
    assert torch.equal(weights_of(nets[0]), weights_of(nets[1]))


@pytest.mark.parametrize("name", ["marian", "bart"])
def test_an_encoder_learns_from_what_its_decoder_loses(name: str):
    supernet = Supernet(tiny_encoder_decoder(name), LEARNED)
    batch = {**padded_batch([9, 6], seed=1), "labels": torch.tensor([[7, 8, 3], [9, 3, -100]])}
    fit_to(
        supernet, [batch], lambda logits, given: torch.nn.functional.cross_entropy(logits.mT, given["labels"])
    )
    assert weights_of(supernet).any(dim=1).all()


def test_what_would_answer_otherwise_if_it_were_dropped_is_worth_keeping():
    """The maps and the scores of a head that tags tokens, from the stock model's hidden states."""
    model = tiny_model("bert", blocks=2, head="TokenClassification").eval()
    supernet, batch = Supernet(model, LEARNED), padded_batch([9, 5, 12], seed=3)
    fit_to(supernet, [batch, batch], lambda logits, batch: logits.square().sum())
    assert is_fitted(supernet)
    output = model(**batch, output_hidden_states=True)
    _, entered, last = output.hidden_states
    (gradient,) = torch.autograd.grad(output.logits.square().sum(), [last])
    real = batch["attention_mask"].bool()
    states = StateSums(entered.shape[-1])
    states.add(entered[real].detach(), last[real].detach())
    layer = supernet.layers_of("encoder")[1]
    torch.testing.assert_close(left_behind(layer, entered), mapped(states, entered), atol=1e-3, rtol=1e-3)
    with torch.no_grad():
        answers = model.classifier(mapped(states, entered)).softmax(dim=-1).numpy()
    own = output.logits.detach().softmax(dim=-1).numpy()
    gap = torch.from_numpy(rel_entr(own, answers).sum(axis=-1))
    norms = gradient.norm(dim=-1).masked_fill(~real, 0.0)
    shares = norms / norms.amax(dim=1, keepdim=True)
    contexts: list[torch.Tensor] = []
    handle = layer.attention.output.dense.register_forward_pre_hook(
        lambda _, given: contexts.append(given[0].detach())
    )
    model(**batch)
    handle.remove()
    sums = Sums(len(layer.token_score))
    features = torch.cat([entered.detach(), contexts[0]], dim=-1)
    sums.add(features, (shares + LEAST).log() + (gap + 0.01).log(), real)
    torch.testing.assert_close(layer.token_score.double(), sums.solution(), atol=1e-2, rtol=1e-2)
    for own in supernet.layers_of("encoder"):
        getattr(own, MAP).zero_()
    assert not is_fitted(supernet)


def mapped(states: StateSums, entered: torch.Tensor) -> torch.Tensor:
    """By a map of the rank that a model of three tags has."""
    layer = torch.nn.Module()
    layer.register_buffer(MAP, states.solution(min(entered.shape[-1], RANK)))
    return left_behind(layer, entered).detach()


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
