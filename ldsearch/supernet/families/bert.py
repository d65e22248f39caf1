"""BERT: post-norm encoder with a pooled [CLS] head."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet.stages import split_heads


class BertFamily:
    """``BertForSequenceClassification`` as stages."""

    model_type = "bert"

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The encoder's layers."""
        return cast(nn.ModuleList, cast(Any, model).bert.encoder.layer)

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """Pooler and classifier are the head."""
        d = config.hidden_size
        return EncoderShape(
            blocks=config.num_hidden_layers,
            hidden=d,
            feed_forward=config.intermediate_size,
            head_per_example=d * d + d * config.num_labels,
        )

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
        """Word, position and token-type embeddings with their norm."""
        embeddings = cast(Any, model).bert.embeddings
        token_types = batch.get("token_type_ids")
        return cast(Tensor, embeddings(input_ids=batch["input_ids"], token_type_ids=token_types))

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

    def head(self, model: Any, hidden: Tensor) -> Tensor:
        """Pooled [CLS], dropout, classifier."""
        return cast(Tensor, model.classifier(model.dropout(model.bert.pooler(hidden))))
