"""Hands a sub-network over as an ordinary model, or as one ONNX file."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldsearch.export.check import export_subnet
    from ldsearch.export.folder import load_exported

_LAZY = {"export_subnet": "ldsearch.export.check", "load_exported": "ldsearch.export.folder"}
__all__ = ["export_subnet", "load_exported"]


# Resolved on first use: an ONNX file is compared in a process that has not imported torch.
def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ldsearch.export' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
