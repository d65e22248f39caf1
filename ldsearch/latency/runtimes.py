"""Runtimes: each makes of a sub-network something that runs on a batch, as it would be deployed."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from ldsearch.errors import ExportError, LdsearchError, unknown
from ldsearch.latency.int8 import quantise, quantise_weights
from ldsearch.latency.sessions import NO_SPINNING, Session, Settings, open_onnxruntime, open_openvino
from ldsearch.registry import Registry
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import Graph, trace
from ldsearch.supernet.processor import bf16_step
from ldsearch.supernet.saliency import score_weights

Inputs = Mapping[str, Tensor]
Forward = Callable[[Inputs], object]


@dataclass(frozen=True)
class Runtime:
    """A runtime that a sub-network runs in.

    Any other callable ``(supernet, subnet) -> forward`` serves as one too; its title is its name.

    Args:
        title: How the full model runs there, in words.
        make: Makes the timed callable, which takes ``input_ids`` and ``attention_mask`` (B, n), and what else
            a task gives. The supernet is in eval mode, on its device, gradients are off; LdsearchError for
            what cannot be run. Several are timed in turn in one process: threads that spin after a call would
            disturb the next one.
        candidate: Whether ``auto`` tries it.
    """

    title: str
    make: Callable[[Supernet, Subnet], Forward]
    candidate: bool = True

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """The callable that is timed."""
        return self.make(supernet, subnet)


@dataclass(frozen=True)
class GraphRuntime:
    """A library that serves the graph of an encoder, from a file.

    Args:
        title: How the full model runs there, in words.
        opener: Opens a file, given a number of threads (0: the library's choice) and settings.
        library: The package that must be installed.
        extra: Of ldsearch, which brings it.
        settings: Of the library.
        quantised: Makes the int8 file of a file; None: it stays in fp32.
        rounds: Whether answers are rounded to fewer than fp32's digits, so that predictions are compared.
        multiple: Of positions, in which a batch runs on this processor (``trace``).
    """

    title: str
    opener: Callable[[Path, int, Settings], Session]
    library: str
    extra: str
    settings: Settings = field(default_factory=dict)
    quantised: Callable[[Path, Path], None] | None = None
    rounds: bool = False
    multiple: int = 1

    def open(self, path: Path, threads: int = 0) -> Session:
        """Open a file, with so many threads; 0: the library's choice."""
        return self.opener(path, threads, self.settings)

    def require(self) -> None:
        """Check that it is installed.

        Raises:
            ExportError: If it is not, with the command that installs it.
        """
        if find_spec(self.library) is None:
            raise ExportError(f"{self.title} needs {self.library}: pip install 'ldsearch[{self.extra}]'")

    def write(self, supernet: Supernet, subnet: Subnet, path: Path, *, fed: Sequence[int] = ()) -> Graph:
        """Write the file, of ``trace``; returns what it was made of.

        Raises:
            ExportError: If the model is no encoder of a registered family, or too large.
            SubnetError: If the sub-network does not fit.
        """
        self.require()
        graph = trace(supernet, subnet, path, fed=fed, multiple=self.multiple)
        if self.quantised is not None:
            self.quantised(path, path)
        return graph

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """The file of a sub-network, as a call with torch's number of threads."""
        self.require()
        with tempfile.TemporaryDirectory() as folder:
            trace(supernet, subnet, path := Path(folder) / "model.onnx", multiple=self.multiple)
            return self.of_graph(path)

    def of_graph(self, fp32: Path) -> Forward:
        """As ``__call__``, of a graph that ``trace`` wrote in its ``multiple``, which stays as it is.

        Turning tensors into arrays is part of what is timed and copies nothing.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = fp32
            if self.quantised is not None:
                self.quantised(fp32, path := Path(folder) / "model.onnx")
            return in_session(self.open(path, torch.get_num_threads()))


def in_session(session: Session) -> Forward:
    """A session's run, fed with tensors; what a graph asks for and is not given is zeros."""

    def run(inputs: Inputs) -> object:
        blank = torch.zeros_like(inputs["input_ids"])
        chosen = {name: inputs[name] for name in session.optional if name in inputs}
        given = {**{name: inputs.get(name, blank) for name in session.inputs}, **chosen}
        return session.run({name: tensor.cpu().numpy() for name, tensor in given.items()})

    return run


def eager(supernet: Supernet, subnet: Subnet) -> Forward:
    """The materialised model, called as users call it: the stock class with sdpa, or a ``FixedSubnet``."""
    model: Any = supernet.materialise(subnet).eval()
    return lambda inputs: model(**inputs)


def in_bf16(supernet: Supernet, subnet: Subnet) -> Forward:
    """The materialised model with weights in bf16; those of its token score stay in fp32."""
    model: Any = deepcopy(supernet.materialise(subnet)).eval()
    exact = score_weights(model)
    nn.Module.to(model, torch.bfloat16)
    for name, weights in exact.items():
        layer, _, buffer = name.rpartition(".")
        setattr(model.get_submodule(layer), buffer, weights)
    return lambda inputs: model(**inputs)


def own_path(supernet: Supernet, subnet: Subnet) -> Forward:
    """The supernet's own path, block by block."""
    supernet.check(subnet)
    return lambda inputs: supernet(inputs, subnet)


def compiled(supernet: Supernet, subnet: Subnet) -> Forward:
    """``torch.compile`` of the materialised model, for one shape; the warm-up pays for compiling.

    Raises:
        LdsearchError: If this torch would mix compiled models up.
    """
    # Isolated: the stock classes share their code, and models past the limit of recompilations would
    # silently run uncompiled.
    try:
        model = cast(Any, torch.compile)(
            supernet.materialise(subnet).eval(), dynamic=False, isolate_recompiles=True
        )
    except TypeError as error:
        raise LdsearchError(
            f"torch {torch.__version__} cannot keep compiled models apart: --runtime compile needs 2.13"
        ) from error
    return lambda inputs: model(**inputs)


F32: Settings = MappingProxyType({"INFERENCE_PRECISION_HINT": "f32"})
# An entry point of the group ``ldsearch.runtimes`` adds another.
RUNTIMES: Registry[Callable[[Supernet, Subnet], Forward]] = Registry(
    "runtimes",
    {
        "eager": Runtime("stock sdpa", eager),
        "own": Runtime("its own path", own_path, candidate=False),
        "compile": Runtime("compiled by torch", compiled, candidate=False),  # takes a minute to start
        "torch-bf16": Runtime("stock sdpa in bf16", in_bf16),
        "onnx": GraphRuntime("ONNX Runtime", open_onnxruntime, "onnxruntime", "onnx", NO_SPINNING),
        "onnx-int8": GraphRuntime(
            "ONNX Runtime in int8",
            open_onnxruntime,
            "onnxruntime",
            "onnx",
            NO_SPINNING,
            quantised=quantise,
            rounds=True,
        ),
        # On AMX its attention takes twice as long for 63 tokens as for 64.
        "openvino": GraphRuntime(
            "OpenVINO", open_openvino, "openvino", "openvino", rounds=True, multiple=bf16_step()
        ),
        "openvino-f32": GraphRuntime("OpenVINO in fp32", open_openvino, "openvino", "openvino", F32),
        "openvino-int8": GraphRuntime(
            "OpenVINO in int8",
            open_openvino,
            "openvino",
            "openvino",
            # Groups of 128: faster than 32, 64 and whole rows, and as near to fp32 (docs/exporting.md).
            MappingProxyType({**F32, "DYNAMIC_QUANTIZATION_GROUP_SIZE": 128}),
            quantised=quantise_weights,
            rounds=True,
        ),
    },
)


def candidates() -> dict[str, Runtime | GraphRuntime]:
    """The runtimes that ``auto`` tries: of any other callable it is not known what it returns."""
    known = {name: one for name, one in RUNTIMES.items() if isinstance(one, Runtime | GraphRuntime)}
    return {name: one for name, one in known.items() if isinstance(one, GraphRuntime) or one.candidate}


def require_runtime(name: str) -> None:
    """Check that a runtime is registered.

    Raises:
        LdsearchError: If it is not, naming those that are.
    """
    if name not in RUNTIMES:
        raise LdsearchError(unknown("runtime", name, RUNTIMES))


def graph_runtime(name: str) -> GraphRuntime:
    """The runtime of files of that name.

    Raises:
        LdsearchError: If there is none, naming those there are.
    """
    runtime = RUNTIMES.get(name)
    if not isinstance(runtime, GraphRuntime):
        files = [each for each, one in RUNTIMES.items() if isinstance(one, GraphRuntime)]
        raise LdsearchError(unknown("runtime of files", name, files))
    return runtime


def title_of(name: str) -> str:
    """A sentence on how a model runs in the runtime of that name."""
    runtime = RUNTIMES.get(name)
    return runtime.title if isinstance(runtime, Runtime | GraphRuntime) else name
