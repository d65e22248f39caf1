"""One sub-network as a model of its own, for what no stock class can hold."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.errors import SupernetError
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
        stacks = supernet.check(subnet)
        encoder = subnet.encoder
        self._runs = subnet
        if supernet.family is not None and encoder is not None:
            width = self.config.hidden_size // self.config.num_attention_heads
            for block, layer in enumerate(supernet.layers_of("encoder")):
                if block in encoder.blocks:
                    narrow(supernet.family.parts(layer), encoder.groups(block), width)
                else:
                    empty(layer)
            self._runs = Subnet(**{**stacks, "encoder": replace(encoder, heads_off=(), ffn_share=())})

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
        decoder_input_ids: Tensor | None = None,
    ) -> ModelOutput:
        """The stock model's output."""
        named = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "decoder_input_ids": decoder_input_ids,
        }
        batch = {name: tensor for name, tensor in named.items() if tensor is not None}
        output: ModelOutput = self.supernet(batch, self._runs)
        return output

    def generate(self, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Any:
        """The stock ``generate`` of an encoder-decoder, from what its encoder gives.

        Args:
            input_ids: Shape (B, n).
            attention_mask: Shape (B, n); None: all ones.
            options: Go on to the stock method.

        Raises:
            SupernetError: If the model is no encoder-decoder.
        """
        encoder, decoder = self._runs.encoder, self._runs.decoder
        if encoder is None or decoder is None:
            raise SupernetError("only encoder-decoders generate from dropped tokens")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        encoded = self.supernet.encoded({"input_ids": input_ids, "attention_mask": mask}, encoder)
        return cast(Any, self.model).generate(**encoded, **options)
