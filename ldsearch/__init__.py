"""Train a transformer once, search it for the sub-network that fits a budget, export an ordinary model."""

from importlib import import_module
from os import PathLike
from typing import Any

__version__ = "0.1.0"

# Resolved on first use: importing ldsearch must not import torch (`ldsearch --help` answers at once).
_LAZY = {
    "Columns": "ldsearch.tasks.tables",
    "TrainOptions": "ldsearch.commands.train_options",
    "train_supernet": "ldsearch.commands.train_supernet",
    "Workbench": "ldsearch.bench",
    "evolve": "ldsearch.commands.evolve",
    "select": "ldsearch.commands.rules",
    "parse_selector": "ldsearch.selector",
    "recover": "ldsearch.commands.recover",
    "health": "ldsearch.commands.health",
    "block_importance": "ldsearch.commands.importance",
    "compare": "ldsearch.commands.compare",
    "FixedOptions": "ldsearch.commands.fixed",
    "evaluate": "ldsearch.commands.evaluate",
    "export_model": "ldsearch.commands.export",
    "info": "ldsearch.commands.info",
    "Supernet": "ldsearch.supernet",
    "Subnet": "ldsearch.subnet",
    "load_space": "ldsearch.space",
}
__all__ = sorted([*_LAZY, "__version__", "load"])


def load(folder: str | PathLike[str]) -> Any:
    """Load an exported sub-network, whatever it is: called like the stock model, in eval mode."""
    return import_module("ldsearch.export").load_exported(folder)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ldsearch' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
