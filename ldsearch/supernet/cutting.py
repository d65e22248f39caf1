"""Cuts a stock model down to some of its blocks and groups, sharing weights, configuration included."""

import copy
import sys
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Groups
from ldsearch.supernet.stages import Parts

# What stock modules call their block's number, by which they find their part of a cache.
_OWN_INDEX = ("layer_idx", "layer_id")
# In the names of a configuration's lists with an entry per block; others may have that length by chance.
_PER_BLOCK = ("layer", "window", "heads", "intermediate")


def find_stack(model: PreTrainedModel) -> str:
    """The dotted name of the one list of blocks in a stock model.

    Raises:
        SupernetError: If there is not exactly one that the configuration's depth speaks of.
    """
    depth = getattr(model.config, "num_hidden_layers", None)
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == depth and len(set(map(type, module))) == 1
    ]
    if getattr(model.config, "is_encoder_decoder", False) or len(found) != 1:
        raise SupernetError(
            f"{type(model).__name__}: its stack of blocks cannot be found "
            f"({len(found)} lists of {depth} modules); only models with one list of blocks are supported"
        )
    (name,) = found
    return str(name)


def longest_input(model: PreTrainedModel) -> int:
    """The longest input in tokens that a stock model has positions for; no bound is ``sys.maxsize``."""
    stated = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated < 1:
        return sys.maxsize
    tables = [m for name, m in model.named_modules() if isinstance(m, nn.Embedding) and "position" in name]
    # Where padding has a position, the tokens' start behind it, as fairseq's models count them.
    behind = [t.padding_idx + 1 for t in tables if t.num_embeddings == stated and t.padding_idx is not None]
    return stated - max(behind, default=0)


def with_blocks(model: PreTrainedModel, stack: str, blocks: Sequence[int]) -> PreTrainedModel:
    """The stock model with some of its blocks, for one call: every module but the path to them is shared.

    Nothing is renumbered but what stock code reads by position from the configuration, so it must not be
    saved and keeps no cache (see ``cut``).
    """
    config = renumbered_config(model.config, blocks)
    # A cache has a place for each block that runs, and would be asked for the places of the others.
    config.use_cache = False
    clone = root = _shallow(model, config)
    *path, last = stack.split(".")
    for name in path:
        child = _shallow(clone._modules[name], config)
        clone._modules[name] = child
        clone = child
    layers = clone._modules[last]
    assert isinstance(layers, nn.ModuleList)
    clone._modules[last] = nn.ModuleList(layers[block] for block in blocks)
    return cast(PreTrainedModel, root)


def _shallow(module: Any, config: PreTrainedConfig) -> Any:
    """A copy of a module with a dictionary of children of its own, the children themselves shared."""
    clone = copy.copy(module)
    object.__setattr__(clone, "_modules", dict(module._modules))
    if hasattr(module, "config"):
        clone.config = config
    return clone


def cut(model: PreTrainedModel, layers: str, blocks: Sequence[int]) -> PreTrainedModel:
    """The stock model of some of its blocks, in order, sharing their weights; fit to be saved."""
    tensors = [*model.parameters(), *model.buffers()]
    shared: dict[int, Any] = {id(tensor): tensor for tensor in tensors}
    pruned = copy.deepcopy(model, shared)
    stack = pruned.get_submodule(layers)
    assert isinstance(stack, nn.ModuleList)
    kept = [stack[block] for block in blocks]
    del stack[:]
    stack.extend(kept)
    for index, layer in enumerate(kept):
        for module in layer.modules():
            for name in _OWN_INDEX:
                if hasattr(module, name):
                    setattr(module, name, index)
    # In place: every module holds this very object.
    vars(pruned.config).update(vars(renumbered_config(pruned.config, blocks)))
    return pruned


def renumbered_config(config: PreTrainedConfig, blocks: Sequence[int]) -> PreTrainedConfig:
    """The configuration of some of the blocks: their number, and every list that has an entry for each."""
    depth = config.num_hidden_layers
    renumbered = copy.deepcopy(config)
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == depth and any(part in name for part in _PER_BLOCK):
            setattr(renumbered, name, [value[block] for block in blocks])
    renumbered.num_hidden_layers = len(blocks)
    return renumbered


def narrow(parts: Parts, groups: Groups, head_width: int) -> None:
    """Take what is off out of a layer's own modules, in place: heads, feed-forward units, sub-layers."""
    if groups.heads_off:
        heads = parts.output.in_features // head_width
        on = [head for head in range(heads) if head not in groups.heads_off]
        inner = torch.tensor(on)[:, None] * head_width + torch.arange(head_width)
        per_projection = heads * head_width
        for linear in parts.heads:
            starts = torch.arange(linear.out_features // per_projection) * per_projection
            _keep_outputs(linear, (starts[:, None] + inner.flatten()).flatten())
        _keep_inputs(parts.output, inner.flatten())
    units = parts.contract.in_features
    width = groups.width(units)
    if width < units:
        starts = torch.arange(parts.expand.out_features // units) * units
        _keep_outputs(parts.expand, (starts[:, None] + torch.arange(width)).flatten())
        _keep_inputs(parts.contract, torch.arange(width))
    for sublayer, modules in (("attention", parts.attention), ("feed_forward", parts.feed_forward)):
        if sublayer in groups.sublayers_off:
            empty(*modules)


def empty(*modules: nn.Module) -> None:
    """Take every parameter out of modules that never run, in place."""
    for module in modules:
        for part in module.modules():
            part._parameters.clear()


def silence(parts: Parts, groups: Groups, head_width: int) -> None:
    """Zero what is off in a layer, in weights of its own: stock shapes, and the same outputs.

    A sub-layer that is off is silent only where the residual goes round its norm (pre-norm).
    """
    whole = parts.contract.in_features
    with torch.no_grad():
        for linear in (parts.output, parts.contract):
            linear.weight = nn.Parameter(linear.weight.clone())
        for head in groups.heads_off:
            parts.output.weight[:, head * head_width : (head + 1) * head_width] = 0
        parts.contract.weight[:, groups.width(whole) :] = 0
        for sublayer, linear in (("attention", parts.output), ("feed_forward", parts.contract)):
            if sublayer in groups.sublayers_off:
                linear.weight.zero_()
                if linear.bias is not None:
                    linear.bias = nn.Parameter(torch.zeros_like(linear.bias))


def check_groups(groups: Groups, heads: int, block: int) -> None:
    """Refuse groups that a block of so many heads does not have.

    Raises:
        SubnetError: If a head does not exist, or all of them are off.
    """
    if strangers := [head for head in groups.heads_off if not 0 <= head < heads]:
        raise SubnetError(f"block {block} has heads 0-{heads - 1}, not {strangers}")
    if len(groups.heads_off) == heads:
        raise SubnetError(f"every head of block {block} is off: switch its attention sub-layer off instead")


def _keep_outputs(linear: nn.Linear, index: Tensor) -> None:
    linear.weight = nn.Parameter(linear.weight.detach()[index.to(linear.weight.device)])
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach()[index.to(linear.bias.device)])
    linear.out_features = len(index)


def _keep_inputs(linear: nn.Linear, index: Tensor) -> None:
    linear.weight = nn.Parameter(linear.weight.detach()[:, index.to(linear.weight.device)])
    linear.in_features = len(index)
