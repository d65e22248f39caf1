"""Sub-networks as others run them: from a folder, or as a graph in ONNX Runtime."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ldsearch.export.folder import write_huggingface
from ldsearch.export.loading import load_exported
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.export.test_export import PROVENANCE, TOKENIZER


def reloaded(supernet: Supernet, subnet: Subnet, folder: Path) -> torch.nn.Module:
    """What a folder holds that a sub-network was written to."""
    return load_exported(write_huggingface(supernet, TOKENIZER, subnet, folder, PROVENANCE).folder)


def graph_output(supernet: Supernet, subnet: Subnet, batch: Mapping[str, Tensor]) -> Tensor:
    """The logits that its graph gives."""
    (found,) = graph_runtime("onnx")(supernet, subnet)(batch)
    return torch.from_numpy(found)
