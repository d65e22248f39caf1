"""The encoder of T5 and mT5: pre-norm, unscaled products, the first block's position bias in all blocks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.supernet.families.family import BIAS, Family, Parts, real_positions, stock_mask
from ldsearch.supernet.tokens import Attention, State


class T5(Family):
    """T5's encoder, whose configuration gives its decoder the same feed-forward width."""

    pre_norm = True
    width_name = "d_ff"
    narrows = False

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Token embeddings, and the bias that the first block holds for all."""
        encoder, ids = cast(Any, model).get_encoder(), batch["input_ids"]
        hidden = encoder.dropout(encoder.embed_tokens(ids))
        n, per_pair = hidden.shape[1], {}
        for block in encoder.block[:1]:
            per_pair[BIAS] = block.layer[0].SelfAttention.compute_bias(n, n, device=hidden.device)
        return State(hidden, real_positions(batch), per_pair=per_pair)

    def parts(self, layer: Any) -> Parts:
        """T5's names; of the gated kind too."""
        attention, feed_forward = layer.layer[0], layer.layer[-1]
        heads, units = attention.SelfAttention, feed_forward.DenseReluDense
        gated = hasattr(units, "wi_1")
        return Parts(
            layer,
            heads=(heads.q, heads.k, heads.v),
            head_width=heads.key_value_proj_dim,
            output=heads.o,
            attention_norm=attention.layer_norm,
            expand=units.wi_0 if gated else units.wi,
            activation=units.act,
            contract=units.wo,
            feed_forward_norm=feed_forward.layer_norm,
            attention_dropout=heads.dropout,
            output_dropout=attention.dropout.p,
            unit_dropout=units.dropout.p,
            contract_dropout=feed_forward.dropout.p,
            gate=units.wi_1 if gated else None,
        )

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """With the bias, which the layer would make anew by rank."""
        return cast(Tensor, layer(state.hidden, stock_mask(state, config), self.bias(layer, state))[0])

    def attention(self, parts: Parts, state: State) -> Attention:
        """Products are not scaled."""
        return replace(super().attention(parts, state), scaling=1.0)

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """The last norm, and dropout."""
        encoder = cast(Any, model).get_encoder()
        return cast(Tensor, encoder.dropout(encoder.final_layer_norm(hidden)))
