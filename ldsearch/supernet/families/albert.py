"""ALBERT: one layer with BERT's parts, which runs as often as there are blocks (Lan et al. 2020)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedModel

from ldsearch.supernet.families.bert import BertLike
from ldsearch.supernet.families.family import Parts
from ldsearch.supernet.tokens import State


class Albert(BertLike):
    """ALBERT of one layer, as all that are published; its token score is one for all of its runs too."""

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Narrow embeddings with their norm, projected."""
        state = super().embed(model, batch)
        projected = cast(Any, model).base_model.encoder.embedding_hidden_mapping_in(state.hidden)
        return replace(state, hidden=projected)

    def parts(self, layer: Any) -> Parts:
        """ALBERT's names."""
        attention = layer.attention
        return Parts(
            layer,
            heads=(attention.query, attention.key, attention.value),
            head_width=attention.attention_head_size,
            output=attention.dense,
            attention_norm=attention.LayerNorm,
            expand=layer.ffn,
            activation=layer.activation,
            contract=layer.ffn_output,
            feed_forward_norm=layer.full_layer_layer_norm,
            attention_dropout=attention.attention_dropout.p,
            output_dropout=attention.output_dropout.p,
        )
