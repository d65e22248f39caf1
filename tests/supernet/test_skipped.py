"""Sub-layers that are off and leave their norm, x -> LN(x): the stock model with their branch zeroed."""

import pytest
import torch

from ldsearch.costs.workload import Workload
from ldsearch.errors import SupernetError
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import one_of_each, stock_output
from ldsearch.testing.reference import stock_logits
from tests.supernet.exported import graph_output, reloaded
from tests.tiny import padded_batch, tiny_encoder_decoder, tiny_model

BATCH = padded_batch([16, 9, 5])
SUBNETS = {kind: subnet for kind, subnet in one_of_each(4, 16).items() if subnet.encoder.sublayers_off}


@pytest.mark.parametrize("name", ["bert", "distilbert", "electra"])
@pytest.mark.parametrize("kind", SUBNETS)
def test_a_skipped_sublayer_is_the_norm_of_what_enters_it(name, kind):
    subnet = SUBNETS[kind]
    model = tiny_model(name, attention="eager")
    supernet = Supernet(model, skipped="norm")
    found = inference(supernet, BATCH, subnet)
    torch.testing.assert_close(found, stock_logits(supernet, BATCH, subnet.encoder), atol=2e-5, rtol=1e-5)
    assert (found - inference(Supernet(model), BATCH, subnet)).abs().max() > 1e-2
    cut = supernet.materialise(subnet).eval()
    assert supernet.parameters_cost([subnet])[0] == sum(p.numel() for p in cut.parameters())
    torch.testing.assert_close(stock_output(cut, BATCH), found, atol=1e-5, rtol=1e-5)


def test_only_a_count_that_has_norms_at_all_counts_those_that_stay():
    model, subnet = tiny_model("bert"), SUBNETS["sub-layers"]
    for torchprofile, more in ((False, 0), (True, 2 * 10 * model.config.hidden_size)):
        dear, cheap = (
            Supernet(model, skipped=skipped).macs(Workload.padded(10), torchprofile=torchprofile)([subnet])[0]
            for skipped in ("norm", "identity")
        )
        assert dear - cheap == pytest.approx(more)


@pytest.mark.parametrize("kind", SUBNETS)
def test_what_is_exported_is_the_sub_network(tmp_path, kind):
    supernet = Supernet(tiny_model("bert"), skipped="norm")
    expected = inference(supernet, BATCH, SUBNETS[kind])
    found = stock_output(reloaded(supernet, SUBNETS[kind], tmp_path / "hf"), BATCH)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    answer = graph_output(supernet, SUBNETS[kind], BATCH)
    torch.testing.assert_close(answer, expected, atol=1e-4, rtol=1e-5)


def test_norms_that_stay_are_trained():
    supernet = Supernet(tiny_model("bert"), skipped="norm")
    logits_of(supernet(BATCH, SUBNETS["sub-layers"])).square().sum().backward()
    layer = supernet.layers_of("encoder")[0]
    assert layer.output.LayerNorm.weight.grad.abs().max() > 0
    assert layer.output.dense.weight.grad is None


def test_pre_norm_models_have_no_such_choice():
    for model in (tiny_model("modernbert"), tiny_encoder_decoder("mbart")):
        with pytest.raises(SupernetError, match="post-norm models only"):
            Supernet(model, skipped="norm")
