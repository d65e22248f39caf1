"""Which of torch's exporters should write graphs? Both, on a tiny model of every family that has graphs.

``dynamo=True`` needs onnxscript, and three changes: no check of padding that reads data, tokens gathered by
torch alone, and the largest count as a number of unknown size. Per family and exporter: CPU seconds, nodes
without constants, the largest difference from torch on a padded batch of mixed lengths, and the int8
graph's or why there is none. The last line is one JSON object.

    pip install onnxscript && python scripts/bench_exporters.py
"""

import argparse
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import torch
from torch import Tensor

from ldsearch.latency.int8 import quantise
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet, graph, tokens
from ldsearch.supernet.families import bert, modernbert
from ldsearch.supernet.supernet import inference
from tests.tiny import padded_batch, tiny_model

FAMILIES = ("bert", "distilbert", "roberta", "electra", "modernbert")
SUBNET = Subnet.of_encoder([0, 1, 2], [20, 9, 4], 24)


def successor(supernet: Supernet, subnet: Subnet, path: Path) -> None:
    """The same graph by ``dynamo=True``."""

    def leading(position: Tensor, most: Tensor) -> Tensor:
        count = most.item()
        torch._check(count >= 1)
        torch._check(count <= position.shape[1])
        return position[:, :count]

    def best(scores: Tensor, most: Tensor) -> Tensor:
        count = most.item()
        torch._check(count >= 1)
        torch._check(count <= scores.shape[1])
        return scores.topk(count, dim=1).indices

    traced = graph.Graph(supernet, subnet).eval()
    # Each its own tensor: one that is given twice becomes one input of the graph, silently.
    examples = tuple(torch.ones(2, 6, dtype=torch.long) for _ in traced.names)
    shapes = tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in traced.names)
    with (
        patch.object(bert, "real_positions", lambda batch: batch["attention_mask"].bool()),
        patch.object(modernbert, "real_positions", lambda batch: batch["attention_mask"].bool()),
        patch.object(graph.operators, "leading", leading),
        patch.object(graph.operators, "best", best),
        patch.object(graph.operators, "split", lambda tensor, axis, parts: tensor.tensor_split(parts, axis)),
        patch.object(
            tokens,
            "gather",
            lambda hidden, index: hidden.gather(1, index[..., None].expand(-1, -1, hidden.shape[-1])),
        ),
        patch("torch.onnx.is_in_onnx_export", lambda: False),
        torch.no_grad(),
    ):
        torch.onnx.export(
            traced,
            examples,
            path,
            input_names=traced.names,
            output_names=traced.outputs,
            dynamic_shapes=(shapes,),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def measured(write: Callable[[Supernet, Subnet, Path], Any], family: str, folder: Path) -> dict[str, Any]:
    """What is printed of a family and an exporter."""
    supernet, path = Supernet(tiny_model(family, blocks=3)).eval(), folder / "model.onnx"
    began = time.process_time()
    write(supernet, SUBNET, path)
    seconds = time.process_time() - began
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    try:
        quantise(path, folder / "int8.onnx")
        refused = None
    except Exception as error:  # what is asked here is whether it can be done
        refused = str(error)
    batch = padded_batch([24, 9, 3, 30])
    want = inference(supernet, batch, SUBNET).numpy()
    off = {}
    for name in ("model", *([] if refused else ["int8"])):
        session = open_onnxruntime(folder / f"{name}.onnx", 1)
        blank = torch.zeros_like(batch["input_ids"])
        fed = {each: batch.get(each, blank).numpy() for each in session.inputs}
        off[name] = float(np.abs(session.run(fed)[0] - want).max())
    return {
        "seconds": round(seconds, 1),
        "nodes": sum(node.op_type != "Constant" for node in model.graph.node),
        "opset": model.opset_import[0].version,
        "bytes": path.stat().st_size,
        "off": off["model"],
        "off_int8": off.get("int8", refused),
    }


def main() -> None:
    """Print a line for each family and exporter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=[*FAMILIES])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    found = []
    for family in options.families:
        for name, write in {"traced": graph.trace, "dynamo": successor}.items():
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append({"family": family, "exporter": name, **measured(write, family, Path(folder))})
            print(json.dumps(found[-1]), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
