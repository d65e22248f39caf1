"""What the stages of a stock model are made of, for costs: dimensions with the head's, parameters."""

from dataclasses import replace

from torch import nn
from transformers import PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.costs.parameters import BlockParameters
from ldsearch.supernet.heads import Head, head_macs
from ldsearch.supernet.stages import Family


def shape_of(model: PreTrainedModel, family: Family, head: Head) -> EncoderShape:
    """The family's dimensions, and its head's products, per example or per token."""
    shape = family.shape(model.config)
    macs = head_macs(model)
    if head.pools:
        return replace(shape, head_per_example=shape.head_per_example + macs)
    return replace(shape, head_per_token=shape.head_per_token + macs)


def block_parameters(layer: nn.Module, family: Family | None, heads: int) -> BlockParameters:
    """Parameter counts of a layer with that many heads; without a family, only their total."""
    total = _count(layer)
    if family is None:
        return BlockParameters(total)
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
