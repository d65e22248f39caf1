"""Fitting the correction of vectors: against least squares written out, and of other texts."""

import numpy as np
import pytest
import torch

from ldsearch.space.lengths import Shape, draw_shares
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION, correction_of
from ldsearch.supernet.embedding import OUTPUT
from ldsearch.supernet.supernet import inference
from ldsearch.tasks import TASKS, Encoded
from ldsearch.training import correction
from ldsearch.training.correction import fit_correction
from ldsearch.training.saliency import fit_saliency, is_fitted
from tests.tiny import learned, padded_batch, tiny_model
from tests.training.test_trainer import TOKENIZER, examples

BLOCKS, REFERENCE = 3, 16


def sentences(*, normalised: bool = False) -> Supernet:
    model = tiny_model("bert", blocks=BLOCKS, head="SentenceEmbedding")
    setattr(model.config, OUTPUT, {"pooling": "mean", "normalised": normalised})
    supernet = learned(model)
    correction_of(model).zero_()
    return supernet


def texts(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    rng = np.random.default_rng(seed)
    return [padded_batch(rng.integers(4, REFERENCE + 1, 8).tolist(), seed=seed + at) for at in range(count)]


def test_it_is_the_ridge_regression_of_what_is_lacking(monkeypatch):
    """By rows of its own for the ridge, from vectors that no code of the fit has made."""
    monkeypatch.setattr(correction, "RIDGES", (0.1,))
    monkeypatch.setattr(correction, "bf16_is_fast", lambda: False)
    net, batches = sentences(), texts(5, seed=0)
    rng, inputs, lacking = np.random.default_rng(7), [], []
    for batch in batches:
        whole = inference(net, batch, net.full).double()
        mask = batch["attention_mask"].double()[..., None]
        with torch.no_grad():
            states = net.model.bert.embeddings(batch["input_ids"]).double()
        entered = (states * mask).sum(dim=1) / mask.sum(dim=1)
        for _ in range(3):
            lengths = draw_shares(REFERENCE, BLOCKS, [Shape.EVEN, Shape.EARLY, Shape.ONCE], (0.2, 0.95), rng)
            kept = inference(net, batch, Subnet.of_encoder(range(BLOCKS), lengths, REFERENCE)).double()
            left = [-(-n * lengths[-1] // REFERENCE) for n in batch["attention_mask"].sum(dim=1).tolist()]
            dropped = 1 - torch.tensor(left)[:, None] / mask.sum(dim=1)
            inputs.append(torch.cat([entered, kept, torch.ones(8, 1)], dim=1))
            lacking.append(torch.cat([dropped, (whole - kept) / dropped], dim=1))
    known, wanting = torch.cat(inputs), torch.cat(lacking)
    scale, rows = known.square().mean(dim=0).sqrt(), wanting[:, 0] > 0
    known = known[rows] / scale
    ridge = np.sqrt(0.1 * (1 + len(known))) * np.eye(known.shape[1])
    left_side = np.concatenate([known.numpy(), ridge])
    right_side = np.concatenate([wanting[rows, 1:].numpy(), np.zeros((known.shape[1], 16))])
    wanted = np.linalg.lstsq(left_side, right_side, rcond=None)[0] / scale.numpy()[:, None]
    fit_correction(net, batches, REFERENCE, seed=7)
    np.testing.assert_allclose(correction_of(net.model).numpy(), wanted, atol=2e-4, rtol=2e-3)


@torch.no_grad()
def test_a_number_that_hardly_varies_gets_no_weight_that_half_precision_cannot_hold():
    """MiniLM has such ones; int8 has one scale for all that a vector's number is made of."""
    net = sentences()
    norm = net.model.bert.embeddings.LayerNorm
    norm.weight[3], norm.bias[3] = 1e-30, 0.0
    fit_correction(net, texts(10, seed=0), REFERENCE, seed=0)
    weights = correction_of(net.model)
    assert weights.any()
    assert weights[3].abs().max() < weights.abs().max()


@pytest.mark.parametrize("batches", [[padded_batch([1, 1])], [padded_batch([9])]])
def test_nothing_is_learned_of_texts_that_lose_no_token_or_of_one_alone(batches):
    net = sentences()
    fit_correction(net, batches, REFERENCE, seed=0)
    assert not correction_of(net.model).any()


def test_nothing_is_corrected_where_every_map_makes_other_texts_worse(monkeypatch):
    net = sentences(normalised=True)
    fit_correction(net, texts(2, seed=0), REFERENCE, seed=0)
    assert correction_of(net.model).any()
    # What a text lacks is told from another's: no map of it holds for those left out.
    rng = np.random.default_rng(0)

    def shuffled(*given):
        known, dropped, kept, _ = examples(*given)
        return known, dropped, kept, kept + torch.from_numpy(rng.normal(size=kept.shape))

    examples = correction._examples
    monkeypatch.setattr(correction, "_examples", shuffled)
    fit_correction(net, texts(2, seed=0), REFERENCE, seed=0)
    assert not correction_of(net.model).any()


def test_it_is_fitted_with_the_token_score():
    net = sentences()
    net.model._buffers.pop(CORRECTION)  # as of a folder from before
    rows = tuple({**row, "labels": [0.0] * 16} for row in examples(40))
    fit_saliency(net, TASKS["embedding"]({}, (), {}), Encoded(rows, REFERENCE), TOKENIZER)
    assert correction_of(net.model).any()
    assert is_fitted(net)


def test_shares_are_drawn_evenly():
    rng, blocks = np.random.default_rng(0), 6
    for shape, least in ((Shape.ONCE, 0.2), (Shape.EVEN, 0.2), (Shape.LATE, 1 / 3)):
        drawn = [sum(draw_shares(128, blocks, [shape], (0.2, 0.8), rng)) / 128 / blocks for _ in range(400)]
        counts, _ = np.histogram(drawn, bins=3, range=(least, 0.8))
        assert min(drawn) > least - 0.01
        assert max(drawn) < 0.81
        if shape is not Shape.LATE:
            assert counts.min() > 100
