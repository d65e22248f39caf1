"""The supernet: skipping by hand, sharing, materialised models, gradients, refusals."""

import copy
from itertools import pairwise

import pytest
import torch

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import State, put_back
from ldsearch.testing.inputs import refuses, stock_output
from tests.supernet.test_generic import build
from tests.tiny import padded_batch, tiny_model
from tests.training.test_trainer import gradients_of, without_dropout


def test_token_types_reach_the_embedding():
    supernet = Supernet(tiny_model("bert"))
    batch = padded_batch([6, 6])
    batch["token_type_ids"] = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    assert torch.equal(inference(supernet, batch, supernet.full), stock_output(supernet.model, batch))


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_materialised_model_shares_its_weights_and_leaves_the_supernet_alone(family):
    supernet = Supernet(tiny_model(family))
    config, before = supernet.model.config.to_dict(), copy.deepcopy(supernet.model.state_dict())
    pointers = {p.data_ptr() for p in supernet.model.parameters()}
    for subnet in (
        Subnet.of_encoder([0, 2]),
        Subnet.of_encoder([0, 2], [8, 4], 12),
        Subnet.of_encoder([1, 3]),
    ):
        own = supernet.materialise(subnet)
        assert {p.data_ptr() for p in own.parameters() if p.numel()} < pointers
    narrow = Stack((0, 2), ffn_share=((0, 0.25), (2, 0.25)))
    cut = Stack((1, 2), heads_off=((1, 0),), ffn_share=((2, 0.5),), sublayers_off=((2, "attention"),))
    for stack in (narrow, cut):
        supernet.materialise(Subnet(encoder=stack))
    assert supernet.model.config.to_dict() == config
    torch.testing.assert_close(supernet.model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("asked", [{"every_n_layers": 2}, {"offload": True}])
def test_blocks_are_recomputed_in_one_way_only(asked):
    with pytest.raises(SupernetError, match="recomputes every block and offloads none"):
        Supernet(tiny_model("bert")).activation_checkpointing_enable(**asked)


def test_kept_tokens_alone_answer_for_no_other():
    with pytest.raises(SupernetError, match="--memory kept: each token is answered"):
        Supernet(tiny_model("bert", head="TokenClassification"), memory="kept")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"score": "nothing"}, "use one of learned, column, power"),
        ({"memory": "lost"}, "unknown memory 'lost': use restored or kept"),
        ({"skipped": "zero"}, "use identity or norm"),
    ],
)
def test_unknown_ways_to_run_are_refused_with_those_there_are(options, says):
    with pytest.raises(SupernetError, match=says):
        Supernet(tiny_model("bert"), **options)


def test_the_mode_of_a_supernet_is_the_models_and_survives_inference():
    model = tiny_model("bert")
    assert not Supernet(model).training
    supernet = Supernet(model.train())
    inference(supernet, padded_batch([3]), Subnet.full(4))
    assert supernet.training
    assert model.training


@pytest.mark.parametrize("kind", ["bert", "modernbert", "layoutlm"])
def test_what_leaves_each_block_can_be_looked_at_and_replaced(kind):
    supernet = Supernet(build(kind))
    batch, subnet, seen = padded_batch([7, 4]), Subnet.of_encoder([0, 1, 3]), []

    def look(block, before, after):
        seen.append((block, before.hidden, after.hidden))
        assert torch.equal(after.real, batch["attention_mask"].bool())
        return after.hidden

    with torch.inference_mode():
        looked = supernet(batch, subnet, look).logits
        stock = supernet.materialise(subnet)(**batch, output_hidden_states=True)
        assert torch.equal(looked, stock.logits)
        assert [block for block, _, _ in seen] == [0, 1, 3]
        for (_, before, _), theirs in zip(seen, stock.hidden_states[:3], strict=True):
            assert torch.equal(before, theirs)
        for (_, _, after), (_, before, _) in pairwise(seen):
            assert torch.equal(after, before)
    # What a block did is undone: as if it did not run. And no ear stays behind.
    undone = inference(supernet, batch, subnet, lambda block, *both: both[block != 1].hidden)
    assert torch.equal(undone, inference(supernet, batch, Subnet.of_encoder([0, 3])))
    assert len(seen) == 3


