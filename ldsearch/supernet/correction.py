"""Corrects the vector of a text that lost tokens, for heads that answer by the mean of what is left.

Tokens that were dropped have no last state, but the states that entered the first block are there of all. An
affine map of their mean and of the kept tokens' mean predicts what the full model's mean is more than the
latter. It counts by the share of tokens that were dropped, so that a text that lost none keeps its vector. It
is fitted with the learned token score (``ldsearch.training.correction``), in a buffer of the model.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ldsearch.supernet.tokens import State

CORRECTION = "dropped_correction"  # the buffer's name


def correction_of(model: nn.Module) -> Tensor | None:
    """A model's map, shape (2 d + 1, d): of what entered, of what was kept, and a bias; None: it has none."""
    return getattr(model, CORRECTION, None)


def mean_of(hidden: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (B, d) of the states (B, n, d) of real tokens, and how many those are, (B, 1)."""
    weights = real[..., None].to(hidden.dtype)
    count = weights.sum(dim=1)
    return (hidden * weights).sum(dim=1) / count, count


def remembered(state: State) -> State:
    """State that enters the first block, with the mean and the number of its tokens, for a correction."""
    return replace(state, entered=mean_of(state.hidden, state.real))


def means(hidden: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Means (B, d) of what entered the first block and of what was kept, and the share dropped, (B, 1).

    Args:
        hidden: Last states (B, k, d), as the head reads them.
        state: Of those tokens; it remembers what entered the first block.
    """
    assert state.entered is not None
    (entered, count), (kept, left) = state.entered, mean_of(hidden, state.real)
    return entered, kept, 1 - left / count


def corrected(model: nn.Module, hidden: Tensor, state: State) -> Tensor:
    """Last states (B, k, d), each moved by its text's correction, which so moves their mean."""
    if state.entered is None or state.positions is None:
        return hidden
    *both, dropped = means(hidden, state)
    weights: Tensor = getattr(model, CORRECTION).to(hidden.dtype)
    moves: Tensor = dropped * (torch.cat(both, dim=-1) @ weights[:-1] + weights[-1])
    return hidden + moves[:, None]
