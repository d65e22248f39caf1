"""What the stages of a stock model are made of, for costs: dimensions with the head's, parameters."""

from collections.abc import Mapping
from dataclasses import replace

from torch import nn
from transformers import PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.costs.parameters import BlockParameters, Parameters
from ldsearch.errors import SupernetError
from ldsearch.supernet.cutting import handed_on
from ldsearch.supernet.heads import Head, head_macs
from ldsearch.supernet.stages import Family


def shape_of(model: PreTrainedModel, family: Family, head: Head) -> EncoderShape:
    """The family's dimensions, and its head's products, per example or per token; not those of a decoder.

    Raises:
        SupernetError: If a block has weights that the dimensions do not account for.
    """
    shape = family.shape(model.config)
    known = (4 * shape.hidden + shape.ffn_matrices * shape.feed_forward) * shape.hidden
    for block, layer in enumerate(family.layers(model)):
        held = sum(p.numel() for p in layer.parameters() if p.dim() > 1)
        if held != known:
            raise SupernetError(
                f"block {block} of {type(model).__name__} has {held:,} weights in matrices, not the "
                f"{known:,} of {family.model_type} blocks: its MACs cannot be counted"
            )
    if head.generates:
        return shape
    macs = head_macs(model)
    if head.pools:
        return replace(shape, head_per_example=shape.head_per_example + macs)
    return replace(shape, head_per_token=shape.head_per_token + macs)


def parameters_of(model: PreTrainedModel, stacks: Mapping[str, str], family: Family | None) -> Parameters:
    """Parameter counts of a model's stages, of its encoder's finer than blocks where its family is known."""
    heads = getattr(model.config, "num_attention_heads", 1)
    known = {"encoder": family}
    layers = {name: model.get_submodule(path).children() for name, path in stacks.items()}
    per_block = {
        name: tuple(block_parameters(layer, known.get(name), heads) for layer in blocks)
        for name, blocks in layers.items()
    }
    inside = sum(block.total for blocks in per_block.values() for block in blocks)
    return Parameters(per_block, _count(model) - inside)


def block_parameters(layer: nn.Module, family: Family | None, heads: int) -> BlockParameters:
    """Parameter counts of a layer with that many heads; without a family, only their total."""
    total = _count(layer)
    if family is None:
        return BlockParameters(total - _count(*handed_on(layer).values()))
    parts = family.parts(layer)
    units = parts.contract.in_features
    return BlockParameters(
        total=total,
        attention=_count(*parts.attention),
        feed_forward=_count(*parts.feed_forward),
        per_head=(_count(*parts.heads) + parts.output.weight.numel()) // heads,
        units=units,
        per_unit=(_count(parts.expand) + parts.contract.weight.numel()) // units,
    )


def _count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())
