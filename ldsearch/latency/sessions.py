"""Graph files, opened in the libraries that serve them."""

import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Session:
    """An opened graph.

    Args:
        inputs: Names of what it asks for.
        outputs: Names of what it gives.
        run: Given an array for each input, gives those of the outputs, in order.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Callable[[Arrays], Sequence[NDArray[np.float32]]]


def open_onnxruntime(path: Path, threads: int = 0) -> Session:
    """A file in ONNX Runtime on the CPU, with so many threads; 0: as many as it takes by itself."""
    library = import_module("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait by spinning would slow down what is timed next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    graph = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = tuple(entry.name for entry in graph.get_inputs())
    return Session(
        names,
        tuple(entry.name for entry in graph.get_outputs()),
        lambda arrays: graph.run(None, {name: arrays[name] for name in names}),
    )


def open_openvino(path: Path, threads: int = 0, *, precision: str | None = None) -> Session:
    """A file in OpenVINO on the CPU; scores of tokens and their order in fp32, whatever the rest is in.

    Args:
        path: The file.
        threads: How many; 0: as many as it takes by itself.
        precision: Of its products, such as ``"f32"``; None: OpenVINO's own choice for the processor.
    """
    library: Any = import_module("openvino")
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = precision
    core = library.Core()
    with tempfile.TemporaryDirectory() as scratch:
        compiled = core.compile_model(_with_exact_scores(library, core, path, Path(scratch)), "CPU", settings)
    names = tuple(port.get_any_name() for port in compiled.inputs)
    own = threading.local()  # a request holds one call at a time

    def run(arrays: Arrays) -> list[NDArray[np.float32]]:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        found = own.request.infer({name: arrays[name] for name in names}, share_inputs=True)
        return [found[port] for port in compiled.outputs]

    return Session(names, tuple(port.get_any_name() for port in compiled.outputs), run)


# What makes a token's score of a block's products: the choice, what is added to a sum, and its terms.
_CHOOSING: tuple[str, ...] = ("TopK", "Select", "Add", "Convert", "ReduceSum")
_SUMMED: tuple[str, ...] = ("Multiply", "Concat", "Convert")


def _with_exact_scores(library: Any, core: Any, path: Path, scratch: Path) -> Any:
    """The model of a file, with what chooses tokens marked as to be computed in fp32.

    In bf16 scores tie, and other tokens stay. Only OpenVINO's own format can hold the mark.
    """
    model = core.read_model(path)
    if all(operation.get_type_name() != "TopK" for operation in model.get_ops()):
        return model
    xml, weights = scratch / "model.xml", scratch / "model.bin"
    library.serialize(model, xml, weights)
    tree = ElementTree.parse(xml)
    root = tree.getroot()
    layers = {layer.attrib["id"]: layer for layer in root.iterfind("layers/layer")}
    before: dict[str, list[str]] = {}
    for edge in root.iterfind("edges/edge"):
        if edge.attrib["to-port"] == "0" or layers[edge.attrib["to-layer"]].attrib["type"] != "TopK":
            before.setdefault(edge.attrib["to-layer"], []).append(edge.attrib["from-layer"])
    ends = [(name, _CHOOSING) for name, layer in layers.items() if layer.attrib["type"] == "TopK"]
    exact: set[str] = set()
    while ends:
        name, kinds = ends.pop()
        kind = layers[name].attrib["type"]
        if name in exact or kind not in kinds:
            continue
        exact.add(name)
        ends += [(each, _SUMMED if kind == "ReduceSum" else kinds) for each in before.get(name, [])]
        found = layers[name].find("rt_info")
        info = ElementTree.SubElement(layers[name], "rt_info") if found is None else found
        ElementTree.SubElement(info, "attribute", {"name": "precise", "version": "0"})
    tree.write(xml)
    return core.read_model(xml, weights)
