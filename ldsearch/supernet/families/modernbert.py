"""ModernBERT: pre-norm, rotary positions, gated feed-forward layers, most blocks attending to a window."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.families.common import attention_of
from ldsearch.supernet.stages import Parts, State, real_positions
from ldsearch.supernet.tokens import Attention


class ModernBertFamily:
    """ModernBERT as stages.

    Block 0 has no attention norm (the embeddings end in one), so a stock model without it would not be the
    same function. Where tokens were dropped, windows and angles go by where a token stood in the input.
    MACs charge a window like full attention, which is what stock kernels compute.
    """

    model_type = "modernbert"
    pinned: tuple[int, ...] = (0,)
    pre_norm = True
    width_name = "intermediate_size"

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The layers of the base model."""
        return cast(nn.ModuleList, cast(Any, model).base_model.layers)

    def longest(self, config: PreTrainedConfig) -> int:
        """Longest training input; rotary positions have no end."""
        return int(config.max_position_embeddings)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """Three feed-forward matrices: gate, input and output."""
        return EncoderShape(
            blocks=config.num_hidden_layers,
            hidden=config.hidden_size,
            feed_forward=config.intermediate_size,
            heads=config.num_attention_heads,
            ffn_matrices=3,
        )

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
        return Parts(
            attention=(layer.attn_norm, layer.attn),
            heads=(layer.attn.Wqkv,),
            output=layer.attn.Wo,
            feed_forward=(layer.mlp_norm, layer.mlp),
            expand=layer.mlp.Wi,
            contract=layer.mlp.Wo,
        )

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """With the stock masks, unless tokens are missing from a window."""
        allowed = self._allowed(layer, state)
        mask: Any = allowed
        if allowed is not None:
            if config._attn_implementation == "eager":
                lowest = torch.finfo(state.hidden.dtype).min
                mask = torch.zeros_like(allowed, dtype=state.hidden.dtype).masked_fill(~allowed, lowest)
        elif layer.attn.sliding_window is None:
            mask = create_bidirectional_mask(
                config=config, inputs_embeds=state.hidden, attention_mask=state.real
            )
        else:
            mask = create_bidirectional_sliding_window_mask(
                config=config, inputs_embeds=state.hidden, attention_mask=state.real
            )
        return cast(
            Tensor, layer(state.hidden, attention_mask=mask, position_embeddings=self._angles(layer, state))
        )

    def attention(self, layer: Any, state: State) -> Attention:
        """Norm, projection, rotation."""
        own = layer.attn
        projected = own.Wqkv(layer.attn_norm(state.hidden)).unflatten(-1, (3, -1, own.head_dim))
        queries, keys, values = (part.transpose(1, 2) for part in projected.unbind(dim=-3))
        queries, keys = apply_rotary_pos_emb(queries, keys, *self._angles(layer, state))
        everywhere = own.sliding_window is None
        allowed = None if everywhere else self._window(layer, state)
        return attention_of((queries, keys, values), state, allowed)

    def attention_dropout(self, layer: Any) -> float:
        """``attention_dropout``."""
        return float(layer.attn.attention_dropout)

    def merge(self, layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual."""
        return cast(Tensor, hidden + layer.attn.out_drop(layer.attn.Wo(context)))

    def expand(self, layer: Any, hidden: Tensor) -> Tensor:
        """Norm, input times gate."""
        units, gate = layer.mlp.Wi(layer.mlp_norm(hidden)).chunk(2, dim=-1)
        return cast(Tensor, layer.mlp.act(units) * gate)

    def contract(self, layer: Any, units: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual."""
        return cast(Tensor, hidden + layer.mlp.Wo(layer.mlp.drop(units)))

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """The last norm."""
        return cast(Tensor, cast(Any, model).base_model.final_norm(hidden))

    def _angles(self, layer: Any, state: State) -> tuple[Tensor, Tensor]:
        kind = layer.attention_type
        return state.per_token[f"{kind} cos"], state.per_token[f"{kind} sin"]

    def _allowed(self, layer: Any, state: State) -> Tensor | None:
        """The window's mask where the stock one, which counts tokens that are there, would be wrong."""
        if state.positions is None or layer.attn.sliding_window is None:
            return None
        return self._window(layer, state)

    def _window(self, layer: Any, state: State) -> Tensor:
        """Shape (B, 1, n, n); a pad sees itself, so that no row is empty."""
        rows, n = state.real.shape
        positions = state.positions
        if positions is None:
            positions = torch.arange(n, device=state.real.device).expand(rows, -1)
        distance = (positions[:, :, None] - positions[:, None, :]).abs()
        # The stock layer holds its window plus one, as FlashAttention counts.
        near: Tensor = (distance < layer.attn.sliding_window) & state.real[:, None, :]
        own = (distance == 0) & ~state.real[:, :, None]
        return (near | own)[:, None]
