"""Every runtime gives what the supernet gives; others can be added."""

from functools import partial

import numpy as np
import pytest
import torch
from packaging.version import Version

from ldsearch.latency.runtimes import RUNTIMES
from ldsearch.latency.sessions import open_openvino
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from tests.tiny import padded_batch, tiny_model

SUBNETS = (
    Subnet.full(4),
    Subnet.of_encoder([0, 2]),
    Subnet.of_encoder([0, 1, 3], [10, 6, 2], 12),
    # Dropped once: runtimes compute one number in other ways than several.
    Subnet.of_encoder(range(3), [11, 11, 11], 12),
)


# The most that outputs are off by, as a share of their spread over rows and labels.
FP32, BF16, INT8 = 1e-5, 0.03, 0.05
OFF = {
    **dict.fromkeys(("eager", "own", "onnx", "openvino-f32"), FP32),
    "torch-bf16": BF16,
    "openvino": BF16,
    "onnx-int8": INT8,
}


def outputs(output: object) -> torch.Tensor:
    return logits_of(output).float() if hasattr(output, "keys") else torch.from_numpy(output[0])


@pytest.mark.parametrize("name", OFF)
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "electra", "modernbert"])
def test_a_runtime_computes_the_subnetwork(name, family):
    """On padded rows of mixed lengths; of what rounds most rows, since a row may keep another token."""
    supernet = Supernet(tiny_model(family)).eval()
    batch = padded_batch([12, 7, 3, 9, 12, 5, 10, 8])
    for subnet in SUBNETS:
        with torch.inference_mode():
            found = outputs(RUNTIMES[name](supernet, subnet)(batch))
            want = inference(supernet, batch, subnet)
        off = (found - want).abs().amax(dim=1) / (want.max() - want.min())
        assert float(off.max() if OFF[name] == FP32 else off.median()) < OFF[name], subnet


SCORED = """
<ir_version: 10, opset_import: ["" : 17]>
scored (float[b, 16, 2] entered) => (int64[b, 5] places)
<float[2, 2] identity = {1, 0, 0, 1}, float[2] weights = {1, 0.001953125},
 float[2, 1] column = {1, 0.001953125}, int64[1] axis = {-1}, int64[2] flat = {0, 16}, int64[1] count = {5}>
{
    states = MatMul (entered, identity)
    WAY
    best, places = TopK <axis = 1> (scores, count)
}
"""
WAYS = {
    "by a product": "product = MatMul (states, column)\n scores = Reshape (product, flat)",
    "by a sum": "terms = Mul (states, weights)\n scores = ReduceSum <keepdims = 0> (terms, axis)",
}


@pytest.mark.parametrize("scored", WAYS)
def test_openvino_orders_tokens_by_scores_in_fp32(tmp_path, scored):
    """Scores of 8 and some 512ths, which are equal in bf16, its precision on many processors."""
    onnx = pytest.importorskip("onnx")
    onnx.save(onnx.parser.parse_model(SCORED.replace("WAY", WAYS[scored])), tmp_path / "scored.onnx")
    small = np.stack([np.random.default_rng(seed).permutation(16) for seed in range(4)])
    entered = np.stack([np.full_like(small, 8), small], axis=-1).astype(np.float32)
    (places,) = open_openvino(tmp_path / "scored.onnx", 1).run({"entered": entered})
    assert (places == np.argsort(-small, axis=1)[:, :5]).all()


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.13.dev0"), reason="--runtime compile needs torch 2.13"
)
def test_no_model_runs_uncompiled_for_being_one_of_many(monkeypatch):
    """Torch silently gives up on code that is compiled too often (here twice); all of these share theirs."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    supernet, batch = Supernet(tiny_model("bert", blocks=3)).eval(), padded_batch([5])
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=2):
        for subnet in (Subnet.of_encoder([block]) for block in range(3)):
            before = len(graphs)
            with torch.inference_mode():
                found = logits_of(RUNTIMES["compile"](supernet, subnet)(batch))
            assert torch.allclose(found, inference(supernet, batch, subnet), atol=1e-5)
            assert len(graphs) > before, subnet
    torch.compiler.reset()
