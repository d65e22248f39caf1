"""The encoders of BART and its kin: Marian (post-norm), mBART and Pegasus (pre-norm)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.families.common import PostNormEncoder, attention_of
from ldsearch.supernet.stages import Parts, State, real_positions, split_heads
from ldsearch.supernet.tokens import Attention


@dataclass(frozen=True)
class BartLike(PostNormEncoder):
    """The encoder of a BART-like encoder-decoder as stages; its decoder works depth-only.

    Args:
        model_type: The configuration's.
        pre_norm: Whether norms stand before the sub-layers rather than behind the residuals.
    """

    model_type: str
    pre_norm: bool
    width_name = "encoder_ffn_dim"

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The encoder's layers."""
        return cast(nn.ModuleList, cast(Any, model).get_encoder().layers)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """Of the encoder alone."""
        return EncoderShape(
            blocks=config.encoder_layers,
            hidden=config.d_model,
            feed_forward=config.encoder_ffn_dim,
            heads=config.encoder_attention_heads,
        )

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """The stock encoder's forward without its layers: what it hands the first of them."""
        encoder = cast(Any, model).get_encoder()
        ids = batch["input_ids"]
        hidden = encoder.embed_tokens(ids)
        if self.model_type in _SCALED_OUTSIDE:
            hidden = hidden * encoder.embed_scale
        by_ids = self.model_type in _POSITIONS_READ_IDS
        hidden = hidden + encoder.embed_positions(ids if by_ids else ids.shape).to(hidden.device)
        if hasattr(encoder, "layernorm_embedding"):
            hidden = encoder.layernorm_embedding(hidden)
        hidden = nn.functional.dropout(hidden, p=encoder.dropout, training=encoder.training)
        return State(hidden, real_positions(batch))

    def parts(self, layer: Any) -> Parts:
        """BART's names."""
        own = layer.self_attn
        return Parts(
            attention=(own, layer.self_attn_layer_norm),
            heads=(own.q_proj, own.k_proj, own.v_proj),
            output=own.out_proj,
            feed_forward=(layer.fc1, layer.fc2, layer.final_layer_norm),
            expand=layer.fc1,
            contract=layer.fc2,
        )

    def attention(self, layer: Any, state: State) -> Attention:
        """The self-attention's three linear layers."""
        own = layer.self_attn
        hidden = layer.self_attn_layer_norm(state.hidden) if self.pre_norm else state.hidden
        return attention_of(split_heads(hidden, (own.q_proj, own.k_proj, own.v_proj), own.head_dim), state)

    def attention_dropout(self, layer: Any) -> float:
        """``attention_dropout``."""
        return float(layer.self_attn.dropout)

    def merge(self, layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual, norm where it stands behind."""
        merged = hidden + _dropped(layer.self_attn.out_proj(context), layer.dropout, layer)
        return merged if self.pre_norm else cast(Tensor, layer.self_attn_layer_norm(merged))

    def expand(self, layer: Any, hidden: Tensor) -> Tensor:
        """Norm where it stands before, first feed-forward layer, activation."""
        entered = layer.final_layer_norm(hidden) if self.pre_norm else hidden
        return _dropped(layer.activation_fn(layer.fc1(entered)), layer.activation_dropout, layer)

    def contract(self, layer: Any, units: Tensor, hidden: Tensor) -> Tensor:
        """Second feed-forward layer, residual, norm where it stands behind."""
        left = hidden + _dropped(layer.fc2(units), layer.dropout, layer)
        return left if self.pre_norm else cast(Tensor, layer.final_layer_norm(left))

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """A pre-norm encoder's last norm."""
        encoder = cast(Any, model).get_encoder()
        return cast(Tensor, encoder.layer_norm(hidden)) if self.pre_norm else hidden


def _dropped(hidden: Tensor, rate: float, layer: nn.Module) -> Tensor:
    return nn.functional.dropout(hidden, p=rate, training=layer.training)


# Stock classes that scale in their forward, where the others' embedding modules do it themselves.
_SCALED_OUTSIDE = ("marian", "pegasus")
# Stock modules whose positions are made from the ids' shape, but want a tensor of it.
_POSITIONS_READ_IDS = ("bart", "mbart")

BART_LIKE = (
    BartLike("bart", pre_norm=False),
    BartLike("marian", pre_norm=False),
    BartLike("mbart", pre_norm=True),
    BartLike("pegasus", pre_norm=True),
)
