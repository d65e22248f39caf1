"""Remote code of exported folders, and the warning that stock classes give without it.

Stock classes read the weights that lie beside an ``ldsearch_subnet.json``, but run all of them. With
``trust_remote_code=True`` transformers runs our code instead. Without, it reports a tensor that no stock
class has, and its name says what is wrong: nothing else in a folder makes a stock class say anything.
"""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import cached_file  # type: ignore[attr-defined]

from ldsearch.disk.files import write_atomic, write_json
from ldsearch.subnet import SUBNET_FILE, Subnet
from ldsearch.supernet.heads import head_named
from ldsearch.supernet.saliency import save_with_weights

MODULE_FILE = "modeling_ldsearch.py"
# Never edited: folders out there carry it, and are known by it.
CODE = '''"""Runs the sub-network that this folder holds. Needs ldsearch: pip install ldsearch."""

from ldsearch import ExportedModel

__all__ = ["ExportedModel"]
'''
_REFERENCE = "modeling_ldsearch.ExportedModel"
_ADVICE = "load_with_ldsearch_or_trust_remote_code"
# Of a supernet, what its exports must be told.
HOW = ("score", "memory", "skipped")
_LOGGER = "transformers.modeling_utils"


def save_subnet(model: PreTrainedModel, folder: Path, subnet: Subnet, how: Mapping[str, Any]) -> None:
    """Write a stock model, the file that names what runs of it, and what stock classes need to know.

    Args:
        model: The stock model.
        folder: Where it goes.
        subnet: What runs of the model.
        how: How tokens are scored and kept: what a ``Supernet`` has under the names in ``HOW``.
    """
    save_warned(model, folder, subnet)
    write_json(folder / SUBNET_FILE, {"subnet": json.loads(subnet.to_json()), **how})


def save_warned(model: PreTrainedModel, folder: Path, subnet: Subnet) -> None:
    """Save a stock model with our code, and with the tensor whose name warns.

    Args:
        model: The stock model.
        folder: Where it goes.
        subnet: What runs of it.
    """
    what = "this_class_runs_at_full_length" if subnet.shortens else "this_class_leaves_nothing_out"
    save_with_weights(model, folder, {f"{what}.{_ADVICE}": torch.zeros(1)})
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    head = head_named(type(model).__name__)
    if head.embeds:
        return  # no auto class of transformers runs it either
    auto = head.auto.__name__
    write_json(path, {**config, "auto_map": {auto: _REFERENCE}})
    write_atomic(folder / MODULE_FILE, CODE)


def without_own_code(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A configuration without the ``auto_map`` that ``save_warned`` writes; every other stays.

    Nothing is run either way. Code that is ours to the letter says no more than ``ldsearch_subnet.json``.

    Args:
        fields: Of a ``config.json``.
        name: Of the folder or repository it lies in.
    """
    named = fields.get("auto_map")
    # transformers puts the repository before what lies in one.
    references = list(named.values()) if isinstance(named, dict) else []
    if not references or any(one not in (_REFERENCE, f"{name}--{_REFERENCE}") for one in references):
        return dict(fields)
    path = cached_file(name, MODULE_FILE, _raise_exceptions_for_missing_entries=False)
    if path is None or Path(path).read_bytes() != CODE.encode():
        return dict(fields)
    return {key: value for key, value in fields.items() if key != "auto_map"}


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Loading a folder of ours as what it is: its warning is left out, unless weights are missing too."""
    logger = logging.getLogger(_LOGGER)

    def passes(record: logging.LogRecord) -> bool:
        return _ADVICE not in record.getMessage() or "MISSING" in record.getMessage()

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
