"""ModernBERT: pre-norm, rotary positions, gated feed-forward layers, most blocks attending to a window."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from ldsearch.supernet.families.family import Family, Parts, real_positions
from ldsearch.supernet.tokens import Attention, State


class ModernBert(Family):
    """ModernBERT.

    Where tokens were dropped, windows and angles go by where a token stood in the input.
    MACs charge a window like full attention, which is what stock kernels compute.
    """

    pre_norm = True

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Token embeddings with their norm; the rotary angles of both kinds of attention."""
        base = cast(Any, model).base_model
        hidden = base.embeddings(input_ids=batch["input_ids"])
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        per_token = {}
        for kind in sorted(set(model.config.layer_types)):
            per_token[f"{kind} cos"], per_token[f"{kind} sin"] = base.rotary_emb(hidden, positions, kind)
        return State(hidden, real_positions(batch), None, per_token)

    def parts(self, layer: Any) -> Parts:
        """One projection for queries, keys and values; one for input and gate."""

        def gated(expanded: Tensor) -> Tensor:
            units, gate = expanded.chunk(2, dim=-1)
            return cast(Tensor, layer.mlp.act(units) * gate)

        return Parts(
            layer,
            heads=(layer.attn.Wqkv,),
            head_width=layer.attn.head_dim,
            output=layer.attn.Wo,
            attention_norm=layer.attn_norm,
            expand=layer.mlp.Wi,
            activation=gated,
            contract=layer.mlp.Wo,
            feed_forward_norm=layer.mlp_norm,
            attention_dropout=layer.attn.attention_dropout,
            output_dropout=layer.attn.attention_dropout,
            unit_dropout=layer.mlp.drop.p,
        )

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """With the stock masks, unless tokens are missing from a window."""
        window = layer.attn.sliding_window
        mask: Any
        if window is not None and state.positions is not None:
            # The stock mask counts tokens that are there.
            mask = _window(layer, state)
            if config._attn_implementation == "eager":
                lowest = torch.finfo(state.hidden.dtype).min
                mask = torch.zeros_like(mask, dtype=state.hidden.dtype).masked_fill(~mask, lowest)
        else:
            stock = create_bidirectional_mask if window is None else create_bidirectional_sliding_window_mask
            mask = stock(config=config, inputs_embeds=state.hidden, attention_mask=state.real)
        angles = _angles(layer, state)
        return cast(Tensor, layer(state.hidden, attention_mask=mask, position_embeddings=angles))

    def attention(self, parts: Parts, state: State) -> Attention:
        """Norm, projection, rotation; in most blocks within a window."""
        attention = super().attention(parts, state)
        queries, keys = apply_rotary_pos_emb(attention.queries, attention.keys, *_angles(parts.layer, state))
        everywhere = parts.layer.attn.sliding_window is None
        allowed = None if everywhere else _window(parts.layer, state)
        return replace(attention, queries=queries, keys=keys, allowed=allowed)

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """The last norm."""
        return cast(Tensor, cast(Any, model).base_model.final_norm(hidden))


def _angles(layer: Any, state: State) -> tuple[Tensor, Tensor]:
    kind = layer.attention_type
    return state.per_token[f"{kind} cos"], state.per_token[f"{kind} sin"]


def _window(layer: Any, state: State) -> Tensor:
    """Shape (B, 1, n, n); a pad sees itself, so that no row is empty."""
    rows, n = state.real.shape
    positions = state.positions
    if positions is None:
        positions = torch.arange(n, device=state.real.device).expand(rows, -1)
    distance = (positions[:, :, None] - positions[:, None, :]).abs()
    # The stock layer holds its window plus one, as FlashAttention counts.
    near: Tensor = (distance < layer.attn.sliding_window) & state.real[:, None, :]
    itself = (distance == 0) & ~state.real[:, :, None]
    return (near | itself)[:, None]
