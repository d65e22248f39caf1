"""The supernet: a stock transformer run as any of its sub-networks, which are arguments, never state."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from ldsearch.costs.macs import EncoderShape
from ldsearch.costs.parameters import Parameters
from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import tokens
from ldsearch.supernet.families import family_of
from ldsearch.supernet.stages import Block, State, real_positions


class Supernet(nn.Module):
    """Runs a stock sequence classifier at every depth and length.

    The stock model keeps its modules and key names; the supernet holds no weights of its own.

    Args:
        model: A ``...ForSequenceClassification`` of a registered family.
        score: Name of the token score (``ldsearch.supernet.tokens.TOKEN_SCORES``).

    Raises:
        SupernetError: If the family, its head or the score is not supported.
    """

    # A [CLS] head reads position 0, so that token always stays.
    keep_first = True

    def __init__(self, model: PreTrainedModel, score: str = "column") -> None:
        super().__init__()
        self.family = family_of(model.config)
        if not type(model).__name__.endswith("ForSequenceClassification"):
            raise SupernetError(f"{type(model).__name__}: only sequence classification heads are supported")
        if score not in tokens.TOKEN_SCORES:
            raise SupernetError(f"unknown token score {score!r}: use one of {', '.join(tokens.TOKEN_SCORES)}")
        self.model = model
        self.score = score
        # The blocks wrap layers that ``model`` registers already; a plain tuple keeps the weights
        # from being listed twice.
        self._blocks = tuple(
            Block(layer, self.family, model.config, tokens.TOKEN_SCORES[score], self.keep_first)
            for layer in self.family.layers(model)
        )
        self.train(model.training)

    @property
    def blocks(self) -> int:
        """Number of blocks of the full model."""
        return len(self._blocks)

    @property
    def longest(self) -> int:
        """The longest input in tokens."""
        return self.family.longest(self.model.config)

    @property
    def shape(self) -> EncoderShape:
        """The dimensions that closed-form costs need."""
        return self.family.shape(self.model.config)

    @property
    def parameters_cost(self) -> Parameters:
        """Parameter counts per stage, as a cost."""
        per_block = tuple(sum(p.numel() for p in block.parameters()) for block in self._blocks)
        total = sum(p.numel() for p in self.model.parameters())
        return Parameters(per_block, total - sum(per_block))

    def forward(self, batch: Mapping[str, Tensor], subnet: Subnet) -> SequenceClassifierOutput:
        """Logits of one sub-network.

        Args:
            batch: ``input_ids`` (B, n), and optionally ``attention_mask`` and ``token_type_ids``.
            subnet: What runs.

        Returns:
            An output whose ``logits`` have shape (B, labels).

        Raises:
            SubnetError: If the sub-network does not fit this model.
        """
        stack = self.check(subnet)
        state = State(self.family.embed(self.model, batch), real_positions(batch))
        true_lengths = state.real.sum(dim=1)
        for position, block in enumerate(stack.blocks):
            keep = None
            if stack.lengths is not None:
                keep = tokens.kept_counts(state.real, stack.lengths, position, true_lengths)
            state = self._run(block, state, keep)
        return SequenceClassifierOutput(logits=self.family.head(self.model, state.hidden))

    def _run(self, block: int, state: State, keep: Tensor | None) -> State:
        module = self._blocks[block]
        # Not registered as a child, so the mode does not reach it by itself.
        module.training = self.training
        result: State = module(state, keep)
        return result

    def check(self, subnet: Subnet) -> Stack:
        """The encoder stack of a sub-network that fits this model.

        Raises:
            SubnetError: If it does not fit.
        """
        stack = subnet.encoder
        if stack is None or subnet.decoder is not None:
            raise SubnetError("this supernet is an encoder: the sub-network must name encoder blocks only")
        if stack.blocks and stack.blocks[-1] >= self.blocks:
            raise SubnetError(
                f"block {stack.blocks[-1]} of a model of {self.blocks} blocks (ids are 0-based)"
            )
        if stack.structured:
            raise SubnetError("heads, feed-forward shares and sub-layers cannot be switched off yet")
        return stack

    def materialise(self, subnet: Subnet) -> "PreTrainedModel | FixedSubnet":
        """The model a sub-network is, sharing this supernet's weights.

        Blocks are renumbered, also in the configuration. Without lengths the result is the stock class;
        with lengths it is a ``FixedSubnet`` around the stock class.

        Raises:
            SubnetError: If the sub-network does not fit this model.
        """
        stack = self.check(subnet)
        tensors = [*self.model.parameters(), *self.model.buffers()]
        shared: dict[int, Any] = {id(tensor): tensor for tensor in tensors}
        pruned = copy.deepcopy(self.model, shared)
        kept = [self.family.layers(pruned)[block] for block in stack.blocks]
        layers = self.family.layers(pruned)
        del layers[:]
        layers.extend(kept)
        for index, layer in enumerate(kept):
            for module in layer.modules():
                if hasattr(module, "layer_idx"):
                    setattr(module, "layer_idx", index)  # noqa: B010 (mypy sees modules and tensors only)
        pruned.config.num_hidden_layers = len(kept)
        if stack.lengths is None:
            return pruned
        return FixedSubnet(pruned, renumbered(subnet), self.score)


class FixedSubnet(nn.Module):
    """A depth-pruned stock model that runs at one length configuration; called like the stock model.

    Args:
        model: The stock model, already cut to its blocks.
        subnet: What runs; its blocks are 0..n-1.
        score: Name of the token score.
    """

    def __init__(self, model: PreTrainedModel, subnet: Subnet, score: str) -> None:
        super().__init__()
        self.supernet = Supernet(model, score)
        self.subnet = subnet

    @property
    def model(self) -> PreTrainedModel:
        """The stock model inside."""
        return self.supernet.model

    @property
    def config(self) -> PreTrainedConfig:
        """The stock model's configuration (labels, widths), as pipelines read it."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits of shape (B, labels)."""
        named = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        batch = {name: tensor for name, tensor in named.items() if tensor is not None}
        output: SequenceClassifierOutput = self.supernet(batch, self.subnet)
        return output


def renumbered(subnet: Subnet) -> Subnet:
    """The same lengths over blocks 0..n-1: the sub-network as its own exported model sees it."""
    assert subnet.encoder is not None
    stack = subnet.encoder
    return Subnet(encoder=Stack(tuple(range(len(stack.blocks))), stack.lengths))


def inference(supernet: Supernet, batch: Mapping[str, Tensor], subnet: Subnet) -> Tensor:
    """Logits without gradients, in eval mode whatever mode the supernet is in, on its own device."""
    device = next(supernet.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    was_training = supernet.training
    supernet.eval()
    try:
        with torch.inference_mode():
            logits: Tensor = supernet(batch, subnet).logits
    finally:
        supernet.train(was_training)
    return logits
