"""Structured groups: stock models with zeroed weights, blocks by hand, and what is cut out of them."""

import copy
import itertools

import pytest
import torch

from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from tests.tiny import FAMILIES, HEADED, padded_batch, tiny_model

BATCH = padded_batch([12, 5, 9])
WIDTH, UNITS = 8, 32  # of a head, of a feed-forward layer: tiny models have two heads of half of 16

# Where a layer's two projections back to the residual stream are, attention's first.
BACK = {
    "distilbert": ("attention.out_lin", "ffn.lin2"),
    "modernbert": ("attn.Wo", "mlp.Wo"),
}
BERT_BACK = ("attention.output.dense", "output.dense")

HEADS_OFF = Stack((0, 1, 3), heads_off=((0, 1), (3, 0)))
NARROW = Stack((0, 1, 3), ffn_share=((0, 0.5), (1, 0.05), (3, 0.9)))
BOTH = Stack((0, 1, 2, 3), heads_off=((0, 0), (2, 1)), ffn_share=((0, 0.25), (3, 0.5)))


def zeroed(supernet: Supernet, stack: Stack) -> torch.nn.Module:
    """A stock model of the stack's blocks, with the rows zeroed through which what is off would speak."""
    model = copy.deepcopy(supernet.model)
    layers = model.get_submodule(supernet.stacks["encoder"])
    kept = [layers[block] for block in stack.blocks]
    attention, feed_forward = BACK.get(model.config.model_type, BERT_BACK)
    with torch.no_grad():
        for block, head in stack.heads_off:
            weight = layers[block].get_submodule(attention).weight
            weight[:, WIDTH * head : WIDTH * (head + 1)] = 0
        for block, share in stack.ffn_share:
            layers[block].get_submodule(feed_forward).weight[:, max(1, round(share * UNITS)) :] = 0
    del layers[:]
    layers.extend(kept)
    model.config.num_hidden_layers = len(kept)
    return model


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    real = BATCH["attention_mask"].bool()
    if ours.shape[:2] == real.shape:
        ours, theirs = ours[real], theirs[real]
    torch.testing.assert_close(ours, theirs, atol=1e-5 * max(1.0, float(theirs.abs().max())), rtol=0)


@pytest.mark.parametrize("stack", [HEADS_OFF, NARROW, BOTH], ids=["heads", "narrow", "both"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_off_speaks_through_zeroed_weights(family, stack):
    supernet = Supernet(tiny_model(family))
    ours = inference(supernet, BATCH, Subnet(encoder=stack))
    with torch.inference_mode():
        close(ours, zeroed(supernet, stack)(**BATCH).logits)
    whole = inference(supernet, BATCH, Subnet.of_encoder(stack.blocks))
    assert not torch.allclose(ours, whole, atol=1e-3)


@pytest.mark.parametrize("head", HEADED)
def test_it_holds_for_every_head(head):
    supernet = Supernet(tiny_model("bert", head=head))
    with torch.inference_mode():
        close(inference(supernet, BATCH, Subnet(encoder=BOTH)), logits_of(zeroed(supernet, BOTH)(**BATCH)))


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "electra"])
def test_a_sublayer_that_is_off_is_skipped_with_its_norm_by_hand(family):
    model = tiny_model(family)
    supernet = Supernet(model)
    stack = Stack((0, 1, 2), sublayers_off=((0, "attention"), (1, "feed_forward"), (2, "feed_forward")))
    batch = padded_batch([7, 7])
    with torch.inference_mode():
        hidden = supernet.family.embed(model, batch).hidden
        first, second, third, _ = supernet.layers_of("encoder")
        hidden = first.output(first.intermediate(hidden), hidden)
        hidden = second.attention(hidden)[0]
        hidden = third.attention(hidden)[0]
        pooler = getattr(model.base_model, "pooler", None)
        expected = model.classifier(model.dropout(pooler(hidden)) if pooler else hidden)
    torch.testing.assert_close(inference(supernet, batch, Subnet(encoder=stack)), expected)


