"""Sub-layers that are off and leave their norm, x -> LN(x): the stock model with their branch zeroed."""

import numpy as np
import pytest
import torch

from ldsearch.costs.workload import Workload
from ldsearch.errors import SupernetError
from ldsearch.export.folder import write_huggingface, write_onnx
from ldsearch.export.loading import load_exported
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import one_of_each
from ldsearch.testing.reference import stock_logits
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.tiny import padded_batch, tiny_encoder_decoder, tiny_model

BATCH = padded_batch([16, 9, 5])
SUBNETS = {kind: subnet for kind, subnet in one_of_each(4, 16).items() if subnet.encoder.sublayers_off}


@pytest.mark.parametrize("name", ["bert", "distilbert", "electra"])
@pytest.mark.parametrize("kind", SUBNETS)
def test_a_skipped_sublayer_is_the_norm_of_what_enters_it(name, kind):
    subnet = SUBNETS[kind]
    model = tiny_model(name, attention="eager").eval()
    supernet = Supernet(model, skipped="norm")
    found = inference(supernet, BATCH, subnet)
    torch.testing.assert_close(found, stock_logits(supernet, BATCH, subnet.encoder), atol=2e-5, rtol=1e-5)
    assert (found - inference(Supernet(model), BATCH, subnet)).abs().max() > 1e-2
    cut = supernet.materialise(subnet).eval()
    assert supernet.parameters_cost([subnet])[0] == sum(p.numel() for p in cut.parameters())
    with torch.no_grad():
        torch.testing.assert_close(logits_of(cut(**BATCH)), found, atol=1e-5, rtol=1e-5)


def test_only_a_count_that_has_norms_at_all_counts_those_that_stay():
    model, subnet = tiny_model("bert"), SUBNETS["sub-layers"]
    with_norms, without = Supernet(model, skipped="norm"), Supernet(model)
    for torchprofile, more in ((False, 0), (True, 2 * 10 * model.config.hidden_size)):
        dear, cheap = (
            one.macs(Workload.padded(10), torchprofile=torchprofile)([subnet])[0]
            for one in (with_norms, without)
        )
        assert dear - cheap == pytest.approx(more)


@pytest.mark.parametrize("kind", SUBNETS)
def test_what_is_exported_is_the_sub_network(tmp_path, kind):
    supernet = Supernet(tiny_model("bert").eval(), skipped="norm")
    expected = inference(supernet, BATCH, SUBNETS[kind])
    write_huggingface(supernet, TOKENIZER, SUBNETS[kind], tmp_path / "hf", PROVENANCE)
    with torch.no_grad():
        found = logits_of(load_exported(tmp_path / "hf")(**BATCH))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    write_onnx(supernet, TOKENIZER, SUBNETS[kind], tmp_path / "onnx", PROVENANCE)
    session = open_onnxruntime(tmp_path / "onnx" / "onnx" / "model.onnx", 1)
    blank = torch.zeros_like(BATCH["input_ids"])
    (answer,) = session.run({name: BATCH.get(name, blank).numpy() for name in session.inputs})
    np.testing.assert_allclose(answer, expected.numpy(), atol=1e-4)


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
    with pytest.raises(SupernetError, match="use identity or norm"):
        Supernet(tiny_model("bert"), skipped="zero")
