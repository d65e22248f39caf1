"""Cuts a stock model down to some of its blocks and groups, sharing weights, configuration included."""

import copy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Groups, Stack
from ldsearch.supernet.families.family import HEADS_LEFT, Family, Parts
from ldsearch.supernet.heads import decodes, head_named
from ldsearch.supernet.saliency import narrow_weights

Instead = Callable[[str, int, nn.Module], nn.Module]

# What stock modules call their block's number, by which they find their part of a cache.
_BLOCK_INDEX = ("layer_idx", "layer_id")
# What configurations of encoder-decoders call the number of decoder blocks.
_DECODER_DEPTH = ("decoder_layers", "num_decoder_layers")
# In the names of a configuration's lists with an entry per block; others may have that length by chance.
_PER_BLOCK = ("layer", "window", "heads", "intermediate")


def find_stacks(model: PreTrainedModel) -> Mapping[str, str]:
    """The dotted names of a stock model's lists of blocks, by the name of the stack; the encoder first.

    Raises:
        SupernetError: If a stack is not one list of as many like modules as the configuration says.
    """
    config = model.config
    head = head_named(type(model).__name__)
    depth = getattr(config, "num_hidden_layers", None)
    if repeats(config):
        if config.num_hidden_groups > 1 or config.inner_group_num > 1:
            raise SupernetError(
                f"{type(model).__name__} has several layers that take turns (num_hidden_groups, "
                "inner_group_num): only one layer that repeats is supported"
            )
        return {"encoder": _find_list(model, cast(Any, model).base_model.encoder.albert_layer_groups[0], 1)}
    if not decodes(model):
        return {"decoder" if head.causal else "encoder": _find_list(model, model, depth)}
    decoder_depth = next(getattr(config, name) for name in _DECODER_DEPTH if hasattr(config, name))
    return {
        "encoder": _find_list(model, cast(Any, model).get_encoder(), depth),
        "decoder": _find_list(model, model.get_decoder(), decoder_depth),
    }


def repeats(config: PreTrainedConfig) -> bool:
    """Whether one layer runs as often as there are blocks: ALBERT's."""
    return hasattr(config, "num_hidden_groups")


def blocks_of(model: PreTrainedModel, path: str) -> nn.ModuleList:
    """A stack's blocks, given the dotted name of their list; one again and again where it repeats."""
    layers = cast(nn.ModuleList, model.get_submodule(path))
    return nn.ModuleList([layers[0]] * model.config.num_hidden_layers) if repeats(model.config) else layers


def _find_list(model: PreTrainedModel, part: nn.Module, depth: int | None) -> str:
    inside = {id(module) for module in part.modules()}
    lists = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and id(module) in inside
        and len(module) == depth
        and len(set(map(type, module))) <= 1
    ]
    if len(lists) != 1:
        raise SupernetError(
            f"{type(model).__name__}: its stack of blocks cannot be found "
            f"({len(lists)} lists of {depth} modules); only models with one list of blocks are supported"
        )
    (name,) = lists
    return str(name)


def pinned(layers: nn.ModuleList) -> tuple[int, ...]:
    """Block 0 where stock code leaves a norm out of the first block: ModernBERT's embeddings end in one."""
    left_out = [
        {name for name, module in layer.named_modules() if isinstance(module, nn.Identity)}
        for layer in layers[:2]
    ]
    return (0,) if len(left_out) == 2 and left_out[0] != left_out[1] else ()


def longest_input(model: PreTrainedModel) -> int:
    """The longest input in tokens that a stock model has positions for; no bound is ``sys.maxsize``."""
    stated = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated < 1:
        return sys.maxsize
    tables = [m for name, m in model.named_modules() if isinstance(m, nn.Embedding) and "position" in name]
    # Where padding has a position, the tokens' start behind it, as fairseq's models count them.
    behind = [t.padding_idx + 1 for t in tables if t.num_embeddings == stated and t.padding_idx is not None]
    return stated - max(behind, default=0)


