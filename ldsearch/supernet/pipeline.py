"""The encoder of a registered family, run block by block: where tokens and groups can be left out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ldsearch.subnet import Groups, Stack
from ldsearch.supernet.stages import Block, Family, State, put_back
from ldsearch.supernet.tokens import TokenScore
from ldsearch.supernet.watching import Between


class Pipeline:
    """Stages of a stock encoder: embed, block i, finish. Holds no weights of its own.

    Args:
        model: The stock model.
        family: How to take it apart.
        score: Which tokens are worth keeping.
        keep_first: Whether position 0 always stays.
        restores: Whether dropped tokens come back for what follows the last block.
    """

    def __init__(
        self, model: PreTrainedModel, family: Family, score: TokenScore, keep_first: bool, restores: bool
    ) -> None:
        self.model = model
        self.family = family
        self.restores = restores
        layers = family.layers(model)
        self.blocks = tuple(Block(layer, family, model.config, score, keep_first) for layer in layers)
        self.checkpointing = False

    def __call__(
        self, batch: Mapping[str, Tensor], stack: Stack, training: bool, between: Between | None = None
    ) -> State:
        """What follows the last block of the stack: all tokens again, or those that are left.

        Where tokens come back, each dropped one carries the output of the last block that processed it
        (Drop-and-Restore, Kim & Cho 2020, Sec. 3.3).
        """
        state = self.family.embed(self.model, batch)
        # Here alone, since a device must be waited for.
        true_lengths = tuple(state.real.sum(dim=1).tolist())
        entered = state = replace(state, padded=min(true_lengths) < state.real.shape[1])
        left = true_lengths
        restored: Tensor | None = None
        for position, block in enumerate(stack.blocks):
            keep = None
            if stack.lengths is not None:
                before, left = left, tuple(stack.lengths.kept(position, n) for n in true_lengths)
                keep = None if left == before else left
            after = self._run(block, state, keep, stack.groups(block), training)
            if between is not None:
                after = replace(after, hidden=between(block, state, after))
            if after.positions is not state.positions and self.restores:
                restored = state.hidden if restored is None else put_back(restored, state)
            state = after
        if restored is not None:
            state = replace(entered, hidden=put_back(restored, state))
        return replace(state, hidden=self.family.finish(self.model, state.hidden))

    def _run(
        self, block: int, state: State, keep: Sequence[int] | None, groups: Groups, training: bool
    ) -> State:
        module: nn.Module = self.blocks[block]
        # Nobody's child, so the mode does not reach it by itself.
        module.training = training
        if self.checkpointing and training and torch.is_grad_enabled():
            return cast(State, checkpoint(module, state, keep, groups, use_reentrant=False))
        return cast(State, module(state, keep, groups))
