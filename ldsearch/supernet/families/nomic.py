"""NomicBERT, GTE and Jina's embeddings v3: post-norm as BERT is, with rotary positions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from ldsearch.supernet.families.bert import BertLike
from ldsearch.supernet.families.family import Parts, stock_mask
from ldsearch.supernet.tokens import Attention, State

COS, SIN = "cos", "sin"


class Nomic(BertLike):
    """NomicBERT and its kin; the feed-forward layers of all but Jina's are gated."""

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Word and token-type embeddings with their norm; the rotary angles."""
        state, base = super().embed(model, batch), cast(Any, model).base_model
        positions = torch.arange(state.hidden.shape[1], device=state.hidden.device)[None]
        cos, sin = base.rotary_emb(state.hidden, positions)
        return replace(state, per_token={COS: cos, SIN: sin})

    def parts(self, layer: Any) -> Parts:
        """NomicBERT's names, and Jina's of a feed-forward layer without a gate."""
        attention, units = layer.self_attn, layer.mlp
        gated = hasattr(units, "gate_proj")
        return Parts(
            layer,
            heads=(attention.q_proj, attention.k_proj, attention.v_proj),
            head_width=attention.head_dim,
            output=attention.o_proj,
            attention_norm=layer.post_attention_layernorm,
            expand=units.gate_proj if gated else units.fc1,
            activation=units.act_fn if gated else units.activation_fn,
            contract=units.down_proj if gated else units.fc2,
            feed_forward_norm=layer.post_mlp_layernorm,
            attention_dropout=attention.attention_dropout,
            output_dropout=layer.post_attention_dropout.p,
            unit_dropout=units.dropout.p if hasattr(units, "dropout") else 0.0,  # GTE's
            contract_dropout=layer.post_mlp_dropout.p,
            gate=units.up_proj if gated else None,
        )

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """With the angles of the tokens that are left."""
        angles = state.per_token[COS], state.per_token[SIN]
        mask = stock_mask(state, config)
        return cast(Tensor, layer(state.hidden, attention_mask=mask, position_embeddings=angles))

    def attention(self, parts: Parts, state: State) -> Attention:
        """Queries and keys rotated."""
        attention, angles = super().attention(parts, state), state.per_token
        queries, keys = apply_rotary_pos_emb(attention.queries, attention.keys, angles[COS], angles[SIN])
        return replace(attention, queries=queries, keys=keys)
