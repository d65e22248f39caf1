"""Every runtime gives what the supernet gives; others can be added."""

from functools import partial

import pytest
import torch
from packaging.version import Version

from ldsearch.latency.runtimes import RUNTIMES
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from tests.tiny import padded_batch, tiny_model

SUBNETS = (
    Subnet.full(4),
    Subnet.of_encoder([0, 2]),
    Subnet.of_encoder([0, 1, 3], [10, 6, 2], 12),
)


@pytest.mark.parametrize("name", ["eager", "own"])
def test_a_runtime_computes_the_subnetwork(name):
    supernet, batch = Supernet(tiny_model("bert")).eval(), padded_batch([12, 7])
    for subnet in SUBNETS:
        with torch.inference_mode():
            found = logits_of(RUNTIMES[name](supernet, subnet)(batch))
        assert torch.allclose(found, inference(supernet, batch, subnet), atol=1e-5)


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
