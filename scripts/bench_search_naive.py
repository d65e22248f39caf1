"""The encoder as the length-adaptive paper's reference code executes it: as wide as the lengths say."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ldsearch.subnet import WHOLE, Stack
from ldsearch.supernet import tokens
from ldsearch.supernet.stages import Between, Pipeline
from ldsearch.supernet.tokens import State, put_back


class NaivePipeline(Pipeline):
    """Runs one sub-network with tensors as wide as its lengths, however short the sentences are.

    Scores, and which tokens stay, are ours: pads count for nothing and each sentence keeps by its own
    length; what it keeps less than the width is filled with pads.
    """

    @classmethod
    def of(cls, pipeline: Pipeline) -> "NaivePipeline":
        """The same encoder."""
        block, layers = pipeline.blocks[0], [block.layer for block in pipeline.blocks]
        parts = (pipeline.family, block.score, block.keep_first, pipeline.restores)
        return cls(pipeline.model, layers, *parts)

    def __call__(self, batch: Mapping[str, Tensor], stack: Stack, between: Between | None = None) -> State:
        """As the base class, in inference."""
        assert not self.model.training
        assert between is None
        state = self.family.embed(self.model, batch)
        entered, true_lengths = state, state.real.sum(dim=1)
        restored: Tensor | None = None
        for position, place in enumerate(stack.blocks):
            block = self.blocks[place]
            parts = self.family.parts(block.layer)
            context, scores = block.mix(self.family.attention(parts, state), WHOLE, None, scored=True)
            attended = self.family.merge(parts, context, state.hidden)
            width = state.real.shape[1] if stack.lengths is None else stack.lengths.tokens[position]
            if stack.lengths is not None and width < state.real.shape[1]:
                assert scores is not None
                kept = [stack.lengths.kept(position, n) for n in true_lengths.tolist()]
                counts = torch.tensor(kept, device=true_lengths.device)
                index, real = _as_wide(scores, state.real, counts, width, block.keep_first)
                if self.restores:
                    restored = state.hidden if restored is None else put_back(restored, state)
                state = state.take(attended, index, real)
            else:
                state = replace(state, hidden=attended)
            units = self.family.expand(parts, state.hidden)
            state = replace(state, hidden=self.family.contract(parts, units, state.hidden))
        if restored is not None:
            state = replace(entered, hidden=put_back(restored, state))
        return state


def _as_wide(
    scores: Tensor, real: Tensor, counts: Tensor, width: int, keep_first: bool
) -> tuple[Tensor, Tensor]:
    """``tokens.select``, which is as wide as the longest row: here a row that nothing else looks at."""
    ones = torch.ones_like(real[:1])
    index, kept = tokens.select(
        torch.cat([scores, ones.to(scores.dtype)]),
        torch.cat([real, ones]),
        torch.cat([counts, counts.new_tensor([width])]),
        keep_first,
    )
    return index[:-1], kept[:-1]
