"""The generic view: a stock model's own forward with some of its blocks."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.errors import SupernetError
from ldsearch.supernet.cutting import Instead, shallow, with_blocks
from ldsearch.supernet.stages import Between
from ldsearch.supernet.tokens import State


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
        instead: As for ``with_blocks``; called for blocks that run.

    Raises:
        SupernetError: If two stacks are to be watched.
    """
    if between is not None and len(stacks) > 1:
        raise SupernetError("only models with one stack of blocks can be watched")
    # Some stock classes fail without any block: one runs, and what entered it goes on.
    runs = {name: blocks or (0,) for name, blocks in kept.items()}

    def changed(stack: str, place: int, block: nn.Module) -> nn.Module:
        block = block if instead is None else instead(stack, place, block)
        call = between if kept[stack] else _unchanged
        return block if call is None else _followed(block, runs[stack][place], call, batch)

    stock = with_blocks(model, stacks, runs, changed)
    output: ModelOutput = stock(**batch, **_positions(model, batch))
    return output


def _followed(block: nn.Module, number: int, call: Between, batch: Mapping[str, Any]) -> nn.Module:
    """The block for one call of its model, with ``call`` on what entered and what left it."""
    followed: nn.Module = shallow(block)
    run, mask = followed.forward, batch.get("attention_mask")

    def forward(*inputs: Any, **named: Any) -> Any:
        output = run(*inputs, **named)
        entered = inputs[0] if inputs else named["hidden_states"]
        left = output[0] if isinstance(output, tuple) else output
        real = torch.ones(entered.shape[:2], dtype=torch.bool, device=entered.device)
        if mask is not None and mask.shape == entered.shape[:2]:
            real = mask.bool()
        goes_on = call(number, State(entered, real), State(left, real))
        return (goes_on, *output[1:]) if isinstance(output, tuple) else goes_on

    followed.forward = forward
    return followed


def _positions(model: PreTrainedModel, batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Position ids of left-padded input, for stock code that would count the padding."""
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


def shifted(model: PreTrainedModel, labels: Tensor) -> Tensor:
    """Decoder inputs for the labels, shape (B, n); made here where the model has no method for it."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return cast(Tensor, cast(Any, model).prepare_decoder_input_ids_from_labels(labels))
    read = torch.full_like(labels, cast(int, model.config.decoder_start_token_id))
    read[:, 1:] = labels[:, :-1]
    return read.masked_fill(read == -100, cast(int, model.config.pad_token_id))


def without_own_layer_drop(model: PreTrainedModel) -> None:
    """Switch off the LayerDrop of some stock models (BART's kin): ours is drawn outside."""
    for module in model.modules():
        if isinstance(getattr(module, "layerdrop", None), float):
            module.layerdrop = 0.0  # type: ignore[assignment]


def _unchanged(block: int, before: State, after: State) -> Tensor:
    return before.hidden
