"""Hands a sub-network over as an ordinary model, or as one ONNX file."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldsearch.export.huggingface import export_subnet, load_exported

__all__ = ["export_subnet", "load_exported"]


# Resolved on first use: an ONNX file is checked in a process that never imports torch.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ldsearch.export' has no attribute {name!r}")
    return getattr(import_module("ldsearch.export.huggingface"), name)
