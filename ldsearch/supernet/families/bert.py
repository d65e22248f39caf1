"""BERT and its kin: RoBERTa, XLM-RoBERTa and ELECTRA under BERT's names, DistilBERT under its own."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedModel

from ldsearch.supernet.families.family import Family, Parts, real_positions
from ldsearch.supernet.tokens import State


class BertLike(Family):
    """A post-norm encoder whose layers have BERT's parts under BERT's names."""

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Word, position and token-type embeddings with their norm; projected where they are narrower."""
        base = cast(Any, model).base_model
        # A tokenizer may number two segments for a model that has one.
        token_types = batch.get("token_type_ids") if model.config.type_vocab_size > 1 else None
        hidden = base.embeddings(input_ids=batch["input_ids"], token_type_ids=token_types)
        if hasattr(base, "embeddings_project"):
            hidden = base.embeddings_project(hidden)
        return State(hidden, real_positions(batch))

    def parts(self, layer: Any) -> Parts:
        """BERT's names."""
        heads, merged = layer.attention.self, layer.attention.output
        return Parts(
            layer,
            heads=(heads.query, heads.key, heads.value),
            head_width=heads.attention_head_size,
            output=merged.dense,
            attention_norm=merged.LayerNorm,
            expand=layer.intermediate.dense,
            activation=layer.intermediate.intermediate_act_fn,
            contract=layer.output.dense,
            feed_forward_norm=layer.output.LayerNorm,
            attention_dropout=heads.dropout.p,
            output_dropout=merged.dropout.p,
            contract_dropout=layer.output.dropout.p,
        )


class DistilBert(Family):
    """DistilBERT: BERT without token types, its residuals and norms inside the block."""

    width_name = "hidden_dim"

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Word and position embeddings with their norm."""
        hidden = cast(Any, model).base_model.embeddings(batch["input_ids"])
        return State(hidden, real_positions(batch))

    def parts(self, layer: Any) -> Parts:
        """DistilBERT's names."""
        attention = layer.attention
        return Parts(
            layer,
            heads=(attention.q_lin, attention.k_lin, attention.v_lin),
            head_width=attention.attention_head_size,
            output=attention.out_lin,
            attention_norm=layer.sa_layer_norm,
            expand=layer.ffn.lin1,
            activation=layer.ffn.activation,
            contract=layer.ffn.lin2,
            feed_forward_norm=layer.output_layer_norm,
            attention_dropout=attention.dropout.p,
            contract_dropout=layer.ffn.dropout.p,
        )
