"""What families have in common: the stock path of a layer, attention from split heads."""

from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask

from ldsearch.supernet.stages import State
from ldsearch.supernet.tokens import Attention


def run_stock(layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
    """A layer that takes hidden states and a mask, called as its own model calls it."""
    mask = None
    if state.padded:
        mask = create_bidirectional_mask(config=config, inputs_embeds=state.hidden, attention_mask=state.real)
    output = layer(state.hidden, attention_mask=mask)
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def attention_of(
    heads: tuple[Tensor, Tensor, Tensor], state: State, allowed: Tensor | None = None
) -> Attention:
    """Scaled dot-product attention of queries, keys and values, each (B, H, n, width)."""
    queries, keys, values = heads
    # A number while the model is traced, too.
    scaling = int(queries.shape[-1]) ** -0.5
    return Attention(queries, keys, values, state.real, scaling, allowed, state.padded)
