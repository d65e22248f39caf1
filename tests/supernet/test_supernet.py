"""The supernet: skipping by hand, sharing, materialised models, refusals."""

import copy

import pytest
import torch
from transformers import AutoConfig, PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.heads import HEADS, logits_of
from ldsearch.supernet.supernet import inference
from tests.tiny import padded_batch, tiny_model


def by_hand(supernet: Supernet, blocks: list[int]) -> torch.nn.Module:
    """A copy of the stock model whose other layers are taken out of its list."""
    model = copy.deepcopy(supernet.model)
    layers = model.get_submodule(supernet.stacks["encoder"])
    kept = [layers[block] for block in blocks]
    del layers[:]
    layers.extend(kept)
    model.config.num_hidden_layers = len(kept)
    return model


def test_token_types_reach_the_embedding():
    supernet = Supernet(tiny_model("bert"))
    batch = padded_batch([6, 6])
    types = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    with torch.inference_mode():
        theirs = supernet.model(**batch, token_type_ids=types).logits
    assert torch.equal(inference(supernet, {**batch, "token_type_ids": types}, Subnet.full(4)), theirs)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_materialised_model_shares_its_weights_and_leaves_the_supernet_alone(family):
    supernet = Supernet(tiny_model(family))
    pinned = supernet.pinned_of("encoder")
    blocks = [0, 2] if pinned else [1, 3]
    config, before = supernet.model.config.to_dict(), copy.deepcopy(supernet.model.state_dict())
    whole = Subnet.of_encoder(blocks), Subnet.of_encoder(blocks, [8, 4], 12), Subnet.of_encoder([1, 3])
    stock, fixed, left_out = made = [supernet.materialise(one) for one in whole]
    assert type(stock) is type(supernet.model)
    assert stock.config.num_hidden_layers == 2
    assert isinstance(fixed, FixedSubnet)
    assert fixed.subnet.encoder.blocks == (0, 1)
    # Without its pinned block a model stays whole.
    assert isinstance(left_out, FixedSubnet) == bool(pinned)
    assert left_out.config.num_hidden_layers == (4 if pinned else 2)
    pointers = {p.data_ptr() for p in supernet.model.parameters()}
    assert all({p.data_ptr() for p in own.parameters() if p.numel()} < pointers for own in made)
    supernet.materialise(Subnet(encoder=Stack((0, 2), ffn_share=((0, 0.25), (2, 0.25)))))
    cut = Stack((1, 2), heads_off=((1, 0),), ffn_share=((2, 0.5),), sublayers_off=((2, "attention"),))
    assert isinstance(supernet.materialise(Subnet(encoder=cut)), FixedSubnet)
    assert supernet.model.config.to_dict() == config
    torch.testing.assert_close(supernet.model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("asked", [{"every_n_layers": 2}, {"offload": True}])
def test_blocks_are_recomputed_in_one_way_only(asked):
    supernet = Supernet(tiny_model("bert"))
    with pytest.raises(SupernetError, match="recomputes every block and offloads none"):
        supernet.activation_checkpointing_enable(**asked)
    assert not supernet.pipeline.checkpointing


def test_the_mode_of_a_supernet_is_the_models_and_survives_inference():
    model = tiny_model("bert")
    assert not Supernet(model).training
    supernet = Supernet(model.train())
    inference(supernet, padded_batch([3]), Subnet.full(4))
    assert supernet.training
    assert model.training


def generic() -> PreTrainedModel:
    """Of no registered family."""
    fields = tiny_model("bert").config.to_dict() | {"model_type": "layoutlm"}
    return HEADS["SequenceClassification"].auto.from_config(AutoConfig.for_model(**fields)).eval()


@pytest.mark.parametrize("make", [lambda: tiny_model("bert"), lambda: tiny_model("modernbert"), generic])
def test_what_leaves_each_block_can_be_looked_at_and_replaced(make):
    supernet = Supernet(make())
    batch, subnet, seen = padded_batch([7, 4]), Subnet.of_encoder([0, 1, 3]), []

    def look(block, before, after):
        seen.append((block, before.hidden, after.hidden))
        assert torch.equal(after.real, batch["attention_mask"].bool())
        return after.hidden

    with torch.inference_mode():
        looked = supernet(batch, subnet, look).logits
        stock = by_hand(supernet, [0, 1, 3])(**batch, output_hidden_states=True)
        assert torch.equal(looked, stock.logits)
        assert [block for block, _, _ in seen] == [0, 1, 3]
        assert torch.equal(seen[0][1], stock.hidden_states[0])
        for index, (_, _, after) in enumerate(seen[:2]):
            assert torch.equal(after, stock.hidden_states[index + 1])
            assert torch.equal(seen[index + 1][1], after)
        # What a block did is undone: as if it did not run. And no ear stays behind.
        undone = supernet(
            batch, subnet, lambda block, before, after: (before if block == 1 else after).hidden
        )
        assert torch.equal(undone.logits, inference(supernet, batch, Subnet.of_encoder([0, 3])))
        assert len(seen) == 3


@pytest.mark.parametrize(
    "subnet",
    [
        Subnet(encoder=Stack((0,)), decoder=Stack((0,))),
        Subnet(encoder=Stack((0,), heads_off=((0, 2),))),
        Subnet(encoder=Stack((0,), heads_off=((0, -1),))),
        Subnet(encoder=Stack((0, 1), heads_off=((1, 0), (1, 1)))),
    ],
)
def test_subnetworks_that_do_not_fit_are_refused(subnet):
    supernet = Supernet(tiny_model("bert"))
    for use in (lambda: supernet(padded_batch([3]), subnet), lambda: supernet.materialise(subnet)):
        with pytest.raises(SubnetError) as refused:
            use()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("make", [lambda: tiny_model("bert"), generic])
@pytest.mark.parametrize("mask", [[0, 1, 1], [1, 0, 1], [0, 0, 0]], ids=["left", "gap", "nothing"])
def test_padding_before_a_token_is_refused(make, mask):
    supernet = Supernet(make())
    batch = {"input_ids": torch.tensor([[5, 6, 7]] * 2), "attention_mask": torch.tensor([[1, 1, 1], mask])}
    with pytest.raises(SupernetError, match="left-padded"):
        inference(supernet, batch, Subnet.full(4))
    batch["attention_mask"][1] = torch.tensor([1, 1, 0])
    assert inference(supernet, batch, Subnet.full(4)).isfinite().all()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_gradients_reach_what_is_on_and_nothing_else(family):
    supernet = Supernet(tiny_model(family)).train()
    stack = Stack((0, 1), heads_off=((0, 1),), ffn_share=((0, 0.5),), sublayers_off=((1, "attention"),))
    supernet(padded_batch([12, 5, 9]), Subnet(encoder=stack)).logits.square().sum().backward()
    first, second = map(supernet.family.parts, supernet.layers_of("encoder")[:2])
    heads, units = first.output.weight.grad, first.contract.weight.grad
    assert heads[:, : first.head_width].abs().min() > 0
    assert heads[:, first.head_width :].abs().max() == 0
    assert units[:, : units.shape[1] // 2].abs().max() > 0
    assert units[:, units.shape[1] // 2 :].abs().max() == 0
    assert second.output.weight.grad is None
    assert second.contract.weight.grad.abs().max() > 0


def test_both_ends_of_a_span_are_one_tensor():
    model = tiny_model("bert", head="QuestionAnswering")
    batch = padded_batch([5, 3])
    with torch.inference_mode():
        stock = model(**batch)
        ours = logits_of(Supernet(model)(batch, Subnet.full(4)))
    assert ours.shape == (2, 5, 2)
    assert torch.equal(ours[..., 0], stock.start_logits)
    assert torch.equal(ours[..., 1], stock.end_logits)
