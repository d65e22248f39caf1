"""One sub-network as a model of its own, for what no stock class can hold."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.subnet import Subnet
from ldsearch.supernet.cutting import empty, narrow

if TYPE_CHECKING:
    from ldsearch.supernet.supernet import Supernet


class FixedSubnet(nn.Module):
    """A stock model that runs as one sub-network of itself; called like the stock model.

    Args:
        supernet: Around the stock model, of which the weights of what is off are taken out.
        subnet: What runs of it.
    """

    def __init__(self, supernet: "Supernet", subnet: Subnet) -> None:
        super().__init__()
        self.supernet = supernet
        self.subnet = subnet
        stack = supernet.check(subnet)
        if supernet.family is not None:
            width = self.config.hidden_size // self.config.num_attention_heads
            for block, layer in enumerate(supernet.layers):
                if block in stack.blocks:
                    narrow(supernet.family.parts(layer), stack.groups(block), width)
                else:
                    empty(layer)
        self._runs = Subnet(encoder=replace(stack, heads_off=(), ffn_share=()))

    @property
    def model(self) -> PreTrainedModel:
        """The stock model inside."""
        return self.supernet.model

    @property
    def config(self) -> PreTrainedConfig:
        """The stock model's configuration (labels, widths), as pipelines read it."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> ModelOutput:
        """The stock model's output."""
        named = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        batch = {name: tensor for name, tensor in named.items() if tensor is not None}
        output: ModelOutput = self.supernet(batch, self._runs)
        return output