@pytest.mark.parametrize("off", [((0, 2),), ((0, -1),), ((1, 0), (1, 1))])
def test_heads_that_are_not_there_and_all_of_a_block_are_not_switched_off(off):
    supernet, subnet = Supernet(tiny_model("bert")), Subnet(encoder=Stack((0, 1), heads_off=off))
    for use in (lambda: supernet(padded_batch([3]), subnet), lambda: supernet.materialise(subnet)):
        assert refuses(use, SubnetError)


@pytest.mark.parametrize("kind", ["bert", "layoutlm", "bart", "t5"])
@pytest.mark.parametrize("mask", [[0, 1, 1], [1, 0, 1], [0, 0, 0]], ids=["left", "gap", "nothing"])
def test_padding_before_a_token_is_refused(kind, mask):
    supernet, ids = Supernet(build(kind)), torch.tensor([[5, 6, 7]] * 2)
    masks = torch.tensor([[1, 1, 1], mask])
    batch = supernet.inputs({"input_ids": ids, "attention_mask": masks, "labels": ids})
    with pytest.raises(SupernetError, match="left-padded"):
        inference(supernet, batch, supernet.full)
    masks[1] = torch.tensor([1, 1, 0])
    assert inference(supernet, batch, supernet.full).isfinite().all()


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


@pytest.mark.parametrize("head", ["QuestionAnswering", "MaskedLM"])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_it_trains_under_bf16_autocast_where_dropped_tokens_come_back(family, head):
    supernet = Supernet(tiny_model(family, head=head)).train()
    batch, subnet = padded_batch([24, 3, 17, 9, 1]), Subnet.of_encoder(range(4), (18, 13, 7, 2), 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = logits_of(supernet(batch, subnet))
    logits.float().square().mean().backward()
    assert logits.shape[:2] == batch["input_ids"].shape
    gradients = [p.grad for layer in supernet.layers_of("encoder") for p in layer.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("there", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("back", [torch.float32, torch.bfloat16])
def test_states_return_into_sequences_of_another_precision(there, back):
    places = torch.tensor([[0, 2]])
    state = State((places + 0.5)[..., None].expand(-1, -1, 2).to(back), torch.ones(1, 2).bool(), places)
    put = put_back(torch.zeros(1, 3, 2, dtype=there), state)
    assert put.dtype == there
    assert put[0, :, 0].tolist() == [0.5, 0, 2.5]


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "modernbert", "mpnet", "roberta"])
@pytest.mark.parametrize("lengths", [None, [9, 6, 4]], ids=["whole", "dropping"])
def test_training_what_no_head_reads_changes_no_output_and_no_gradient(family, lengths):
    """Of heads that read one token; as where states are read behind each block, and as the stock model's."""
    model = tiny_model(family)
    supernet = without_dropout(Supernet(model.train()))
    subnet = Subnet.of_encoder(range(3), lengths, 12) if lengths else supernet.full
    batch = padded_batch([12, 7, 12, 3])
    found, left = [], []

    def read(block, before, after):
        left.append(after.hidden.shape[1])
        return after.hidden

    ways = [lambda: supernet(batch, subnet), lambda: supernet(batch, subnet, read)]
    ways += [] if lengths else [lambda: model(**batch)]
    for way in ways:
        model.zero_grad()
        logits = way().logits
        logits.square().sum().backward()
        found.append((logits.detach(), gradients_of(model)))
    assert left == (lengths or [12] * 4)  # who reads the states is given all of them
    for logits, gradients in found[1:]:
        torch.testing.assert_close(found[0][0], logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(found[0][1], gradients, rtol=1e-4, atol=1e-5)


def test_both_ends_of_a_span_are_one_tensor():
    model, batch = tiny_model("bert", head="QuestionAnswering"), padded_batch([5, 3])
    with torch.inference_mode():
        stock = model(**batch)
    ends = inference(Supernet(model), batch, Subnet.full(4)).unbind(dim=-1)
    assert all(map(torch.equal, ends, (stock.start_logits, stock.end_logits)))
