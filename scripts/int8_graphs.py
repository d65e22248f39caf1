"""ONNX graphs of sub-networks, quantised as people do it: ONNX Runtime's dynamic int8, nothing else.

Weights have a scale per output channel: with one per matrix, the default, more rows get another label than in
fp32 (results/imdb).
"""

from pathlib import Path

import onnxruntime

from ldsearch.latency.int8 import quantise
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import trace


def write_graphs(supernet: Supernet, subnet: Subnet, folder: Path) -> tuple[Path, Path]:
    """The fp32 and the int8 graph of a sub-network; those that are there are taken."""
    fp32, int8 = folder / "model.onnx", folder / "model_int8.onnx"
    if not int8.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        trace(supernet, subnet, fp32)
        quantise(fp32, int8)
    return fp32, int8


def versions() -> dict[str, str]:
    """What ran the graphs."""
    return {"onnxruntime": onnxruntime.__version__}
