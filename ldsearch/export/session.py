"""ONNX Runtime on a graph, the same way wherever one is run; knows no torch."""

from importlib import import_module
from pathlib import Path
from typing import Any


def onnx_session(path: Path, threads: int = 0) -> Any:
    """ONNX Runtime on a file, with so many threads; 0: as many as it takes by itself."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait by spinning would slow down what is timed next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
