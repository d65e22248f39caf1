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
from ldsearch.supernet.graph import OPSET
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


@pytest.mark.parametrize("scored", ["by a product", "by a sum"])
def test_openvino_orders_tokens_by_scores_in_fp32(tmp_path, scored):
    """Scores of 8 and some 512ths, which are equal in bf16, its precision on many processors."""
    onnx = pytest.importorskip("onnx")
    tokens, kept = 16, 5
    make, tensor = onnx.helper.make_node, onnx.numpy_helper.from_array
    ways = {
        "by a product": [
            make("MatMul", ["states", "column"], ["product"]),
            make("Reshape", ["product", "flat"], ["scores"]),
        ],
        "by a sum": [
            make("Mul", ["states", "weights"], ["terms"]),
            make("ReduceSum", ["terms", "axis"], ["scores"], keepdims=0),
        ],
    }
    graph = onnx.helper.make_graph(
        [
            make("MatMul", ["entered", "identity"], ["states"]),
            *ways[scored],
            make("TopK", ["scores", "count"], ["best", "places"], axis=1),
        ],
        "scored",
        [onnx.helper.make_tensor_value_info("entered", onnx.TensorProto.FLOAT, ["b", tokens, 2])],
        [onnx.helper.make_tensor_value_info("places", onnx.TensorProto.INT64, ["b", kept])],
        [
            tensor(np.eye(2, dtype=np.float32), "identity"),
            tensor(np.array([1, 1 / 512], dtype=np.float32), "weights"),
            tensor(np.array([[1], [1 / 512]], dtype=np.float32), "column"),
            tensor(np.array([-1]), "axis"),
            tensor(np.array([0, tokens]), "flat"),
            tensor(np.array([kept]), "count"),
        ],
    )
    path = tmp_path / "scored.onnx"
    opset = [onnx.helper.make_opsetid("", OPSET)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    small = np.stack([np.random.default_rng(seed).permutation(tokens) for seed in range(4)])
    entered = np.stack([np.full_like(small, 8), small], axis=-1).astype(np.float32)
    (places,) = open_openvino(path, 1).run({"entered": entered})
    assert (places == np.argsort(-small, axis=1)[:, :kept]).all()


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
