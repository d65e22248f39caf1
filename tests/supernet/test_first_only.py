"""Training passes of heads that read one token: outputs and gradients as with the rest, and as stock ones."""

from functools import partial

import pytest
import torch

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.testing.inputs import padded_batch
from tests.tiny import tiny_model
from tests.training.test_trainer import gradients_of, without_dropout

FAMILIES = ("bert", "distilbert", "electra", "modernbert", "mpnet", "roberta")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", [None, [9, 6, 4]], ids=["whole", "dropping"])
def test_what_no_one_reads_changes_nothing(family: str, lengths: list[int] | None) -> None:
    model = tiny_model(family)
    supernet = without_dropout(Supernet(model.train()))
    subnet = supernet.full if lengths is None else Subnet.of_encoder(range(3), lengths, 12)
    batch = padded_batch([12, 7, 12, 3], model.config.vocab_size, model.config.pad_token_id or 0)
    # Who reads the states behind each block is given all of them.
    readers = (None, lambda block, before, after: after.hidden)
    ways = [partial(supernet, batch, subnet, reader) for reader in readers]
    if lengths is None:
        ways.append(partial(model, **batch))
    found = []
    for way in ways:
        model.zero_grad()
        logits = logits_of(way())
        logits.square().sum().backward()
        found.append((logits.detach(), gradients_of(model)))
    for logits, gradients in found[1:]:
        torch.testing.assert_close(found[0][0], logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(found[0][1], gradients, rtol=1e-4, atol=1e-5)
