"""Hands a sub-network over as an ordinary model."""

from ldsearch.export.huggingface import export_subnet, load_exported

__all__ = ["export_subnet", "load_exported"]
