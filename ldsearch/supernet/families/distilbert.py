"""DistilBERT: BERT without token types, its residuals and norms inside the block."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.families.common import PostNormEncoder, attention_of
from ldsearch.supernet.stages import Parts, State, real_positions, split_heads
from ldsearch.supernet.tokens import Attention


class DistilBertFamily(PostNormEncoder):
    """DistilBERT as stages."""

    model_type = "distilbert"
    width_name = "hidden_dim"

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The transformer's layers."""
        return cast(nn.ModuleList, cast(Any, model).base_model.transformer.layer)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """DistilBERT's names of BERT's dimensions."""
        return EncoderShape(
            blocks=config.num_hidden_layers,
            hidden=config.hidden_size,
            feed_forward=config.hidden_dim,
            heads=config.num_attention_heads,
        )

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Word and position embeddings with their norm."""
        hidden = cast(Any, model).base_model.embeddings(batch["input_ids"])
        return State(hidden, real_positions(batch))

    def parts(self, layer: Any) -> Parts:
        """DistilBERT's names."""
        own = layer.attention
        return Parts(
            attention=(own, layer.sa_layer_norm),
            heads=(own.q_lin, own.k_lin, own.v_lin),
            output=own.out_lin,
            feed_forward=(layer.ffn, layer.output_layer_norm),
            expand=layer.ffn.lin1,
            contract=layer.ffn.lin2,
        )

    def attention(self, layer: Any, state: State) -> Attention:
        """The self-attention's three linear layers."""
        own = layer.attention
        heads = split_heads(state.hidden, (own.q_lin, own.k_lin, own.v_lin), own.attention_head_size)
        return attention_of(heads, state)

    def attention_dropout(self, layer: Any) -> float:
        """``attention_dropout``."""
        return float(layer.attention.dropout.p)

    def merge(self, layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual, norm."""
        return cast(Tensor, layer.sa_layer_norm(layer.attention.out_lin(context) + hidden))

    def expand(self, layer: Any, hidden: Tensor) -> Tensor:
        """First feed-forward layer, activation."""
        return cast(Tensor, layer.ffn.activation(layer.ffn.lin1(hidden)))

    def contract(self, layer: Any, units: Tensor, hidden: Tensor) -> Tensor:
        """Second feed-forward layer, residual, norm."""
        contracted = layer.ffn.dropout(layer.ffn.lin2(units))
        return cast(Tensor, layer.output_layer_norm(contracted + hidden))
