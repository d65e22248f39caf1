"""BERT and the families built like it, declared by where their parts are: RoBERTa, XLM-RoBERTa, ELECTRA."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.families.common import PostNormEncoder, attention_of
from ldsearch.supernet.stages import Parts, State, real_positions, split_heads
from ldsearch.supernet.tokens import Attention


@dataclass(frozen=True)
class BertLike(PostNormEncoder):
    """A post-norm encoder whose layers have BERT's parts under BERT's names, as stages.

    Args:
        model_type: The configuration's.
        counts_pads: Whether position ids start behind the padding id, as fairseq's models count them.
    """

    model_type: str
    counts_pads: bool = False

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The encoder's layers."""
        return cast(nn.ModuleList, cast(Any, model).base_model.encoder.layer)

    def longest(self, config: PreTrainedConfig) -> int:
        """Tokens that have a position."""
        behind = config.pad_token_id + 1 if self.counts_pads else 0
        return int(config.max_position_embeddings - behind)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """Per token, the projection of narrower embeddings (ELECTRA)."""
        d = config.hidden_size
        narrow = getattr(config, "embedding_size", d)
        return EncoderShape(
            blocks=config.num_hidden_layers,
            hidden=d,
            feed_forward=config.intermediate_size,
            heads=config.num_attention_heads,
            head_per_token=0 if narrow == d else narrow * d,
        )

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
        own = layer.attention.self
        return Parts(
            attention=(layer.attention,),
            heads=(own.query, own.key, own.value),
            output=layer.attention.output.dense,
            feed_forward=(layer.intermediate, layer.output),
            expand=layer.intermediate.dense,
            contract=layer.output.dense,
        )

    def attention(self, layer: Any, state: State) -> Attention:
        """The self-attention's three linear layers."""
        own = layer.attention.self
        heads = split_heads(state.hidden, (own.query, own.key, own.value), own.attention_head_size)
        return attention_of(heads, state)

    def attention_dropout(self, layer: Any) -> float:
        """``attention_probs_dropout_prob``."""
        return float(layer.attention.self.dropout.p)

    def merge(self, layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual, norm."""
        return cast(Tensor, layer.attention.output(context, hidden))

    def expand(self, layer: Any, hidden: Tensor) -> Tensor:
        """First feed-forward layer, activation."""
        return cast(Tensor, layer.intermediate(hidden))

    def contract(self, layer: Any, units: Tensor, hidden: Tensor) -> Tensor:
        """Second feed-forward layer, residual, norm."""
        return cast(Tensor, layer.output(units, hidden))


BERT_LIKE = (
    BertLike("bert"),
    BertLike("roberta", counts_pads=True),
    BertLike("xlm-roberta", counts_pads=True),
    BertLike("electra"),
)
