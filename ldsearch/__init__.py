"""Train a transformer once, search it for the sub-network that fits a budget, export an ordinary model.

The verbs of the command line are functions here, with the same options as keywords; each returns what the
command prints with ``--json``:

    ldsearch.train_supernet(data="reviews.csv", model="bert-base-uncased", name="reviews")
    result = ldsearch.evolve(supernet="runs/reviews", budget="0.4")
    run = ldsearch.Run.open(result["run"])

The classes and functions that the commands are made of can be called without folders too: see the README.
"""

import contextlib
import io
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

__version__ = "0.3.0"

# Resolved on first use: importing ldsearch must not import torch.
_LAZY = MappingProxyType(
    {
        "Bench": "ldsearch.bench",
        "Budget": "ldsearch.trials.budget",
        "DataSource": "ldsearch.tasks",
        "Evaluator": "ldsearch.evaluation",
        "ExportedModel": "ldsearch.export.loading",
        "Goal": "ldsearch.trials.goal",
        "Provenance": "ldsearch.export.card",
        "Run": "ldsearch.runs.run",
        "Setting": "ldsearch.training.strategies",
        "StrategyContext": "ldsearch.search.loop",
        "Subnet": "ldsearch.subnet",
        "Supernet": "ldsearch.supernet",
        "SupernetTrainer": "ldsearch.training.trainer",
        "Surrogate": "ldsearch.search.evolve",
        "compress": "ldsearch.commands.compress",
        "export_subnet": "ldsearch.export.check",
        "hold_out": "ldsearch.reports.held_out",
        "load_model": "ldsearch.supernet.folder",
        "load_space": "ldsearch.space",
        "load_task": "ldsearch.tasks",
        "make_strategy": "ldsearch.training.strategies",
        "training_arguments": "ldsearch.training.run",
    }
)
_VERBS = MappingProxyType(
    {
        **{name: name for name in ("train_supernet", "evolve", "evaluate", "compare", "profile", "report")},
        **{name: name for name in ("info", "distill_data")},
        "export_model": "export",  # ldsearch.export is a package
    }
)
__all__ = sorted([*_LAZY, *_VERBS, "__version__", "load"])


def load(
    name: str | PathLike[str],
    *,
    revision: str | None = None,
    subfolder: str = "",
    budget: str | None = None,
) -> Any:
    """Load an exported sub-network, whatever it is: called like the stock model, in eval mode.

    Args:
        name: A folder, or a repository of the Hub (``"user/model"``), whose cache is used.
        revision: Branch, tag or commit of the repository.
        subfolder: Which model of an exported frontier.
        budget: Of an export with ``--elastic``: ``"8ms@batch=8,length=128"``, or a share of MACs, ``"0.4"``.
    """
    loading = import_module("ldsearch.export.loading")
    return loading.load_exported(name, revision=revision, subfolder=subfolder, budget=budget)


def _verb(name: str) -> Callable[..., Any]:
    options = import_module("ldsearch.options").VERBS[name.replace("_", "-")]
    paths = [key for key, kind in get_type_hints(options).items() if kind in (Path, Path | None)]

    def call(**keywords: Any) -> Any:
        keywords |= {key: Path(keywords[key]) for key in paths if isinstance(keywords.get(key), str)}
        with contextlib.redirect_stdout(io.StringIO()):
            return import_module(f"ldsearch.commands.{name}").main(options(**keywords))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = options.__doc__
    call.__signature__ = signature(options)  # type: ignore[attr-defined]
    return call


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return _verb(_VERBS[name])
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ldsearch' has no attribute {name!r}")
