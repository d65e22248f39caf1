"""Training passes of heads that read one token: the same outputs and gradients without the rest."""

import pytest
import torch

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.testing.inputs import padded_batch
from tests.tiny import tiny_model
from tests.training.test_trainer import without_dropout

FAMILIES = ("bert", "distilbert", "electra", "modernbert", "mpnet", "roberta")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", [None, [9, 6, 4]], ids=["whole", "dropping"])
def test_what_no_one_reads_changes_nothing(family: str, lengths: list[int] | None) -> None:
    model = tiny_model(family)
    supernet = without_dropout(Supernet(model.train()))
    blocks = supernet.blocks
    subnet = supernet.full if lengths is None else Subnet.of_encoder(range(3), lengths, 12)
    assert blocks >= 3
    batch = padded_batch([12, 7, 12, 3], model.config.vocab_size, model.config.pad_token_id or 0)
    found = []
    # Who reads the states behind each block is given all of them.
    for reader in (None, lambda block, before, after: after.hidden):
        model.zero_grad()
        logits = logits_of(supernet(batch, subnet, reader))
        logits.square().sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((logits.detach(), gradients))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-5)
    assert found[0][1].keys() == found[1][1].keys()
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(gradient, found[1][1][name], rtol=1e-4, atol=1e-5, msg=name)


def test_training_without_dropout_is_the_stock_models_forward_and_backward() -> None:
    model = tiny_model("bert").train()
    supernet = without_dropout(Supernet(model))
    batch = padded_batch([12, 7, 12, 3], model.config.vocab_size, model.config.pad_token_id or 0)
    gradients = []
    for run in (lambda: model(**batch), lambda: supernet(batch, supernet.full)):
        model.zero_grad()
        logits_of(run()).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for theirs, ours in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
