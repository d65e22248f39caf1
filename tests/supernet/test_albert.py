"""ALBERT, whose one layer runs as often as there are blocks: as BERT does with that layer in every block."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AlbertForSequenceClassification

from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError
from ldsearch.evaluation.executor import Executor
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import trace
from ldsearch.supernet.saliency import LEARNED, WEIGHTS
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import assert_close, one_of_each, stock_output
from ldsearch.training.saliency import fit_to
from tests.supernet.exported import graph_output, reloaded
from tests.tiny import padded_batch, tiny_model

BATCH = padded_batch([12, 5, 9, 1])
WHOLE = {kind: one for kind, one in one_of_each(4, 12).items() if not one.encoder.structured}


def albert(**changes: object) -> AlbertForSequenceClassification:
    return tiny_model("albert", **changes)


def pair() -> tuple[Supernet, Supernet]:
    """ALBERT, its embeddings not projected, and a BERT of the same function."""
    one, other = albert(), tiny_model("bert")
    base = one.albert
    weight, bias, *others = base.encoder.albert_layer_groups[0].albert_layers[0].parameters()
    with torch.no_grad():
        base.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(16))
        base.encoder.embedding_hidden_mapping_in.bias.zero_()
        for layer in other.bert.encoder.layer:
            # The norm that is the last part of BERT's layer is the first of this one.
            for theirs, own in zip(layer.parameters(), (*others, weight, bias), strict=True):
                theirs.copy_(own)
    other.bert.embeddings.load_state_dict(base.embeddings.state_dict())
    other.bert.pooler.dense.load_state_dict(base.pooler.state_dict())
    other.classifier.load_state_dict(one.classifier.state_dict())
    return Supernet(one), Supernet(other)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_full_subnetwork_and_fewer_runs_are_the_stock_model_bit_for_bit(attention: str) -> None:
    supernet = Supernet(albert())
    supernet.model.set_attn_implementation(attention)
    assert torch.equal(inference(supernet, BATCH, supernet.full), stock_output(supernet.model, BATCH))
    for kept in ((0, 2), (1,), (0, 1, 2)):
        own = supernet.materialise(Subnet.of_encoder(kept))
        assert own.config.num_hidden_layers == len(kept)
        assert isinstance(own, AlbertForSequenceClassification)
        assert {p.data_ptr() for p in own.parameters()} == {p.data_ptr() for p in supernet.parameters()}
        assert torch.equal(stock_output(own, BATCH), inference(supernet, BATCH, Subnet.of_encoder(kept)))


@pytest.mark.parametrize("kind", WHOLE)
def test_a_subnetwork_is_that_of_a_bert_whose_blocks_are_the_one_layer(kind: str) -> None:
    (ours, theirs), subnet = pair(), WHOLE[kind]
    expected = inference(theirs, BATCH, subnet)
    fixed = ours.materialise(subnet).eval()
    for found in (
        inference(ours, BATCH, subnet),
        stock_output(fixed, BATCH),
        graph_output(ours, subnet, BATCH),
    ):
        assert_close(found, expected, subnet)
    # All weights stay, and a token is projected once.
    workload = Workload.from_lengths([12, 5], 12)
    macs, same = (one.macs(workload)([subnet])[0] for one in (ours, theirs))
    assert macs - same == 16 * 16 * workload.mean_length
    assert ours.parameters_cost([subnet])[0] == sum(p.numel() for p in fixed.parameters())


@pytest.mark.parametrize("kind", WHOLE)
def test_macs_are_what_torch_counts(kind: str) -> None:
    """As of other families: half of what another row adds."""
    supernet = Supernet(albert(attention="eager"))
    own = supernet.materialise(WHOLE[kind]).eval()
    counted = []
    for rows in (1, 2):
        with FlopCounterMode(display=False) as counter:
            stock_output(own, padded_batch([9] * rows))
        counted.append(counter.get_total_flops() / 2)
    assert supernet.macs(Workload.padded(9))([WHOLE[kind]])[0] == counted[1] - counted[0]


def test_sub_networks_that_share_give_what_each_gives_alone() -> None:
    supernet, found = Supernet(albert()), {}
    subnets = list(WHOLE.values())
    Executor(supernet).run(
        BATCH, subnets, lambda ends, logits: found.update(dict.fromkeys(ends, logits.clone()))
    )
    for place, subnet in enumerate(subnets):
        assert_close(found[place], inference(supernet, BATCH, subnet), subnet)


def test_the_layer_is_in_a_graph_once(tmp_path: Path) -> None:
    sizes = []
    for blocks in (2, 8):
        supernet = Supernet(albert(blocks=blocks, width=64))
        trace(supernet, supernet.full, path := tmp_path / f"{blocks}.onnx")
        sizes.append(path.stat().st_size)
    layer = sum(p.numel() for p in supernet.layers_of("encoder")[0].parameters())
    assert sizes[1] - sizes[0] < 4 * layer  # bytes of one more


def test_a_learned_score_is_one_for_all_runs_and_goes_with_an_export(tmp_path: Path) -> None:
    supernet = Supernet(albert(), LEARNED)
    fit_to(supernet, [BATCH], lambda logits, batch: logits.square().sum())
    layer, *others = supernet.layers_of("encoder")
    assert getattr(layer, WEIGHTS).any()
    assert all(other is layer for other in others)
    subnet = WHOLE["lengths"]
    loaded = reloaded(supernet, subnet, tmp_path / "out")
    assert_close(stock_output(loaded, BATCH), inference(supernet, BATCH, subnet), subnet)


def test_what_is_finer_than_a_block_is_refused() -> None:
    supernet = Supernet(albert())
    for stack in (Stack((0, 1), heads_off=((0, 1),)), Stack((0, 1), ffn_share=((0, 0.5),))):
        with pytest.raises(SubnetError, match=r"^all blocks of albert are one layer"):
            supernet.check(Subnet(encoder=stack))
