"""Reference outputs of sub-networks from the stock model: hooks and zeroed weights, no token ever leaves.

The positions of dropped tokens stay, their keys are masked.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ldsearch.subnet import Groups, Lengths, Stack
from ldsearch.supernet import Supernet
from ldsearch.supernet.families.family import Family, Parts
from ldsearch.supernet.heads import logits_of, run_head


@torch.no_grad()
def stock_logits(supernet: Supernet, batch: Mapping[str, Tensor], stack: Stack) -> Tensor:
    """The logits of an encoder's sub-network with the column score; those of pads mean nothing.

    Args:
        supernet: Around the stock model, whose layers' attention masks are float tensors of four dimensions
            (eager) if any token is to be dropped; then some row must be padded.
        batch: ``input_ids`` and ``attention_mask``.
        stack: The sub-network.
    """
    assert supernet.family is not None
    path = supernet.stacks["encoder"]
    model = bypassed(copy.deepcopy(supernet.model), {path: stack.blocks})
    layers = list(model.get_submodule(path).children())
    for block in stack.blocks:
        _switch_off(supernet.family, supernet.family.parts(layers[block]), stack.groups(block))
    if stack.lengths is not None:
        left = _drop(model, layers, batch, stack, supernet.reads_first, restores=not supernet.head.embeds)
        if supernet.head.embeds:
            hidden = model.base_model(**batch).last_hidden_state
            return logits_of(run_head(model, hidden, {"attention_mask": left}))
    return logits_of(model(**batch))


def bypassed(model: PreTrainedModel, kept: Mapping[str, Sequence[int]]) -> PreTrainedModel:
    """The model itself, the blocks that are not kept giving what they got.

    Args:
        model: Changed in place.
        kept: Blocks that run, by the dotted name of their list.
    """
    for path, blocks in kept.items():
        for block, layer in enumerate(model.get_submodule(path).children()):
            if block not in blocks:
                layer.register_forward_hook(_bypass, with_kwargs=True)
    return model


def _first(inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor:
    hidden: Tensor = inputs[0] if inputs else named["hidden_states"]
    return hidden


def _instead(output: Any, hidden: Tensor) -> Any:
    """A layer's output with other hidden states."""
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


def _bypass(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
    return _instead(output, _first(inputs, named))


def _switch_off(family: Family, parts: Parts, groups: Groups) -> None:
    width = parts.head_width
    for head in groups.heads_off:
        parts.output.weight[:, head * width : (head + 1) * width] = 0
    parts.contract.weight[:, groups.width(parts.contract.in_features) :] = 0
    if not (family.pre_norm or family.norms_stay):
        _bypass_sublayers(parts, groups)
        return
    for sublayer, projection in (("attention", parts.output), ("feed_forward", parts.contract)):
        if sublayer in groups.sublayers_off:
            for parameter in projection.parameters():
                parameter.zero_()


def _bypass_sublayers(parts: Parts, groups: Groups) -> None:
    """In a post-norm layer, the norm of a sub-layer gives what entered the sub-layer."""
    entered: dict[str, Tensor] = {}

    def enter_layer(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        entered["attention"] = _first(inputs, named)

    def leave_attention(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        entered["feed_forward"] = output if groups.runs("attention") else entered["attention"]
        return entered["feed_forward"]

    def leave_feed_forward(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return output if groups.runs("feed_forward") else entered["feed_forward"]

    parts.layer.register_forward_pre_hook(enter_layer, with_kwargs=True)
    parts.attention_norm.register_forward_hook(leave_attention)
    parts.feed_forward_norm.register_forward_hook(leave_feed_forward)


def _drop(
    model: PreTrainedModel,
    layers: Sequence[nn.Module],
    batch: Mapping[str, Tensor],
    stack: Stack,
    keep_first: bool,
    *,
    restores: bool,
) -> Tensor:
    """Hook a model so that tokens are hidden once they are dropped, and restored behind the last block.

    One run per executed block finds what the block drops.

    Returns:
        Which tokens are left at the end, shape (B, n).
    """
    assert stack.lengths is not None
    seen: dict[int, Tensor] = {}
    entered: dict[int, Tensor] = {}
    for block, layer in enumerate(layers):
        layer.register_forward_pre_hook(_hide(block, seen, entered), with_kwargs=True)
    real = batch["attention_mask"].bool()
    alive, carried = real, torch.zeros(())
    for position, block in enumerate(stack.blocks):
        seen[block] = alive
        attentions = model.base_model(**batch, output_attentions=True)["attentions"][block]
        on = [h for h in range(attentions.shape[1]) if h not in stack.groups(block).heads_off]
        received = (attentions[:, on] * alive[:, None, :, None]).sum(dim=(1, 2))
        stays = _best(received, alive, real.sum(dim=1), stack.lengths, position, keep_first)
        carried = torch.where((alive & ~stays)[..., None], entered[block], carried)
        alive = stays

    def restore(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        return _instead(output, torch.where(alive[..., None], hidden, carried))

    if restores:
        layers[-1].register_forward_hook(restore)
    return alive


def _hide(block: int, seen: Mapping[int, Tensor], entered: dict[int, Tensor]) -> Callable[..., Any]:
    """A hook that notes what enters a block, and masks the keys that it may no longer see."""

    def masked(argument: Any) -> Any:
        if block not in seen or not isinstance(argument, Tensor) or argument.dim() != 4:
            return argument
        hidden = torch.finfo(argument.dtype).min if argument.is_floating_point() else 0
        return argument.masked_fill(~seen[block][:, None, None, :], hidden)

    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        entered[block] = _first(inputs, named)
        return tuple(map(masked, inputs)), {name: masked(value) for name, value in named.items()}

    return hook


def _best(
    received: Tensor, alive: Tensor, lengths: Tensor, config: Lengths, position: int, keep_first: bool
) -> Tensor:
    """Shape (B, n), True where a token stays."""
    stays = torch.zeros_like(alive)
    for row, n in enumerate(lengths.tolist()):
        there = alive[row].nonzero().flatten().tolist()
        ranked = sorted(there, key=lambda t: (not (keep_first and t == 0), -float(received[row, t]), t))
        stays[row, ranked[: config.kept(position, n)]] = True
    return stays
