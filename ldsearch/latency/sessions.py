"""Graph files, opened in the libraries that serve them."""

import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.supernet.graph import KEEP

Arrays = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Session:
    """An opened graph.

    Args:
        inputs: Names of what it asks for.
        optional: Names of what it takes too and has defaults for (``ldsearch.supernet.graph.KEEP``).
        outputs: Names of what it gives.
        run: Given an array for each input, and for some of the optional ones, gives the outputs in order.
    """

    inputs: tuple[str, ...]
    optional: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Callable[[Arrays], Sequence[NDArray[np.float32]]]


Settings = Mapping[str, str | int]
# Threads that wait by spinning would slow down what is timed next.
NO_SPINNING: Settings = MappingProxyType({"session.intra_op.allow_spinning": "0"})


def open_onnxruntime(path: Path, threads: int = 0, settings: Settings = NO_SPINNING) -> Session:
    """A file in ONNX Runtime on the CPU.

    Args:
        path: The file.
        threads: How many; 0: as many as it takes by itself.
        settings: Entries of the session's configuration.
    """
    library = import_module("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    for name, value in settings.items():
        options.add_session_config_entry(name, str(value))
    options.log_severity_level = 3  # it warns of every initializer that is an input too
    graph = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = tuple(entry.name for entry in graph.get_inputs())
    optional = tuple(entry.name for entry in graph.get_overridable_initializers())

    def run(arrays: Arrays) -> Sequence[NDArray[np.float32]]:
        wanted = [*names, *(name for name in optional if name in arrays)]
        found: Sequence[NDArray[np.float32]] = graph.run(None, {name: arrays[name] for name in wanted})
        return found

    return Session(names, optional, tuple(entry.name for entry in graph.get_outputs()), run)


def open_openvino(path: Path, threads: int = 0, settings: Settings = MappingProxyType({})) -> Session:
    """A file in OpenVINO on the CPU; scores of tokens and their order in fp32, whatever the rest is in.

    Args:
        path: The file.
        threads: How many; 0: as many as it takes by itself.
        settings: Of its CPU plugin; without any it takes the processor's own precision.
    """
    library: Any = import_module("openvino")
    settings = {"PERFORMANCE_HINT": "LATENCY", **settings}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    core = library.Core()
    with tempfile.TemporaryDirectory() as scratch:
        model = _with_exact_scores(library, core, path, Path(scratch))
        defaults = _defaults(library, model)
        compiled = core.compile_model(model, "CPU", settings)
    names = tuple(port.get_any_name() for port in compiled.inputs if port.get_any_name() not in defaults)
    own = threading.local()  # a request holds one call at a time

    def run(arrays: Arrays) -> list[NDArray[np.float32]]:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        fed = {name: arrays.get(name, default) for name, default in defaults.items()}
        found = own.request.infer({**{name: arrays[name] for name in names}, **fed}, share_inputs=True)
        return [found[port] for port in compiled.outputs]

    outputs = tuple(port.get_any_name() for port in compiled.outputs)
    return Session(names, tuple(defaults), outputs, run)


def _defaults(library: Any, model: Any) -> dict[str, NDArray[np.int64]]:
    """Inputs with a default, and those; OpenVINO reads them as constants, so inputs take their places."""
    for constant in model.get_ops():
        if constant.get_type_name() == "Constant" and constant.get_friendly_name() == KEEP:
            default = np.array(constant.get_data())
            shape = library.PartialShape([-1, default.shape[1]])
            parameter = library.opset13.parameter(shape, library.Type.i64, name=KEEP)
            parameter.output(0).get_tensor().set_names({KEEP})
            library.utils.replace_node(constant, parameter)
            model.add_parameters([parameter])
            model.validate_nodes_and_infer_types()
            return {KEEP: default}
    return {}


# What makes a token's score of a block's states: the choice, what is added to a sum, and the sum itself.
_CHOOSING = ("TopK", "Select", "Add", "Convert", "Reshape", "Squeeze", "Unsqueeze")
_SUMS = ("ReduceSum", "MatMul")


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
    ends = [name for name, layer in layers.items() if layer.attrib["type"] == "TopK"]
    exact: set[str] = set()
    while ends:
        name = ends.pop()
        kind = layers[name].attrib["type"]
        if name in exact or kind not in (*_CHOOSING, *_SUMS):
            continue
        exact.add(name)
        ends += before.get(name, []) if kind in _CHOOSING else []
        found = layers[name].find("rt_info")
        info = ElementTree.SubElement(layers[name], "rt_info") if found is None else found
        ElementTree.SubElement(info, "attribute", {"name": "precise", "version": "0"})
    tree.write(xml)
    return core.read_model(xml, weights)
