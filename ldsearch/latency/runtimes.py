"""Runtimes: each makes of a sub-network something that runs on a batch, as it would be deployed."""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ldsearch.errors import LdsearchError, unknown
from ldsearch.latency.int8 import quantise
from ldsearch.registry import Registry
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import onnx_session, trace

Inputs = Mapping[str, Tensor]
Forward = Callable[[Inputs], object]
# Makes the timed callable, which takes ``input_ids`` and ``attention_mask`` (B, n), and what else a task
# gives. The supernet is in eval mode, on its device, gradients are off; LdsearchError for what cannot be run.
# Several are timed in turn in one process: threads that spin after a call would disturb the next one.
Runtime = Callable[[Supernet, Subnet], Forward]


def eager(supernet: Supernet, subnet: Subnet) -> Forward:
    """The materialised model, called as users call it: the stock class with sdpa, or a ``FixedSubnet``."""
    model: Any = supernet.materialise(subnet).eval()
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


def onnx_runtime(supernet: Supernet, subnet: Subnet, *, int8: bool = False) -> Forward:
    """The exported ONNX file, or its int8 graph, in ONNX Runtime on the CPU, with torch's number of threads.

    Turning tensors into arrays is part of what is timed and copies nothing.

    Raises:
        LdsearchError: If the sub-network cannot be exported, or ONNX Runtime is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        trace(supernet, subnet, path := Path(folder) / "model.onnx")
        if int8:
            quantise(path, path)
        return in_session(onnx_session(path, torch.get_num_threads()))


def in_session(session: Any) -> Forward:
    """A session's run, fed with tensors; what a graph asks for and is not given is zeros."""
    names = [entry.name for entry in session.get_inputs()]

    def run(inputs: Inputs) -> object:
        blank = torch.zeros_like(inputs["input_ids"])
        return session.run(None, {name: inputs.get(name, blank).cpu().numpy() for name in names})

    return run


# An entry point of the group ``ldsearch.runtimes`` adds another.
RUNTIMES: Registry[Runtime] = Registry(
    "runtimes",
    {
        "eager": eager,
        "own": own_path,
        "compile": compiled,
        "onnx": onnx_runtime,
        "onnx-int8": partial(onnx_runtime, int8=True),
    },
)


def require_runtime(name: str) -> None:
    """Check that a runtime is registered.

    Raises:
        LdsearchError: If it is not, naming those that are.
    """
    if name not in RUNTIMES:
        raise LdsearchError(unknown("runtime", name, RUNTIMES))
