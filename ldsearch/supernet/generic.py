"""The generic view: a stock model's own forward with some of its blocks."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.errors import SupernetError
from ldsearch.supernet.cutting import Instead, with_blocks
from ldsearch.supernet.stages import State
from ldsearch.supernet.watching import Between, watched


def run_stock(
    model: PreTrainedModel,
    stacks: Mapping[str, str],
    kept: Mapping[str, Sequence[int]],
    batch: Mapping[str, Any],
    between: Between | None = None,
    instead: Instead | None = None,
) -> ModelOutput:
    """The stock model's output with some of its blocks.

    Args:
        model: The stock model.
        stacks: Dotted names of its lists of blocks.
        kept: The blocks of each stack that run, maybe none.
        batch: What its forward takes. A decoder's input may be padded on the left.
        between: Called after each executed block; only for models with one stack.
        instead: As for ``with_blocks``; asked for blocks that run.

    Raises:
        SupernetError: If two stacks are to be watched.
    """
    if between is not None and len(stacks) > 1:
        raise SupernetError("only models with one stack of blocks can be watched")
    # Some stock classes fail without any block: one runs, and what entered it goes on.
    runs = {name: blocks or (0,) for name, blocks in kept.items()}
    stock = with_blocks(model, stacks, runs, instead)
    watch = {name: between if kept[name] else _unchanged for name in stacks}
    layers = {name: model.get_submodule(path) for name, path in stacks.items()}
    with watched(layers, runs, watch, batch):
        output: ModelOutput = stock(**batch, **_positions(model, batch))
    return output


def _positions(model: PreTrainedModel, batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Where each token stands behind padding on the left, for stock code that would count the padding."""
    mask = batch.get("attention_mask")
    if mask is None or "position_ids" in batch or bool(mask[:, 0].all()):
        return {}
    if "position_ids" not in inspect.signature(type(model).forward).parameters:
        return {}
    return {"position_ids": (mask.long().cumsum(dim=1) - 1).clamp(min=0)}


def checkpoint_stock(model: PreTrainedModel) -> None:
    """Recompute each block in the backward pass, the way stock code offers it, never reentrant.

    Raises:
        SupernetError: If the model does not support it.
    """
    if not model.supports_gradient_checkpointing:
        raise SupernetError(f"{type(model).__name__} does not support activation checkpointing")
    # Earlier versions of the declared range know the older name only; later ones warn of it.
    newer = hasattr(model, "activation_checkpointing_enable")
    name = "activation_checkpointing_enable" if newer else "gradient_checkpointing_enable"
    getattr(model, name)({"use_reentrant": False})


def without_own_layer_drop(model: PreTrainedModel) -> None:
    """Switch off the LayerDrop of some stock models (BART's kin): ours is drawn outside."""
    for module in model.modules():
        if isinstance(getattr(module, "layerdrop", None), float):
            module.layerdrop = 0.0  # type: ignore[assignment]


def _unchanged(block: int, before: State, after: State) -> Tensor:
    return before.hidden
