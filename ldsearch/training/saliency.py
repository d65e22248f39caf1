"""Fits the learned token score: ridge regression onto the gradient at each token.

How much a loss depends on a token shows, to first order, in its gradient at the token's state. The full
model has gradients for rows with labels; a block that drops tokens has none, but the state that entered it
and what its attention read predict them. AdapLeR (Modarressi et al. 2022, arXiv 2203.08991) trains predictors
of such saliencies by descent, beside the model; here they are fitted in closed form.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import correction_of
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.left_behind import MAP, left_behind, map_of
from ldsearch.supernet.saliency import LEARNED, WEIGHTS
from ldsearch.supernet.tokens import State
from ldsearch.tasks.base import Batch, Encoded, Task
from ldsearch.training.correction import fit_correction
from ldsearch.training.left_behind import StateSums

TOKENS = 100_000  # that are fitted to
CORRECTED = 4  # times as many, by which vectors are corrected: that takes no gradients
CORRECTED_ROWS = 4_000  # at most
ROWS = 32  # of a batch
RIDGE = 0.01  # of the features' mean square
LEAST = 1e-6  # of the largest gradient of a row: what is below says nothing
LEAST_DIVERGENCE = 1e-2  # nats: an answer is hardly another


def fit_saliency(
    supernet: Supernet, task: Task, rows: Encoded, tokenizer: PreTrainedTokenizerBase, seed: int = 0
) -> None:
    """Fit the learned token score to the model as it is, by what its task probes (``Task.probe``).

    Then the correction of means where they are the answer, by up to 4,000 rows of four times the tokens.

    Args:
        supernet: As for ``fit_to``.
        task: Makes batches and losses.
        rows: Of which the seed draws as many as have 100,000 tokens, or all.
        tokenizer: Pads batches.
        seed: Draws the rows, and what the task draws of them.
    """
    rng, lengths = np.random.default_rng(seed), rows.lengths
    order = rng.permutation(len(rows))
    collate, device = task.collate(tokenizer, None), supernet.model.device

    def batches(tokens: int, most: int) -> Iterator[Batch]:
        drawn = order[: int(np.searchsorted(lengths[order].cumsum(), tokens)) + 1][:most]
        drawn = drawn[lengths[drawn].argsort(kind="stable")]
        for start in range(0, len(drawn), ROWS):
            batch = collate([rows[row] for row in drawn[start : start + ROWS].tolist()])
            on_device = {name: tensor.to(device) for name, tensor in batch.items()}
            yield task.prepare(on_device, tokenizer, rng)

    generator = torch.Generator().manual_seed(seed)
    fit_to(
        supernet,
        [*batches(TOKENS, len(rows))],
        lambda logits, batch: task.probe(logits, batch, generator),
        task.token_prior,
    )
    assert supernet.pipeline is not None
    supernet.pipeline.add_correction(supernet.head.averages(supernet.reads_first))
    if correction_of(supernet.model) is not None:
        fit_correction(supernet, batches(CORRECTED * TOKENS, CORRECTED_ROWS), int(lengths.max()), seed)


def fit_to(
    supernet: Supernet,
    batches: Sequence[Batch],
    loss: Callable[[Tensor, Batch], Tensor],
    prior: Callable[[Tensor, Batch], Tensor] | None = None,
) -> None:
    """Set the weights of every block's learned token score.

    For each block, features are the state that enters it and what its attention reads, and the target is
    the logarithm of the norm of the loss's gradient at the state that leaves it, over the row's largest,
    plus the prior. Where dropped states are mapped (``left_behind``, fitted before), the target has also the
    logarithm of the KL divergence of the answer by the map from the full model's. Features and targets are
    taken less their means over a row: only tokens of one row compete.

    Args:
        supernet: One of a registered family whose token score is ``learned``; it runs in full, without
            dropout.
        batches: Of the training rows, read twice where dropped states are mapped.
        loss: Of logits and their batch.
        prior: Of the same, shape (B, n), added to the target of every block (``Task.token_prior``).
    """
    layers = list(supernet.layers_of("encoder"))
    # One for all blocks where they are one layer.
    sums = {layer: Sums(len(getattr(layer, WEIGHTS))) for layer in layers}
    was_training = supernet.training
    supernet.eval()
    assert supernet.pipeline is not None
    supernet.pipeline.add_maps(supernet.head.maps)
    maps = fit_maps(supernet, batches)
    for batch in batches:
        with recorded(supernet) as seen, torch.enable_grad():
            logits = logits_of(supernet(supernet.inputs(batch), supernet.full))
            value = loss(logits, batch)
        gradients = torch.autograd.grad(value, [left for _, _, left in seen])
        real = batch["attention_mask"].bool()
        known = prior(logits.detach(), batch) if prior else 0.0
        for layer, (entered, context, _), gradient in zip(layers, seen, gradients, strict=True):
            norms = gradient.float().norm(dim=-1).masked_fill(~real, 0.0)
            shares = norms / norms.amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
            features = torch.cat([entered.float(), context.float()], dim=-1)
            target = (shares + LEAST).log() + known
            if maps:
                target = target + _divergence(supernet, layer, entered, logits.detach(), batch)
            sums[layer].add(features, target, real)
    supernet.train(was_training)
    for layer, own in sums.items():
        getattr(layer, WEIGHTS).copy_(own.solution())


@torch.no_grad()
def fit_maps(supernet: Supernet, batches: Iterable[Batch]) -> bool:
    """Fit the maps of dropped tokens' states (``left_behind``), if there are some.

    Args:
        supernet: It runs in full, in evaluation.
        batches: Of the training rows.

    Returns:
        Whether there are some.
    """
    found = {layer: map_of(layer) for layer in supernet.layers_of("encoder")}
    maps = {layer: StateSums(own.shape[1]) for layer, own in found.items() if own is not None}
    for batch in batches if maps else ():
        with recorded(supernet) as seen:
            supernet(supernet.inputs(batch), supernet.full)
        real = batch["attention_mask"].bool()
        for layer, (entered, _, _) in zip(supernet.layers_of("encoder"), seen, strict=True):
            maps[layer].add(entered[real], seen[-1][2][real])
    for layer, states in maps.items():
        own = getattr(layer, MAP)
        own.copy_(states.solution(len(own) // 2))
    return bool(maps)


@torch.no_grad()
def _divergence(
    supernet: Supernet, layer: nn.Module, entered: Tensor, logits: Tensor, batch: Batch
) -> Tensor:
    """Log of the KL divergence of answers of tokens dropped at a layer from the full model's, (B, n)."""
    assert supernet.pipeline is not None
    mask = batch["attention_mask"]
    state = State(left_behind(layer, entered), mask.bool())
    answers = logits_of(supernet.pipeline.head(state, mask)).float().log_softmax(dim=-1)
    own = logits.float().log_softmax(dim=-1)
    return ((own.exp() * (own - answers)).sum(dim=-1).clamp_min(0.0) + LEAST_DIVERGENCE).log()


