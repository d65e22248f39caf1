"""A transformer as a pipeline of stages: embed, block i, head. One small module runs one block."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from ldsearch.costs.macs import EncoderShape
from ldsearch.supernet import tokens
from ldsearch.supernet.tokens import Attention, TokenScore


@dataclass(frozen=True)
class State:
    """What flows between stages.

    Args:
        hidden: Shape (B, n, d).
        real: Shape (B, n), True where a position is no padding.
    """

    hidden: Tensor
    real: Tensor


class Family(Protocol):
    """What ldsearch must know of a model family; it calls the stock modules and forks none.

    Every method takes stock modules. ``layer`` is one element of ``layers(model)``.
    """

    @property
    def model_type(self) -> str:
        """The ``model_type`` of the family's configurations."""

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The stack of blocks."""

    def longest(self, config: PreTrainedConfig) -> int:
        """The longest input in tokens."""

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """The dimensions that costs are made of."""

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
        """Embedding output, shape (B, n, d)."""

    def project(self, layer: nn.Module, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each of shape (B, H, n, head width)."""

    def attention_dropout(self, layer: nn.Module) -> float:
        """Dropout probability on attention probabilities."""

    def merge(self, layer: nn.Module, context: Tensor, hidden: Tensor) -> Tensor:
        """From attention output (B, n, d) and block input to what feeds the feed-forward layer."""

    def feed_forward(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The rest of the block."""

    def head(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """Logits."""


class Block(nn.Module):
    """One stock layer, able to drop tokens between its attention and its feed-forward layer.

    Args:
        layer: The stock layer.
        family: How to take it apart.
        config: The model's configuration (it names the attention implementation).
        score: Which tokens are worth keeping.
        keep_first: Whether position 0 always stays.
    """

    def __init__(
        self,
        layer: nn.Module,
        family: Family,
        config: PreTrainedConfig,
        score: TokenScore,
        keep_first: bool,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.family = family
        self.config = config
        self.score = score
        self.keep_first = keep_first

    def forward(self, state: State, keep: Tensor | None = None) -> State:
        """Run the block; with ``keep`` (B,) given, only that many tokens of each row leave it."""
        if keep is None or bool((keep >= state.real.sum(dim=1)).all()):
            return State(self._run_stock(state), state.real)
        attention = self._attention(state)
        attended = self._attend(attention, state.hidden)
        index, real = tokens.select(self.score(attention).detach(), state.real, keep, self.keep_first)
        return State(self.family.feed_forward(self.layer, tokens.gather(attended, index)), real)

    def _run_stock(self, state: State) -> Tensor:
        # The stock layer's own path (sdpa or eager) with the stock mask: bit-equal to the model.
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=state.hidden, attention_mask=state.real
        )
        output = self.layer(state.hidden, attention_mask=mask)
        hidden: Tensor = output[0] if isinstance(output, tuple) else output
        return hidden

    def _attention(self, state: State) -> Attention:
        queries, keys, values = self.family.project(self.layer, state.hidden)
        return Attention(queries, keys, values, state.real, queries.shape[-1] ** -0.5)

    def _attend(self, attention: Attention, hidden: Tensor) -> Tensor:
        # The probabilities are needed for the scores anyway, so the products are computed once.
        probabilities = attention.probabilities
        if self.training:
            probabilities = nn.functional.dropout(probabilities, self.family.attention_dropout(self.layer))
        context = (probabilities @ attention.values).transpose(1, 2).flatten(2)
        return self.family.merge(self.layer, context, hidden)


def split_heads(
    hidden: Tensor, linears: tuple[nn.Module, nn.Module, nn.Module], width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: each projection of (B, n, d) split into heads, (B, H, n, width)."""
    queries, keys, values = (linear(hidden).unflatten(-1, (-1, width)).transpose(1, 2) for linear in linears)
    return queries, keys, values


def real_positions(batch: Mapping[str, Tensor]) -> Tensor:
    """Shape (B, n), True where the batch's attention mask (all ones if absent) marks a token."""
    mask = batch.get("attention_mask")
    return torch.ones_like(batch["input_ids"], dtype=torch.bool) if mask is None else mask.bool()
