"""int8 graphs: ONNX Runtime's dynamic quantisation of those that ``graph`` writes, and int8 weights alone.

In the first weights are integers with a scale for each output channel, activations uint8 with a scale found
at run time. With one scale for a whole matrix, ONNX Runtime's default, more rows change their label
(results/imdb). Weights lie in -64..64: x86 without VNNI sums pairs of products in 16 bits, which 8-bit
weights overflow, silently, and a file does not know where it will be served. The eighth bit is lost in the
noise of the activations (docs/exporting.md).
"""

import contextlib
import io
import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np

from ldsearch.supernet.processor import FACTS, processor_flags

# Products of int8 in one instruction, as Linux calls them on x86 and ARM. Without one int8 gains less.
INSTRUCTIONS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")


def quantise(fp32: Path, int8: Path, *, per_channel: bool = True) -> None:
    """Write the int8 graph of a graph; both may be the same path.

    Args:
        fp32: The graph.
        int8: Where its int8 graph goes.
        per_channel: A scale for each output channel of a weight, or one for all of it.
    """
    library = import_module("onnxruntime.quantization")
    made = int8.with_name(f".{int8.name}.int8")
    with _quiet():
        library.quantize_dynamic(
            fp32,
            made,
            weight_type=library.QuantType.QInt8,
            per_channel=per_channel,
            reduce_range=True,
            nodes_to_exclude=_scores(fp32),
        )
    _forget_shapes(made)
    made.replace(int8)


def quantise_weights(fp32: Path, int8: Path) -> None:
    """Write a graph whose products read int8 weights and scales, and leaves activations to the runtime.

    OpenVINO multiplies them with activations that it quantises at run time, in groups of a row's numbers
    (``DYNAMIC_QUANTIZATION_GROUP_SIZE``). All eight bits are used: it adds products in 32 bits.

    Args:
        fp32: The graph.
        int8: Where the other goes; may be the same path.
    """
    onnx = import_module("onnx")
    model = onnx.load(fp32)
    graph, excluded = model.graph, _scores(fp32)
    weights = {one.name: one for one in graph.initializer}
    nodes = []
    for node in graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        if name in weights and node.name not in excluded:
            if f"{name}_int8" not in weights:
                whole = onnx.numpy_helper.to_array(weights[name])
                scales = np.maximum(np.abs(whole).max(axis=0), np.finfo(np.float32).tiny) / 127
                rounded = np.round(whole / scales).astype(np.int8)
                weights[f"{name}_int8"] = onnx.numpy_helper.from_array(rounded, f"{name}_int8")
                weights[f"{name}_scales"] = onnx.numpy_helper.from_array(scales, f"{name}_scales")
                parts = [f"{name}_int8", f"{name}_scales"]
                nodes.append(onnx.helper.make_node("DequantizeLinear", parts, [f"{name}_whole"], axis=1))
            node.input[1] = f"{name}_whole"
        nodes.append(node)
    read = {name for node in nodes for name in node.input}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(one for name, one in weights.items() if name in read)
    onnx.save(model, int8)


def _scores(path: Path) -> list[str]:
    """Names of the products that give one number a token: scores, whose order int8 would change."""
    graph = import_module("onnx").load(path).graph
    columns = {one.name for one in graph.initializer if list(one.dims)[1:] == [1]}
    return [node.name for node in graph.node if node.op_type == "MatMul" and node.input[1] in columns]


def _forget_shapes(path: Path) -> None:
    """Leave out the shapes of intermediate tensors, which the quantiser wrote down.

    With them ONNX Runtime fuses residuals and norms (SkipLayerNormalization), which on CPUs takes thrice as
    long as an addition and a norm do: up to a quarter of the int8 graph's time (docs/exporting.md).
    """
    onnx = import_module("onnx")
    model = onnx.load(path)
    del model.graph.value_info[:]
    onnx.save(model, path)


def int8_instructions(facts: Path = FACTS) -> tuple[str, ...] | None:
    """The ``INSTRUCTIONS`` that this processor has; None where the system does not say."""
    flags = processor_flags(facts)
    return None if flags is None else tuple(name for name in INSTRUCTIONS if name in flags)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser recommends a pre-processing that changes nothing here, on a logger and on stdout."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.setLevel(level)
