"""Defaults of a post-norm encoder, and attention from split heads."""

from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from ldsearch.supernet.stages import State
from ldsearch.supernet.tokens import Attention


class PostNormEncoder:
    """Defaults of a family: no block is pinned, norms end a sub-layer, layers take the stock mask."""

    pinned: tuple[int, ...] = ()
    pre_norm: bool = False
    width_name: str = "intermediate_size"

    def longest(self, config: PreTrainedConfig) -> int:
        """Tokens that have a position."""
        return int(config.max_position_embeddings)

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """The layer called with the stock mask, as its own model calls it."""
        mask = None
        if state.padded:
            mask = create_bidirectional_mask(
                config=config, inputs_embeds=state.hidden, attention_mask=state.real
            )
        output = layer(state.hidden, attention_mask=mask)
        hidden: Tensor = output[0] if isinstance(output, tuple) else output
        return hidden

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """The identity: a post-norm block ends in its norm."""
        return hidden


def attention_of(
    heads: tuple[Tensor, Tensor, Tensor], state: State, allowed: Tensor | None = None
) -> Attention:
    """Scaled dot-product attention of queries, keys and values, each (B, H, n, width)."""
    queries, keys, values = heads
    # A number while the model is traced, too.
    scaling = int(queries.shape[-1]) ** -0.5
    return Attention(queries, keys, values, state.real, scaling, allowed, state.padded)
