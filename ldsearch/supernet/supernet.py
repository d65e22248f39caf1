"""The supernet: a stock transformer run as any of its sub-networks, which are arguments, never state."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.parameters import Parameters
from ldsearch.costs.traced import TracedMacs
from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Groups, Stack, Subnet
from ldsearch.supernet import tokens
from ldsearch.supernet.counting import block_parameters, shape_of
from ldsearch.supernet.cutting import check_groups, cut, find_stack, longest_input, with_blocks
from ldsearch.supernet.families import FAMILIES
from ldsearch.supernet.fixed import FixedSubnet
from ldsearch.supernet.heads import head_named, run_head
from ldsearch.supernet.refusals import refuse_model
from ldsearch.supernet.stages import Block, Family, State, put_back
from ldsearch.supernet.tracing import trace_macs
from ldsearch.supernet.watching import Between, watched
from ldsearch.workload import Workload


class Supernet(nn.Module):
    """Runs a stock model at every depth and length and with every structured group on or off.

    The stock model keeps its modules and key names; the supernet holds no weights of its own. A model of
    no registered family runs depth-only, through its own stock forward (the generic view).

    Args:
        model: A stock model with one of the heads of ``ldsearch.supernet.heads.HEADS``.
        score: Name of the token score (``ldsearch.supernet.tokens.TOKEN_SCORES``).

    Raises:
        SupernetError: If the model, its head or the score is not supported.
    """

    def __init__(self, model: PreTrainedModel, score: str = "column") -> None:
        super().__init__()
        refuse_model(model)
        self.head = head_named(type(model).__name__)
        if score not in tokens.TOKEN_SCORES:
            raise SupernetError(f"unknown token score {score!r}: use one of {', '.join(tokens.TOKEN_SCORES)}")
        self.model = model
        self.score = score
        family = FAMILIES.get(model.config.model_type)
        self.family: Family | None = family
        self.stack = find_stack(model) if family is None else _name_of(model, family.layers(model))
        self.reads_first = self.head.reads_first(model.config)
        self.gradient_checkpointing = False
        # The blocks wrap layers that ``model`` registers already; a plain tuple keeps the weights
        # from being listed twice.
        self._blocks = tuple(
            Block(layer, family, model.config, tokens.TOKEN_SCORES[score], self.reads_first)
            for layer in self.layers
            if family is not None
        )
        self.train(model.training)

    @property
    def layers(self) -> nn.ModuleList:
        """The stock layers."""
        return cast(nn.ModuleList, self.model.get_submodule(self.stack))

    @property
    def blocks(self) -> int:
        """Number of blocks of the full model."""
        return len(self.layers)

    @property
    def pinned(self) -> tuple[int, ...]:
        """Blocks that searches and draws keep, since stock classes cannot express a model without them."""
        return () if self.family is None else self.family.pinned

    @property
    def longest(self) -> int:
        """The longest input in tokens."""
        return longest_input(self.model) if self.family is None else self.family.longest(self.model.config)

    @property
    def depth_only(self) -> str:
        """Why only whole blocks can be left out, in words; empty for a registered family."""
        if self.family is not None:
            return ""
        return (
            f"{self.model.config.model_type} is no registered family: it works depth-only, through the "
            f"generic view (registered: {', '.join(FAMILIES)})"
        )

    @property
    def shape(self) -> EncoderShape:
        """The dimensions that closed-form costs need.

        Raises:
            SupernetError: If the family is not registered.
        """
        if self.family is None:
            raise SupernetError(self.depth_only)
        return shape_of(self.model, self.family, self.head)

    def macs(
        self, workload: Workload, *, name: str = "macs", torchprofile: bool = False
    ) -> Macs | TracedMacs:
        """MACs at the lengths of a workload: in closed form, or traced for the generic view.

        Args:
            workload: The lengths.
            name: The cost's name in tables.
            torchprofile: Count as torchprofile does; traced counts have one convention only.
        """
        if self.family is None:
            return trace_macs(self.model, self.stack, workload, name)
        return Macs(self.shape, workload, name=name, torchprofile=torchprofile)

    @property
    def parameters_cost(self) -> Parameters:
        """Parameter counts per stage, as a cost."""
        heads = getattr(self.model.config, "num_attention_heads", 1)
        per_block = tuple(block_parameters(layer, self.family, heads) for layer in self.layers)
        total = sum(p.numel() for p in self.model.parameters())
        return Parameters(per_block, total - sum(block.total for block in per_block))

    def forward(
        self, batch: Mapping[str, Tensor], subnet: Subnet, between: Between | None = None
    ) -> ModelOutput:
        """The stock model's output, of one sub-network.

        Args:
            batch: ``input_ids`` (B, n), and optionally ``attention_mask`` and ``token_type_ids``.
            subnet: What runs.
            between: Called after each executed block; no tokens may be dropped then.

        Returns:
            The stock class's output. Where tokens were dropped and the head reads all of them, each
            dropped token carries the output of the last block that processed it (Drop-and-Restore, Kim
            & Cho 2020, Sec. 3.3).

        Raises:
            SubnetError: If the sub-network does not fit this model.
            SupernetError: If the input is padded on the left.
        """
        stack = self.check(subnet)
        if self.family is None:
            # Some stock classes fail without any block: one runs, and what entered it goes on.
            blocks, watch = (stack.blocks, between) if stack.blocks else ((0,), _unchanged)
            stock = with_blocks(self.model, self.stack, blocks)
            with watched(self.layers, blocks, watch, batch):
                output: ModelOutput = stock(**batch)
            return output
        state = self.family.embed(self.model, batch)
        true_lengths = state.real.sum(dim=1)
        restored: Tensor | None = None
        for position, block in enumerate(stack.blocks):
            keep = None
            if stack.lengths is not None:
                keep = tokens.kept_counts(state.real, stack.lengths, position, true_lengths)
            after = self._run(block, state, keep, stack.groups(block))
            if between is not None:
                after = replace(after, hidden=between(block, state, after))
            if after.positions is not state.positions and not self.reads_first:
                restored = state.hidden if restored is None else put_back(restored, state)
            state = after
        hidden = state.hidden if restored is None else put_back(restored, state)
        mask = batch.get("attention_mask") if restored is not None or state.positions is None else state.real
        known = {} if mask is None else {"attention_mask": mask}
        return run_head(self.model, self.family.finish(self.model, hidden), known)

    def _run(self, block: int, state: State, keep: Tensor | None, groups: Groups) -> State:
        module = self._blocks[block]
        # Not registered as a child, so the mode does not reach it by itself.
        module.training = self.training
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            return cast(State, checkpoint(module, state, keep, groups, use_reentrant=False))
        return cast(State, module(state, keep, groups))

    def activation_checkpointing_enable(
        self, activation_checkpointing_kwargs: Any = None, every_n_layers: int = 1, offload: bool = False
    ) -> None:
        """Recompute each block in the backward pass; the Trainer calls this. Never the reentrant way."""
        if every_n_layers != 1 or offload:
            raise SupernetError("activation checkpointing recomputes every block and offloads none")
        if self.family is None:
            if not self.model.supports_gradient_checkpointing:
                raise SupernetError(f"{type(self.model).__name__} does not support activation checkpointing")
            # Earlier versions of the declared range know the older name only; later ones warn of it.
            newer = hasattr(self.model, "activation_checkpointing_enable")
            name = "activation_checkpointing_enable" if newer else "gradient_checkpointing_enable"
            getattr(self.model, name)({"use_reentrant": False})
        self.gradient_checkpointing = True

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Any = None) -> None:
        """``activation_checkpointing_enable`` as earlier versions of transformers call it."""
        self.activation_checkpointing_enable()

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
        if self.family is None and (stack.structured or stack.lengths is not None):
            raise SubnetError(self.depth_only)
        if stack.heads_off:
            for block in stack.blocks:
                check_groups(stack.groups(block), self.model.config.num_attention_heads, block)
        return stack

    def cut(self, subnet: Subnet) -> tuple[PreTrainedModel, Subnet]:
        """The stock model of the sub-network's blocks, and the sub-network as that model sees it.

        All blocks stay where a pinned one is missing: stock classes cannot hold the others without it.

        Raises:
            SubnetError: If the sub-network does not fit the model.
        """
        stack = self.check(subnet)
        if set(self.pinned) <= set(stack.blocks):
            return cut(self.model, self.stack, stack.blocks), Subnet(encoder=stack.renumbered())
        return cut(self.model, self.stack, range(self.blocks)), subnet

    def materialise(self, subnet: Subnet) -> "PreTrainedModel | FixedSubnet":
        """The model a sub-network is, sharing this supernet's weights where they are whole.

        Blocks are renumbered, also in the configuration. Fewer blocks, or one narrower feed-forward width
        for all of them, give the stock class; everything else a ``FixedSubnet`` around it.

        Raises:
            SubnetError: If the sub-network does not fit the model.
        """
        model, own = self.cut(subnet)
        if own == Subnet.full(len(cast(nn.ModuleList, model.get_submodule(self.stack)))):
            return model
        if self.family and (width := self._uniform_width(self.family, own)):
            fixed = FixedSubnet(Supernet(model, self.score), own)
            setattr(fixed.config, self.family.width_name, width)
            return fixed.model
        return FixedSubnet(Supernet(model, self.score), own)

    def _uniform_width(self, family: Family, own: Subnet) -> int | None:
        """The one feed-forward width of all blocks, where that is all that is off."""
        stack = own.encoder
        assert stack is not None
        shares = {share for _, share in stack.ffn_share}
        if len(shares) != 1:
            return None
        (share,) = shares
        if stack != Stack(stack.blocks, ffn_share=tuple((block, share) for block in stack.blocks)):
            return None
        return Groups(ffn_share=share).width(family.shape(self.model.config).feed_forward)


def logits_of(output: ModelOutput) -> Tensor:
    """An output's logits; a span head's two as shape (B, n, 2)."""
    if "start_logits" in output:
        return torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
    logits: Tensor = output["logits"]
    return logits


def inference(
    supernet: Supernet, batch: Mapping[str, Tensor], subnet: Subnet, between: Between | None = None
) -> Tensor:
    """Logits without gradients, in eval mode whatever mode the supernet is in, on its own device."""
    device = next(supernet.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    was_training = supernet.training
    supernet.eval()
    try:
        with torch.inference_mode():
            return logits_of(supernet(batch, subnet, between))
    finally:
        supernet.train(was_training)


def _unchanged(block: int, before: State, after: State) -> Tensor:
    return before.hidden


def _name_of(model: PreTrainedModel, module: nn.Module) -> str:
    names = {id(found): name for name, found in model.named_modules()}
    return str(names[id(module)])
