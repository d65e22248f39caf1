"""BERT and its kin: those with BERT's names, norms behind the sub-layers or before; DistilBERT."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedModel

from ldsearch.supernet.families.family import Family, Parts, real_positions
from ldsearch.supernet.tokens import State


class BertLike(Family):
    """An encoder whose layers have BERT's parts under BERT's names, norms aside.

    Args:
        norms: Where a layer has the norms of attention and feed-forward layer.
        last_norm: Where a pre-norm model has the norm behind its last block; None: it is post-norm.
    """

    projections = "query", "key", "value"

    def __init__(
        self,
        norms: tuple[str, str] = ("attention.output.LayerNorm", "output.LayerNorm"),
        last_norm: str | None = None,
    ) -> None:
        self.norms, self.last_norm, self.pre_norm = norms, last_norm, last_norm is not None

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
        attention_norm, feed_forward_norm = attrgetter(*self.norms)(layer)
        return Parts(
            layer,
            heads=attrgetter(*self.projections)(heads),
            head_width=heads.attention_head_size,
            output=merged.dense,
            attention_norm=attention_norm,
            expand=layer.intermediate.dense,
            activation=layer.intermediate.intermediate_act_fn,
            contract=layer.output.dense,
            feed_forward_norm=feed_forward_norm,
            attention_dropout=heads.dropout.p,
            output_dropout=merged.dropout.p,
            # XLM-RoBERTa-XL has none there.
            contract_dropout=layer.output.dropout.p if hasattr(layer.output, "dropout") else 0.0,
        )

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """The last norm, where norms stand before the sub-layers."""
        if self.last_norm is None:
            return hidden
        return cast(Tensor, attrgetter(self.last_norm)(cast(Any, model).base_model)(hidden))


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
