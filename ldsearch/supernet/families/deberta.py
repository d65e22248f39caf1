"""DeBERTa-v2 and v3: BERT's parts, and attention to relative positions by content (He et al. 2021)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.supernet.families.bert import BertLike
from ldsearch.supernet.families.family import Parts, real_positions
from ldsearch.supernet.tokens import Attention, State

RELATIVE, TABLE = "relative", "table"


class DebertaV2(BertLike):
    """DeBERTa-v2 and v3, whose queries and keys project the table of relative positions too.

    A bias of theirs is made of queries and keys: each query with the row of the table that stands for its
    distance to a key, and each key with that of its distance to a query ("Disentangled attention", Sec. 3.1).
    """

    projections = "query_proj", "key_proj", "value_proj"
    runs_empty = False

    def unlike(self, config: PreTrainedConfig) -> str:
        """A convolution beside the first block, or projections of positions that heads would have to lose."""
        if getattr(config, "conv_kernel_size", 0) > 0:
            return "it has a convolution over neighbouring tokens (conv_kernel_size), which may be dropped"
        if self.table_rows(config) and not getattr(config, "share_att_key", False):
            return "its positions have projections of their own (share_att_key is false), which are not cut"
        return ""

    def table_rows(self, config: PreTrainedConfig) -> int:
        """Rows for both kinds of products: content to position, position to content."""
        if not getattr(config, "relative_attention", False):
            return 0
        return 2 * _span(config) * len({"c2p", "p2c"} & set(config.pos_att_type or ()))

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """Embeddings with their norm; buckets of distances, and the table that they are rows of."""
        base, real = cast(Any, model).base_model, real_positions(batch)
        token_types = batch.get("token_type_ids") if model.config.type_vocab_size > 0 else None
        hidden = base.embeddings(input_ids=batch["input_ids"], token_type_ids=token_types, mask=real)
        if not base.encoder.relative_attention:
            return State(hidden, real)
        relative = base.encoder.get_rel_pos(hidden)[:, None]
        table = {TABLE: base.encoder.get_rel_embedding()}
        return State(hidden, real, per_pair={RELATIVE: relative}, shared=table)

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """With the stock mask, in which pads see nothing, and distances by where tokens stood."""
        mask = (state.real[:, None, None, :] & state.real[:, None, :, None]).long()
        relative = state.pair(RELATIVE) if RELATIVE in state.per_pair else None
        if relative is not None and len(relative) > 1:
            # As the stock layer wants distances that differ by row: for each head of each row.
            heads = layer.attention.self.num_attention_heads
            relative = relative.expand(-1, heads, -1, -1).flatten(0, 1)[None]
        table = state.shared.get(TABLE)
        return cast(Tensor, layer(state.hidden, mask, relative_pos=relative, rel_embeddings=table)[0])

    def attention(self, parts: Parts, state: State) -> Attention:
        """Scaled for as many kinds of products as there are, those with positions in the bias."""
        attention, own = super().attention(parts, state), parts.layer.attention.self
        kinds = [kind for kind in ("c2p", "p2c") if kind in own.pos_att_type]
        scaling = (parts.head_width * (1 + len(kinds))) ** -0.5
        attention = replace(attention, scaling=scaling)
        if TABLE not in state.shared or not kinds:
            return attention
        table, relative, span = state.shared[TABLE], state.pair(RELATIVE), own.pos_ebd_size
        table = parts.dropped(table, own.pos_dropout.p)[: 2 * span]

        def products(content: Tensor, project: Any, rows: Tensor) -> Tensor:
            """Products of each token with the rows of its distances to all others, (B, H, n, n)."""
            heads: Tensor = project(table).unflatten(-1, (-1, parts.head_width)).transpose(0, 1)
            rows = rows.clamp(0, 2 * span - 1).expand(*content.shape[:2], -1, -1)
            return (content @ heads.transpose(-1, -2)).gather(-1, rows)

        bias = torch.zeros(())
        if "c2p" in kinds:
            bias = products(attention.queries * scaling, own.key_proj, relative + span)
        if "p2c" in kinds:
            towards = products(attention.keys * scaling, own.query_proj, span - relative)
            bias = bias + towards.transpose(-1, -2)
        return replace(attention, bias=bias)


def _span(config: PreTrainedConfig) -> int:
    """Half the rows of the table: buckets of distances to one side."""
    buckets, longest = getattr(config, "position_buckets", -1), getattr(config, "max_relative_positions", -1)
    return cast(int, buckets if buckets > 0 else longest if longest > 0 else config.max_position_embeddings)
