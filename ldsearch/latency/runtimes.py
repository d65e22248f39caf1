"""Runtimes: each makes of a sub-network something that runs on a batch, as it would be deployed."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ldsearch.errors import LdsearchError, unknown
from ldsearch.registry import Registry
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet

Inputs = Mapping[str, Tensor]
Forward = Callable[[Inputs], object]


class Runtime(Protocol):
    """One way to run a sub-network. An entry point of the group ``ldsearch.runtimes`` adds another.

    Several are timed in turn in one process: threads that spin after a call would disturb the next one.
    """

    @property
    def generates(self) -> bool:
        """Whether prefill and per-token latency are those of ``Supernet.materialise`` run eagerly."""

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """The timed callable: takes ``input_ids`` and ``attention_mask`` (B, n), and what else a task gives.

        The supernet is in eval mode, on its device; gradients are off.

        Raises:
            LdsearchError: If this runtime cannot run the sub-network.
        """


class Eager:
    """The materialised model, called as users call it: the stock class with sdpa, or a ``FixedSubnet``."""

    generates = True

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """The model's forward."""
        model: Any = supernet.materialise(subnet).eval()
        return lambda inputs: model(**inputs)


class Own:
    """The supernet's own path, block by block."""

    generates = False

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """``supernet(inputs, subnet)``."""
        supernet.check(subnet)
        return lambda inputs: supernet(inputs, subnet)


class Compiled:
    """``torch.compile`` of the materialised model, for one shape; the warm-up pays for compiling."""

    generates = False

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """The compiled forward.

        Raises:
            LdsearchError: If this torch would mix compiled models up.
        """
        model: Any = supernet.materialise(subnet).eval()
        # Isolated: the stock classes share their code, and models past the limit of recompilations would
        # silently run uncompiled.
        try:
            compiled = cast(Any, torch.compile)(model, dynamic=False, isolate_recompiles=True)
        except TypeError as error:
            raise LdsearchError(
                f"torch {torch.__version__} cannot keep compiled models apart: --runtime compile needs 2.13"
            ) from error
        return lambda inputs: compiled(**inputs)


class OnnxRuntime:
    """The exported ONNX file in ONNX Runtime on the CPU, with torch's number of threads."""

    generates = False

    def __call__(self, supernet: Supernet, subnet: Subnet) -> Forward:
        """A session's run; turning tensors into arrays is part of it and copies nothing.

        Raises:
            LdsearchError: If the sub-network cannot be exported, or ONNX Runtime is missing.
        """
        from ldsearch.supernet.graph import onnx_session, trace

        with tempfile.TemporaryDirectory() as folder:
            trace(supernet, subnet, Path(folder) / "model.onnx")
            return in_session(onnx_session(Path(folder) / "model.onnx", torch.get_num_threads()))


def in_session(session: Any) -> Forward:
    """A session's run, fed with tensors; what a graph asks for and is not given is zeros."""
    names = [entry.name for entry in session.get_inputs()]

    def run(inputs: Inputs) -> object:
        blank = torch.zeros_like(inputs["input_ids"])
        return session.run(None, {name: inputs.get(name, blank).cpu().numpy() for name in names})

    return run


RUNTIMES: Registry[Runtime] = Registry(
    "runtimes", {"eager": Eager(), "own": Own(), "compile": Compiled(), "onnx": OnnxRuntime()}
)


def runtime_named(name: str) -> Runtime:
    """A registered runtime.

    Raises:
        LdsearchError: If there is none of that name.
    """
    if name not in RUNTIMES:
        raise LdsearchError(unknown("runtime", name, RUNTIMES))
    return RUNTIMES[name]