def learn_score(supernet: Supernet) -> None:
    """Choose tokens by the learned score from now on, by weights that are zeros until they are fitted."""
    assert supernet.pipeline is not None
    supernet.pipeline.add_weights(supernet.head)
    supernet.score = LEARNED
    supernet.pipeline.blocks = tuple(replace(block, score=None) for block in supernet.pipeline.blocks)


def is_fitted(supernet: Supernet) -> bool:
    """Whether nothing is left to fit: another token score, or weights that are there."""
    if supernet.score != LEARNED or not supernet.supports_lengths:
        return True
    layers = supernet.layers_of("encoder")
    maps = [own for layer in layers if (own := map_of(layer)) is not None]
    fitted = any(bool(getattr(layer, WEIGHTS).any()) for layer in layers)
    return fitted and (not maps or any(bool(own.any()) for own in maps))


class Sums:
    """Normal equations of a ridge regression within rows.

    Args:
        width: Number of features.
    """

    def __init__(self, width: int) -> None:
        self.products = torch.zeros(width, width, dtype=torch.float64)
        self.targets = torch.zeros(width, dtype=torch.float64)

    def add(self, features: Tensor, targets: Tensor, real: Tensor) -> None:
        """Add rows.

        Args:
            features: Shape (B, n, width).
            targets: Shape (B, n).
            real: Shape (B, n), True where a position is no padding.
        """
        weights = real[..., None].float()
        both = torch.cat([features, targets[..., None]], dim=-1) * weights
        centred = (both - both.sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True))[real]
        # Sums of half precision would lose what tells directions apart in which states vary little.
        with torch.autocast(centred.device.type, enabled=False):
            self.products += (centred[:, :-1].T @ centred[:, :-1]).double().cpu()
            self.targets += (centred[:, :-1].T @ centred[:, -1]).double().cpu()

    def solution(self) -> Tensor:
        """Weights (width,) of the features; zeros where no row told two tokens apart."""
        mean = self.products.diagonal().mean()
        if not mean > 0:
            return torch.zeros_like(self.targets)
        ridge = RIDGE * mean * torch.eye(len(self.targets), dtype=torch.float64)
        solved: Tensor = torch.linalg.solve(self.products + ridge, self.targets)
        return solved


@contextmanager
def recorded(supernet: Supernet) -> Iterator[list[tuple[Tensor, Tensor, Tensor]]]:
    """Record each block of a pass, in order: its input, what its attention read, its output."""
    assert supernet.family is not None
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    entered: list[Tensor] = []
    read: list[Tensor] = []

    def enters(layer: nn.Module, inputs: Sequence[Any]) -> None:
        entered.append(inputs[0].detach())

    def reads(output: nn.Module, inputs: Sequence[Any]) -> None:
        read.append(inputs[0].detach())

    def leaves(layer: nn.Module, inputs: Sequence[Any], left: Any) -> None:
        hidden = cast(Tensor, left[0] if isinstance(left, tuple) else left)
        seen.append((entered.pop(), read.pop(), hidden))

    handles = []
    for layer in dict.fromkeys(supernet.layers_of("encoder")):
        handles.append(layer.register_forward_pre_hook(enters))
        handles.append(supernet.family.parts(layer).output.register_forward_pre_hook(reads))
        handles.append(layer.register_forward_hook(leaves))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
