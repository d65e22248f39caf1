"""BERT and the families built like it, declared by where their parts are: RoBERTa, XLM-RoBERTa, ELECTRA."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.stages import split_heads


def pooled_head(model: Any, hidden: Tensor) -> Tensor:
    """Pooled [CLS], dropout, classifier."""
    return cast(Tensor, model.classifier(model.dropout(model.base_model.pooler(hidden))))


def classification_head(model: Any, hidden: Tensor) -> Tensor:
    """A head of its own that takes the whole sequence and reads [CLS]: dense d to d, then the labels."""
    return cast(Tensor, model.classifier(hidden))


@dataclass(frozen=True)
class BertLike:
    """A post-norm encoder whose layers have BERT's parts under BERT's names, as stages.

    Args:
        model_type: The configuration's.
        head: From the last hidden states to logits; d² + d · labels MACs.
        counts_pads: Whether position ids start behind the padding id, as fairseq's models count them.
    """

    model_type: str
    head: Callable[[Any, Tensor], Tensor]
    counts_pads: bool = False

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The encoder's layers."""
        return cast(nn.ModuleList, cast(Any, model).base_model.encoder.layer)

    def longest(self, config: PreTrainedConfig) -> int:
        """Tokens that have a position."""
        behind = config.pad_token_id + 1 if self.counts_pads else 0
        return int(config.max_position_embeddings - behind)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """The classification head, and per token the projection of narrower embeddings (ELECTRA)."""
        d = config.hidden_size
        narrow = getattr(config, "embedding_size", d)
        return EncoderShape(
            blocks=config.num_hidden_layers,
            hidden=d,
            feed_forward=config.intermediate_size,
            head_per_example=d * d + d * config.num_labels,
            head_per_token=0 if narrow == d else narrow * d,
        )

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
        """Word, position and token-type embeddings with their norm; projected where they are narrower."""
        base = cast(Any, model).base_model
        # A tokenizer may number two segments for a model that has one.
        token_types = batch.get("token_type_ids") if model.config.type_vocab_size > 1 else None
        hidden = base.embeddings(input_ids=batch["input_ids"], token_type_ids=token_types)
        return cast(
            Tensor, base.embeddings_project(hidden) if hasattr(base, "embeddings_project") else hidden
        )

    def project(self, layer: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The self-attention's three linear layers."""
        attention = layer.attention.self
        linears = (attention.query, attention.key, attention.value)
        return split_heads(hidden, linears, attention.attention_head_size)

    def attention_dropout(self, layer: Any) -> float:
        """``attention_probs_dropout_prob``."""
        return float(layer.attention.self.dropout.p)

    def merge(self, layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual, norm."""
        return cast(Tensor, layer.attention.output(context, hidden))

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """Feed-forward layer, residual, norm."""
        return cast(Tensor, layer.feed_forward_chunk(hidden))


BERT_LIKE = (
    BertLike("bert", pooled_head),
    BertLike("roberta", classification_head, counts_pads=True),
    BertLike("xlm-roberta", classification_head, counts_pads=True),
    BertLike("electra", classification_head),
)