def test_a_sublayer_of_distilbert_that_is_off_is_skipped_with_its_norm_by_hand():
    model = tiny_model("distilbert")
    supernet = Supernet(model)
    stack = Stack((0, 1), sublayers_off=((0, "attention"), (1, "feed_forward")))
    batch = padded_batch([7, 7])
    with torch.inference_mode():
        hidden = supernet.family.embed(model, batch).hidden
        first, second, *_ = supernet.layers_of("encoder")
        hidden = first.output_layer_norm(first.ffn(hidden) + hidden)
        hidden = second.sa_layer_norm(second.attention(hidden)[0] + hidden)
        expected = model.classifier(model.pre_classifier(hidden[:, 0]).relu())
    torch.testing.assert_close(inference(supernet, batch, Subnet(encoder=stack)), expected)


def test_a_sublayer_of_modernbert_that_is_off_adds_nothing():
    supernet = Supernet(tiny_model("modernbert"))
    stack = Stack((0, 1, 3), sublayers_off=((0, "feed_forward"), (1, "attention"), (3, "feed_forward")))
    silent = zeroed(supernet, Stack(stack.blocks))
    layers = silent.get_submodule(supernet.stacks["encoder"])
    with torch.inference_mode():
        for linear in (layers[0].mlp.Wo, layers[1].attn.Wo, layers[2].mlp.Wo):
            linear.weight.zero_()
        close(inference(supernet, BATCH, Subnet(encoder=stack)), silent(**BATCH).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_without_both_sublayers_is_a_block_that_does_not_run(family):
    supernet = Supernet(tiny_model(family))
    idle = Stack((0, 1, 3), sublayers_off=((1, "attention"), (1, "feed_forward")))
    ours = inference(supernet, BATCH, Subnet(encoder=idle))
    assert torch.equal(ours, inference(supernet, BATCH, Subnet.of_encoder([0, 3])))


STACKS = (
    HEADS_OFF,
    NARROW,
    BOTH,
    Stack((1, 2), heads_off=((1, 0),)),  # a pinned block missing
    Stack((0, 2), sublayers_off=((0, "feed_forward"), (2, "attention"))),
    Stack((0, 1), heads_off=((0, 1),), ffn_share=((0, 0.5),), sublayers_off=((1, "attention"),)),
)


@pytest.mark.parametrize(("family", "stack"), list(itertools.product(FAMILIES, STACKS)))
def test_a_materialised_model_computes_the_same_with_as_many_parameters_as_are_counted(family, stack):
    supernet, subnet = Supernet(tiny_model(family)), Subnet(encoder=stack)
    before = {name: tensor.clone() for name, tensor in supernet.model.state_dict().items()}
    expected = inference(supernet, BATCH, subnet)
    fixed = supernet.materialise(subnet)
    assert isinstance(fixed, FixedSubnet)
    with torch.inference_mode():
        close(fixed.eval()(**BATCH).logits, expected)
    assert sum(p.numel() for p in fixed.parameters()) == supernet.parameters_cost([subnet])[0]
    after = supernet.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths_and_groups_at_once_are_the_materialised_model_too(family):
    supernet = Supernet(tiny_model(family))
    lengths = Subnet.of_encoder([0, 1, 3], [9, 6, 4], 12).encoder.lengths
    subnet = Subnet(encoder=Stack((0, 1, 3), lengths, ((0, 1), (3, 0)), ((1, 0.5),), ((3, "feed_forward"),)))
    expected = inference(supernet, BATCH, subnet)
    with torch.inference_mode():
        close(supernet.materialise(subnet).eval()(**BATCH).logits, expected)
    whole = inference(supernet, BATCH, Subnet.of_encoder([0, 1, 3], [9, 6, 4], 12))
    assert not torch.allclose(expected, whole, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", ["SequenceClassification", "MaskedLM"])
def test_one_narrower_width_everywhere_is_a_stock_model_of_that_width(family, head):
    supernet = Supernet(tiny_model(family, head=head))
    subnet = Subnet(encoder=Stack((0, 2, 3), ffn_share=((0, 0.25), (2, 0.25), (3, 0.25))))
    narrow = supernet.materialise(subnet)
    assert type(narrow) is type(supernet.model)
    assert (narrow.config.hidden_dim if family == "distilbert" else narrow.config.intermediate_size) == 8
    fresh = type(narrow)(copy.deepcopy(narrow.config)).eval()
    fresh.load_state_dict(narrow.state_dict())
    with torch.inference_mode():
        close(logits_of(fresh(**BATCH)), inference(supernet, BATCH, subnet))


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
