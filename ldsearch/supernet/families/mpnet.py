"""MPNet: BERT's parts under names of its own, and a relative position bias that all blocks share."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.supernet.families.family import BIAS, Family, Parts, real_positions, stock_mask
from ldsearch.supernet.tokens import State


class MPNet(Family):
    """MPNet; its bias is the encoder's, one for each head and distance."""

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Word and position embeddings with their norm; the bias of every two positions."""
        base = cast(Any, model).base_model
        hidden = base.embeddings(batch["input_ids"])
        bias = base.encoder.compute_position_bias(hidden[:1])
        return State(hidden, real_positions(batch), per_pair={BIAS: bias})

    def parts(self, layer: Any) -> Parts:
        """MPNet's names."""
        heads = layer.attention.attn
        return Parts(
            layer,
            heads=(heads.q, heads.k, heads.v),
            head_width=heads.attention_head_size,
            output=heads.o,
            attention_norm=layer.attention.LayerNorm,
            expand=layer.intermediate.dense,
            activation=layer.intermediate.intermediate_act_fn,
            contract=layer.output.dense,
            feed_forward_norm=layer.output.LayerNorm,
            attention_dropout=heads.dropout.p,
            output_dropout=layer.attention.dropout.p,
            contract_dropout=layer.output.dropout.p,
        )

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """With the bias beside the mask."""
        return cast(Tensor, layer(state.hidden, stock_mask(state, config), self.bias(layer, state))[0])
