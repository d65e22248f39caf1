"""The encoders of BART and its kin: Marian (post-norm), mBART and Pegasus (pre-norm)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedModel

from ldsearch.supernet.families.family import Family, Parts, real_positions
from ldsearch.supernet.tokens import State


@dataclass(frozen=True)
class BartLike(Family):
    """The encoder of a BART-like encoder-decoder; its decoder works depth-only.

    Args:
        pre_norm: Whether norms stand before the sub-layers rather than behind the residuals.
        scales: Whether the stock forward scales embeddings, rather than the embedding module itself.
        positions_of_ids: Whether positions are made from the ids, rather than from their shape.
    """

    pre_norm: bool = False
    scales: bool = False
    positions_of_ids: bool = False
    width_name = "encoder_ffn_dim"

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """The stock encoder's forward without its layers: what it hands the first of them."""
        encoder = cast(Any, model).get_encoder()
        ids = batch["input_ids"]
        hidden = encoder.embed_tokens(ids)
        if self.scales:
            hidden = hidden * encoder.embed_scale
        hidden = hidden + encoder.embed_positions(ids if self.positions_of_ids else ids.shape).to(
            hidden.device
        )
        if hasattr(encoder, "layernorm_embedding"):
            hidden = encoder.layernorm_embedding(hidden)
        hidden = nn.functional.dropout(hidden, p=encoder.dropout, training=encoder.training)
        return State(hidden, real_positions(batch))

    def parts(self, layer: Any) -> Parts:
        """BART's names."""
        attention = layer.self_attn
        return Parts(
            layer,
            heads=(attention.q_proj, attention.k_proj, attention.v_proj),
            head_width=attention.head_dim,
            output=attention.out_proj,
            attention_norm=layer.self_attn_layer_norm,
            expand=layer.fc1,
            activation=layer.activation_fn,
            contract=layer.fc2,
            feed_forward_norm=layer.final_layer_norm,
            attention_dropout=attention.dropout,
            output_dropout=layer.dropout,
            unit_dropout=layer.activation_dropout,
            contract_dropout=layer.dropout,
        )

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """A pre-norm encoder's last norm."""
        return cast(Any, model).get_encoder().layer_norm(hidden) if self.pre_norm else hidden
