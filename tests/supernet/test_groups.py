"""Structured groups: stock models with zeroed weights, blocks by hand, and what is cut out of them."""

import pytest
import torch

from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from tests.tiny import padded_batch, tiny_model

BATCH = padded_batch([12, 5, 9])
WIDTH, UNITS = 8, 32  # of a head, of a feed-forward layer: tiny models have two heads of half of 16

# Where a layer's two projections back to the residual stream are, attention's first.
BACK = {
    "distilbert": ("attention.out_lin", "ffn.lin2"),
    "modernbert": ("attn.Wo", "mlp.Wo"),
}
BERT_BACK = ("attention.output.dense", "output.dense")


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_gradients_reach_what_is_on_and_nothing_else(family):
    supernet = Supernet(tiny_model(family)).train()
    stack = Stack((0, 1), heads_off=((0, 1),), ffn_share=((0, 0.5),), sublayers_off=((1, "attention"),))
    supernet(BATCH, Subnet(encoder=stack)).logits.square().sum().backward()
    attention, feed_forward = BACK.get(family, BERT_BACK)
    first, second = supernet.layers_of("encoder")[:2]
    heads = first.get_submodule(attention).weight.grad
    assert heads[:, :WIDTH].abs().min() > 0
    assert heads[:, WIDTH:].abs().max() == 0
    units = first.get_submodule(feed_forward).weight.grad
    assert units[:, : UNITS // 2].abs().max() > 0
    assert units[:, UNITS // 2 :].abs().max() == 0
    assert second.get_submodule(attention).weight.grad is None
    assert second.get_submodule(feed_forward).weight.grad.abs().max() > 0


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_what_is_cut_out_of_a_materialised_model_stays_in_the_supernet(family):
    supernet = Supernet(tiny_model(family))
    before = {name: tensor.clone() for name, tensor in supernet.model.state_dict().items()}
    stack = Stack((1, 2), heads_off=((1, 0),), ffn_share=((2, 0.5),), sublayers_off=((2, "attention"),))
    assert isinstance(supernet.materialise(Subnet(encoder=stack)), FixedSubnet)
    after = supernet.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