def with_blocks(
    model: PreTrainedModel,
    stacks: Mapping[str, str],
    kept: Mapping[str, Sequence[int]],
    instead: Instead | None = None,
) -> PreTrainedModel:
    """The stock model with some of its blocks, for one call: every module but the path to them is shared.

    Nothing is renumbered but what stock code reads by position from the configuration, so it must not be
    saved and keeps no cache (see ``cut``).

    Args:
        model: The stock model.
        stacks: Dotted names of its lists of blocks (``find_stacks``).
        kept: The blocks of each stack.
        instead: Given a stack, a position in it and the block there, what runs in its place.
    """
    clones: dict[str, Any] = {"": shallow(model)}
    for name, path in stacks.items():
        *way, last = path.split(".")
        at = ""
        for part in way:
            parent, at = clones[at], f"{at}.{part}"
            if at not in clones:
                clones[at] = parent._modules[part] = shallow(parent._modules[part])
        layers = clones[at]._modules[last]
        blocks = _led(layers, kept[name])
        if instead is not None:
            blocks = [instead(name, place, block) for place, block in enumerate(blocks)]
        clones[at]._modules[last] = nn.ModuleList(blocks)
    configs: dict[int, PreTrainedConfig] = {}
    for clone in clones.values():
        if hasattr(clone, "config"):
            config = configs.setdefault(id(clone.config), renumbered_config(clone.config, kept))
            # A cache has a place for each block that runs; stock code would look up the others'.
            config.use_cache = False
            clone.config = config
    return cast(PreTrainedModel, clones[""])


def shallow(module: Any) -> Any:
    """A copy of a module with a dictionary of children of its own, the children themselves shared."""
    clone = copy.copy(module)
    object.__setattr__(clone, "_modules", dict(module._modules))
    return clone


def _led(layers: nn.ModuleList, kept: Sequence[int]) -> list[nn.Module]:
    """The kept blocks, the first of them fit to come first.

    T5's block 0 holds the relative position bias that it hands on to all others: without it, a copy of the
    first kept block takes it over.
    """
    blocks = [layers[block] for block in kept]
    if not kept or kept[0] == 0:
        return blocks
    for name, bias in handed_on(layers[0]).items():
        leader = parent = shallow(blocks[0])
        for part in name.split("."):
            parent._modules[part] = shallow(parent._modules[part])
            parent = parent._modules[part]
        parent._modules["relative_attention_bias"] = bias
        parent.has_relative_attention_bias = True
        return [leader, *blocks[1:]]
    return blocks


def handed_on(layer: nn.Module) -> dict[str, nn.Module]:
    """Modules that the first kept block takes over from a removed block, by the name of their attention."""
    return {
        name: cast(Any, attention).relative_attention_bias
        for name, attention in layer.named_modules()
        # LayoutLMv3's attention says so of a bias that its encoder holds.
        if getattr(attention, "has_relative_attention_bias", False)
        and hasattr(attention, "relative_attention_bias")
    }


def copy_sharing(model: nn.Module) -> Any:
    """A deep copy of a model that shares its parameters and buffers."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def cut(
    model: PreTrainedModel, stacks: Mapping[str, str], kept: Mapping[str, Sequence[int]]
) -> PreTrainedModel:
    """The stock model of some of its blocks, in order, sharing their weights; fit to be saved.

    Raises:
        SubnetError: If a pinned block is missing.
    """
    pruned: PreTrainedModel = copy_sharing(model)
    for name, path in stacks.items() if not repeats(model.config) else ():
        layers = pruned.get_submodule(path)
        assert isinstance(layers, nn.ModuleList)
        if missing := set(pinned(layers)) - set(kept[name]):
            raise SubnetError(
                f"block {missing.pop()} of {type(model).__name__} stays: its stock class makes the first "
                "block unlike the others"
            )
        blocks = _led(layers, kept[name])
        del layers[:]
        layers.extend(blocks)
        for index, layer in enumerate(blocks):
            for module in layer.modules():
                for name in _BLOCK_INDEX:
                    if hasattr(module, name):
                        setattr(module, name, index)
    # In place: modules hold these very objects, an encoder-decoder's stacks maybe each its own.
    held = (getattr(module, "config", None) for module in pruned.modules())
    configs = {id(config): config for config in held if isinstance(config, PreTrainedConfig)}
    for config in configs.values():
        vars(config).update(vars(renumbered_config(config, kept)))
    if pruned.can_generate() and _of_t5(model.config) and len(kept["decoder"]) > len(kept["encoder"]):
        # Stock code makes T5's caches as many as the encoder has blocks, and would run out of them.
        cast(Any, pruned).generation_config.use_cache = False
    return pruned


def renumbered_config(config: PreTrainedConfig, kept: Mapping[str, Sequence[int]]) -> PreTrainedConfig:
    """The configuration of some of the blocks: their number, and every list that has an entry for each."""
    renumbered = copy.deepcopy(config)
    # T5's decoder has a configuration of its own, whose one depth is the decoder's.
    stack = "decoder" if "encoder" not in kept or (_of_t5(config) and config.is_decoder) else "encoder"
    depth = config.num_hidden_layers
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == depth and any(part in name for part in _PER_BLOCK):
            setattr(renumbered, name, [value[block] for block in kept[stack]])
    renumbered.num_hidden_layers = len(kept[stack])
    if getattr(config, "is_heterogeneous", False):  # Gemma 4's blocks have sizes of their own
        own = {int(block): sizes for block, sizes in config.to_dict()["per_layer_config"].items()}
        places = enumerate(kept[stack])
        renumbered.per_layer_config = {new: own[old] for new, old in places if old in own} or None
    if "decoder" in kept:
        for name in _DECODER_DEPTH:
            if hasattr(config, name):
                setattr(renumbered, name, len(kept["decoder"]))
    return renumbered


def _of_t5(config: PreTrainedConfig) -> bool:
    return hasattr(config, "num_decoder_layers")


def narrow(family: Family, layer: nn.Module, groups: Groups) -> None:
    """Take what is off out of a layer's own modules, in place: heads, feed-forward units, sub-layers."""
    parts = family.parts(layer)
    if groups.heads_off:
        heads = parts.output.in_features // parts.head_width
        on = [head for head in range(heads) if head not in groups.heads_off]
        setattr(layer, HEADS_LEFT, tuple(on))  # a position bias has a channel for each of them all
        inner = (torch.tensor(on)[:, None] * parts.head_width + torch.arange(parts.head_width)).flatten()
        for linear in parts.heads:
            _keep_outputs(linear, inner, parts.output.in_features)
        _keep_inputs(parts.output, inner)
        narrow_weights(parts, inner)
        module: Any
        for module in layer.modules():
            for name, left in (("all_head_size", len(inner)), ("num_attention_heads", len(on))):
                if hasattr(module, name):
                    setattr(module, name, left)  # Megatron-BERT reads the one, DeBERTa the other
    units = parts.contract.in_features
    width = groups.width(units)
    if width < units:
        for linear in parts.expanding:
            _keep_outputs(linear, torch.arange(width), units)
        _keep_inputs(parts.contract, torch.arange(width))
    for sublayer in groups.sublayers_off:
        empty(*family.sublayers(parts)[sublayer])


