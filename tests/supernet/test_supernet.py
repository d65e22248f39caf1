"""The supernet: skipping by hand, sharing, refusals."""

import pytest
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.folder import load_classifier, load_supernet, read_record
from ldsearch.supernet.supernet import inference
from tests.tiny import FAMILIES, padded_batch, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_depth_subnetwork_is_the_kept_layers_called_by_hand(family):
    model = tiny_model(family)
    supernet = Supernet(model)
    batch = padded_batch([7, 7])
    with torch.inference_mode():
        hidden = supernet.family.embed(model, batch)
        for block in (1, 3):
            hidden = supernet.family.layers(model)[block](hidden)
        by_hand = supernet.family.head(model, hidden)
    assert torch.equal(inference(supernet, batch, Subnet.of_encoder([1, 3])), by_hand)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_blocks_at_all_give_the_head_on_the_embedding(family):
    model = tiny_model(family)
    supernet = Supernet(model)
    batch = padded_batch([5])
    with torch.inference_mode():
        by_hand = supernet.family.head(model, supernet.family.embed(model, batch))
    assert torch.equal(inference(supernet, batch, Subnet.of_encoder([])), by_hand)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_length_cannot_change_the_logits_of_a_cls_head(family):
    supernet = Supernet(tiny_model(family))
    batch = padded_batch([12, 9, 5])
    first = inference(supernet, batch, Subnet.of_encoder(range(4), [9, 7, 6, 6], 12))
    last = inference(supernet, batch, Subnet.of_encoder(range(4), [9, 7, 6, 1], 12))
    torch.testing.assert_close(first, last, atol=1e-6, rtol=0)
    other = inference(supernet, batch, Subnet.of_encoder(range(4), [9, 7, 3, 1], 12))
    assert not torch.allclose(first, other, atol=1e-3)


def test_token_types_reach_the_embedding():
    supernet = Supernet(tiny_model("bert"))
    batch = padded_batch([6, 6])
    types = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    with torch.inference_mode():
        theirs = supernet.model(**batch, token_type_ids=types).logits
    assert torch.equal(inference(supernet, {**batch, "token_type_ids": types}, Subnet.full(4)), theirs)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_materialised_model_shares_its_weights_and_leaves_the_supernet_alone(family):
    supernet = Supernet(tiny_model(family))
    before = inference(supernet, padded_batch([6]), Subnet.full(4))
    pruned = supernet.materialise(Subnet.of_encoder([1, 2]))
    assert type(pruned) is type(supernet.model)
    assert pruned.config.num_hidden_layers == 2
    assert supernet.model.config.num_hidden_layers == 4
    pointers = {p.data_ptr() for p in supernet.model.parameters()}
    assert {p.data_ptr() for p in pruned.parameters()} < pointers
    assert torch.equal(inference(supernet, padded_batch([6]), Subnet.full(4)), before)
    fixed = supernet.materialise(Subnet.of_encoder([1, 2], [8, 4], 12))
    assert isinstance(fixed, FixedSubnet)
    assert fixed.subnet.encoder.blocks == (0, 1)


def test_layer_ids_are_renumbered():
    pruned = Supernet(tiny_model("bert")).materialise(Subnet.of_encoder([1, 3]))
    ids = [m.layer_idx for m in pruned.modules() if getattr(m, "layer_idx", None) is not None]
    assert ids == [0, 1]


def test_gradients_reach_exactly_the_blocks_that_run():
    supernet = Supernet(tiny_model("bert")).train()
    supernet(padded_batch([8, 5]), Subnet.of_encoder([0, 2], [6, 3], 8)).logits.sum().backward()
    for block, layer in enumerate(supernet.family.layers(supernet.model)):
        touched = [p.grad is not None for p in layer.parameters()]
        assert all(touched) if block in (0, 2) else not any(touched)


def test_the_mode_of_a_supernet_is_the_models_and_survives_inference():
    model = tiny_model("bert")
    assert not Supernet(model).training
    supernet = Supernet(model.train())
    inference(supernet, padded_batch([3]), Subnet.full(4))
    assert supernet.training
    assert model.training


@pytest.mark.parametrize(
    "subnet",
    [
        Subnet.of_encoder([4]),
        Subnet(),
        Subnet(encoder=Stack((0,)), decoder=Stack((0,))),
        Subnet(encoder=Stack((0,), sublayers_off=((0, "attention"),))),
    ],
)
def test_subnetworks_that_do_not_fit_are_refused(subnet):
    supernet = Supernet(tiny_model("bert"))
    with pytest.raises(SubnetError):
        supernet(padded_batch([3]), subnet)
    with pytest.raises(SubnetError):
        supernet.materialise(subnet)


def test_unsupported_families_heads_and_scores_name_what_is_supported(tmp_path):
    gpt = GPT2ForSequenceClassification(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9))
    with pytest.raises(SupernetError, match="bert, distilbert"):
        Supernet(gpt)
    with pytest.raises(SupernetError, match="classification heads"):
        Supernet(tiny_model("bert").bert)
    with pytest.raises(SupernetError, match="column, power"):
        Supernet(tiny_model("bert"), "row")
    gpt.save_pretrained(tmp_path)
    with pytest.raises(SupernetError, match="bert, distilbert"):
        load_classifier(str(tmp_path))


def test_a_folder_that_is_no_supernet_is_refused_in_one_line(tmp_path):
    for folder in (tmp_path / "missing", tmp_path):
        with pytest.raises(SupernetError) as refused:
            load_supernet(folder)
        assert "\n" not in str(refused.value)
    (tmp_path / "supernet.json").write_text("{")
    with pytest.raises(SupernetError, match="damaged"):
        read_record(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_input_runs_and_one_more_token_does_not(family):
    model = tiny_model(family, positions=20)
    supernet = Supernet(model)
    assert supernet.longest == 20
    with torch.inference_mode():
        assert supernet(padded_batch([20, 3]), Subnet.full(4)).logits.isfinite().all()
        with pytest.raises((IndexError, RuntimeError)):
            model(**padded_batch([21, 3]))
