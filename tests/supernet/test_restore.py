"""Drop-and-Restore: a dropped token carries the output of the last block that fully processed it."""

import pytest
import torch

from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import State, put_back
from tests.tiny import padded_batch, tiny_model


@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM"])
def test_the_first_token_may_be_dropped_where_a_head_reads_every_token(head):
    """It leaves as it entered. What tokens carry that leave later, the family contract tells."""
    supernet, batch = Supernet(tiny_model("bert", head=head)), padded_batch([24] * 8)
    one_left = inference(supernet, batch, Subnet.of_encoder([0], [1], 24))
    dropped = (one_left == inference(supernet, batch, Subnet(encoder=Stack(())))).all(dim=-1)
    assert dropped.sum(dim=1).tolist() == [23] * 8
    assert dropped[:, 0].any()


@pytest.mark.parametrize(
    ("there", "back"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_states_return_into_sequences_of_another_precision(there, back):
    places = torch.tensor([[0, 2]])
    state = State((places + 0.5)[..., None].expand(-1, -1, 2).to(back), torch.ones(1, 2).bool(), places)
    put = put_back(torch.zeros(1, 3, 2, dtype=there), state)
    assert put.dtype == there
    assert put[0, :, 0].tolist() == [0.5, 0, 2.5]


@pytest.mark.parametrize(("family", "head"), [("bert", "QuestionAnswering"), ("modernbert", "MaskedLM")])
def test_it_trains_under_bf16_autocast(family, head):
    supernet = Supernet(tiny_model(family, head=head)).train()
    batch = padded_batch([24, 3, 17, 9, 1, 24, 12, 5])
    subnet = Subnet.of_encoder(range(4), (18, 13, 7, 2), 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = logits_of(supernet(batch, subnet))
    logits.float().square().mean().backward()
    assert logits.shape[:2] == batch["input_ids"].shape
    gradients = [p.grad for layer in supernet.layers_of("encoder") for p in layer.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