def lost_heads(layers: Iterable[nn.Module]) -> bool:
    """Whether heads were cut out of a layer: T5's stock encoder would hand its bias on to others' heads."""
    return any(hasattr(layer, HEADS_LEFT) for layer in layers)


def empty(*modules: nn.Module) -> None:
    """Take every parameter out of modules that never run, in place."""
    for module in modules:
        for part in module.modules():
            part._parameters.clear()


def silence(parts: Parts, groups: Groups) -> None:
    """Zero what is off in a layer, in weights of its own: stock shapes, and the same outputs.

    A sub-layer that is off is silent only where the residual goes round its norm (pre-norm), or the norm
    stays.
    """
    with torch.no_grad():
        for sublayer, linear in (("attention", parts.output), ("feed_forward", parts.contract)):
            linear.weight = nn.Parameter(linear.weight.clone())
            if sublayer in groups.sublayers_off:
                linear.weight.zero_()
                if linear.bias is not None:
                    linear.bias = nn.Parameter(torch.zeros_like(linear.bias))
        for head in groups.heads_off:
            parts.output.weight[:, head * parts.head_width : (head + 1) * parts.head_width] = 0
        parts.contract.weight[:, groups.width(parts.contract.in_features) :] = 0


def check_groups(stack: Stack, heads: int) -> None:
    """Refuse groups that blocks of so many heads do not have.

    Raises:
        SubnetError: If a head does not exist, or all heads of a block are off.
    """
    for block in stack.blocks:
        off = stack.groups(block).heads_off
        if strangers := [head for head in off if not 0 <= head < heads]:
            raise SubnetError(f"block {block} has heads 0-{heads - 1}, not {strangers}")
        if len(off) == heads:
            raise SubnetError(
                f"every head of block {block} is off: switch its attention sub-layer off instead"
            )


def _keep_outputs(linear: nn.Linear, index: Tensor, width: int) -> None:
    """Keep some outputs of each of the projections, ``width`` wide, that a linear layer is made of."""
    starts = torch.arange(0, linear.out_features, width)
    index = (starts[:, None] + index).flatten().to(linear.weight.device)
    linear.weight = nn.Parameter(linear.weight.detach()[index])
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach()[index])
    linear.out_features = len(index)


def _keep_inputs(linear: nn.Linear, index: Tensor) -> None:
    linear.weight = nn.Parameter(linear.weight.detach()[:, index.to(linear.weight.device)])
    linear.in_features = len(index)
