"""Interface to a model family: where the parts of its stock layers are, and how they run."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from ldsearch.errors import SupernetError
from ldsearch.supernet.dropout import dropout
from ldsearch.supernet.operators import reshaped
from ldsearch.supernet.tokens import Attention, State

# Which of a layer's own heads it has left, where others were cut out of its weights.
HEADS_LEFT = "heads_left"
# What a state calls its position bias, in ``per_pair``; a channel for each head.
BIAS = "bias"


@dataclass(frozen=True)
class Parts:
    """The modules of one stock layer, and its dropout rates.

    Args:
        layer: The stock layer.
        heads: The projections whose outputs are heads: three, or one for queries, keys and values at once.
        head_width: Outputs of a projection for each head.
        output: The projection back from the heads.
        attention_norm: Norm of the attention sub-layer.
        expand: The projection to the feed-forward width; a gated layer's has twice its outputs.
        activation: Makes the feed-forward units from the outputs of ``expand``.
        contract: The projection back.
        feed_forward_norm: Norm of the feed-forward sub-layer.
        attention_dropout: Dropout rate of attention probabilities.
        output_dropout: Dropout rate of what attention adds to its input.
        gate: The projection that a gated layer's units are multiplied with, where it is one of its own.
        unit_dropout: Dropout rate of feed-forward units.
        contract_dropout: Dropout rate of what the feed-forward layer adds to its input.
    """

    layer: Any
    heads: tuple[nn.Linear, ...]
    head_width: int
    output: nn.Linear
    attention_norm: nn.Module
    expand: nn.Linear
    activation: Callable[[Tensor], Tensor]
    contract: nn.Linear
    feed_forward_norm: nn.Module
    attention_dropout: float = 0.0
    output_dropout: float = 0.0
    unit_dropout: float = 0.0
    contract_dropout: float = 0.0
    gate: nn.Linear | None = None

    @property
    def expanding(self) -> tuple[nn.Linear, ...]:
        """The projections to the feed-forward width."""
        return (self.expand,) if self.gate is None else (self.expand, self.gate)

    def dropped(self, hidden: Tensor, rate: float) -> Tensor:
        """Dropout while the layer trains."""
        return dropout(hidden, rate) if self.layer.training else hidden


class Family:
    """An encoder family: a subclass gives ``embed`` and ``parts``, and overrides what differs.

    Stock modules are called, none is copied or changed.

    Attributes:
        pre_norm: Whether norms stand before the sub-layers, so that a zeroed sub-layer is the identity,
            rather than behind the residuals.
        width_name: Attribute of the configuration that holds the feed-forward width.
        narrows: Whether it may hold another one for all blocks; a decoder may read it too.
        norms_stay: Whether a sub-layer that is off still norms what enters it (``with_norms``).
        runs_empty: Whether the stock model runs without any block.
    """

    pre_norm: bool = False
    width_name: str = "intermediate_size"
    narrows: bool = True
    norms_stay: bool = False
    runs_empty: bool = True

    def unlike(self, config: PreTrainedConfig) -> str:
        """A sentence on what a configuration has that its family does not support; empty if nothing."""
        return ""

    def table_rows(self, config: PreTrainedConfig) -> int:
        """Rows of tables of relative positions that a token is multiplied with in each block."""
        return 0

    def with_norms(self) -> "Family":
        """The same family, whose sub-layers that are off are x -> LN(x) rather than the identity.

        Raises:
            SupernetError: If it is pre-norm: its norms belong to the branches that are off.
        """
        if self.pre_norm:
            raise SupernetError("norms of skipped sub-layers stay in post-norm models only, as BERT is")
        family = copy.copy(self)
        object.__setattr__(family, "norms_stay", True)  # families may be frozen
        return family

    def skip(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Output of a sub-layer that is off, given its norm."""
        normed: Tensor = norm(hidden) if self.norms_stay else hidden
        return normed

    def sublayers(self, parts: Parts) -> Mapping[str, tuple[nn.Module, ...]]:
        """Everything with parameters that goes with each sub-layer, by name."""
        return {
            "attention": (*parts.heads, parts.output, *([] if self.norms_stay else [parts.attention_norm])),
            "feed_forward": (
                *(*parts.expanding, parts.contract),
                *([] if self.norms_stay else [parts.feed_forward_norm]),
            ),
        }

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """State that enters the first block."""
        raise NotImplementedError

    def parts(self, layer: Any) -> Parts:
        """The modules of a stock layer."""
        raise NotImplementedError

    def run(self, layer: Any, state: State, config: PreTrainedConfig) -> Tensor:
        """The stock layer's own path, sdpa or eager: bit-equal to the model. Shape (B, n, d)."""
        output = layer(state.hidden, attention_mask=stock_mask(state, config))
        hidden: Tensor = output[0] if isinstance(output, tuple) else output
        return hidden

    def bias(self, layer: Any, state: State) -> Tensor | None:
        """A position bias of the layer's heads among the tokens that are left, shape (1 or B, H, n, n)."""
        return state.pair(BIAS, getattr(layer, HEADS_LEFT, None)) if BIAS in state.per_pair else None

    def attention(self, parts: Parts, state: State) -> Attention:
        """Queries, keys and values, the keys that each query may see, and what is added to their products."""
        hidden = parts.attention_norm(state.hidden) if self.pre_norm else state.hidden
        shape = (0, 0, -1, parts.head_width)
        projected: Sequence[Tensor] = [reshaped(linear(hidden), shape) for linear in parts.heads]
        if len(projected) == 1:
            projected = projected[0].chunk(3, dim=2)
        queries, keys, values = (heads.transpose(1, 2) for heads in projected)
        scaling, bias = parts.head_width**-0.5, self.bias(parts.layer, state)
        return Attention(queries, keys, values, state.real, scaling, padded=state.padded, bias=bias)

    def merge(self, parts: Parts, context: Tensor, hidden: Tensor) -> Tensor:
        """Project attention output (B, n, heads' width), add the block input: what feeds the second half."""
        merged = hidden + parts.dropped(parts.output(context), parts.output_dropout)
        return merged if self.pre_norm else parts.attention_norm(merged)

    def expand(self, parts: Parts, hidden: Tensor) -> Tensor:
        """The feed-forward units, shape (B, n, width)."""
        entered = parts.feed_forward_norm(hidden) if self.pre_norm else hidden
        units = parts.activation(parts.expand(entered))
        return parts.dropped(units if parts.gate is None else units * parts.gate(entered), parts.unit_dropout)

    def contract(self, parts: Parts, units: Tensor, hidden: Tensor) -> Tensor:
        """Project the units (B, n, width) and add their input: output of the block."""
        left = hidden + parts.dropped(parts.contract(units), parts.contract_dropout)
        return left if self.pre_norm else parts.feed_forward_norm(left)

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """Final norm of a pre-norm model; the identity elsewhere."""
        return hidden


def stock_mask(state: State, config: PreTrainedConfig) -> Tensor | None:
    """The attention mask that a stock encoder gives its layers."""
    if not state.padded:
        return None
    hidden, real = state.hidden, state.real
    mask = create_bidirectional_mask(config=config, inputs_embeds=hidden, attention_mask=real)
    return cast(Tensor | None, mask)


def real_positions(batch: Mapping[str, Tensor]) -> Tensor:
    """Shape (B, n), True where the batch's attention mask (all ones if absent) marks a token.

    Raises:
        SupernetError: If padding precedes a token (left-padded input).
    """
    mask = batch.get("attention_mask")
    if mask is None:
        return torch.ones_like(batch["input_ids"], dtype=torch.bool)
    real = mask.bool()
    # One question to the device: reading an answer waits for all that was queued there.
    if not bool((real[:, 0] & (real[:, 1:] <= real[:, :-1]).all(dim=1)).all()):
        raise SupernetError("left-padded input: encoders need padding on the right")
    return real
