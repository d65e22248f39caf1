"""DistilBERT: BERT without token types, its residuals and norms inside the block."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.stages import split_heads


class DistilBertFamily:
    """``DistilBertForSequenceClassification`` as stages."""

    model_type = "distilbert"

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The transformer's layers."""
        return cast(nn.ModuleList, cast(Any, model).distilbert.transformer.layer)

    def longest(self, config: PreTrainedConfig) -> int:
        """Tokens that have a position."""
        return int(config.max_position_embeddings)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """Pre-classifier and classifier are the head."""
        d = config.hidden_size
        return EncoderShape(
            blocks=config.num_hidden_layers,
            hidden=d,
            feed_forward=config.hidden_dim,
            head_per_example=d * d + d * config.num_labels,
        )

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
        """Word and position embeddings with their norm."""
        return cast(Tensor, cast(Any, model).distilbert.embeddings(batch["input_ids"]))

    def project(self, layer: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The self-attention's three linear layers."""
        attention = layer.attention
        linears = (attention.q_lin, attention.k_lin, attention.v_lin)
        return split_heads(hidden, linears, attention.attention_head_size)

    def attention_dropout(self, layer: Any) -> float:
        """``attention_dropout``."""
        return float(layer.attention.dropout.p)

    def merge(self, layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
        """Output projection, residual, norm."""
        return cast(Tensor, layer.sa_layer_norm(layer.attention.out_lin(context) + hidden))

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """Feed-forward layer, residual, norm."""
        return cast(Tensor, layer.output_layer_norm(layer.ffn(hidden) + hidden))

    def head(self, model: Any, hidden: Tensor) -> Tensor:
        """[CLS] through the pre-classifier, dropout, classifier."""
        pooled = nn.functional.relu(model.pre_classifier(hidden[:, 0]))
        return cast(Tensor, model.classifier(model.dropout(pooled)))
