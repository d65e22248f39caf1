"""Fits the correction of vectors (``ldsearch.supernet.correction``): ridge regression, in closed form."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

from ldsearch.space.lengths import Shape, draw_shares
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION, mean_of, means
from ldsearch.supernet.processor import bf16_is_fast
from ldsearch.supernet.supernet import evaluating
from ldsearch.tasks.base import Batch

DRAWS = 3  # sub-networks of a batch
# None that drops late: by those a mean loses most, and their errors would outweigh the others'
# (results/embeddings/corrected).
SHAPES = (Shape.EVEN, Shape.EARLY, Shape.ONCE)
SHARES = (0.2, 0.95)  # of the tokens of all blocks that they keep
RIDGES = (torch.inf, 10.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # of a feature's mean square; by the first none
FLOOR = 1e-3  # of the mean size of features: what is smaller counts as if it were so large
_APART = 4  # of so many texts one chooses among them


def fit_correction(supernet: Supernet, batches: Iterable[Batch], reference: int, seed: int) -> None:
    """Set the map that corrects vectors, by sub-networks of all blocks and regular lengths.

    It predicts with the least squared error what their means lack to the full model's, each over the share of
    tokens dropped. The ridge is that whose corrected vectors of every fourth text, not fitted, have the
    largest cosine to the full model's, or none at all; then all are fitted.

    Args:
        supernet: Of a model with such a map, its token score fitted.
        batches: Of the training rows.
        reference: The length that sub-networks are drawn at.
        seed: Of the sub-networks.
    """
    rng = np.random.default_rng(seed)
    found = [_examples(supernet, batch, reference, rng) for batch in batches]
    known, dropped, kept, whole = (torch.cat(part).double() for part in zip(*found, strict=True))
    scale = known.square().mean(dim=(0, 1)).sqrt()
    scale = scale.clamp_min(FLOOR * float(scale.mean()))
    known, text = known / scale, torch.arange(len(known))[:, None]
    apart = text % _APART == 0

    def solution(ridge: float, rows: Tensor) -> Tensor:
        if ridge == torch.inf:
            return known.new_zeros(known.shape[-1], whole.shape[-1])
        rows = rows & (dropped[..., 0] > 0)
        inputs, lacking = known[rows], ((whole - kept) / dropped)[rows]
        products = inputs.T @ inputs + ridge * (1 + len(inputs)) * torch.eye(inputs.shape[1])
        solved: Tensor = torch.linalg.solve(products, inputs.T @ lacking)
        return solved

    def likeness(ridge: float) -> float:
        moved = kept + dropped * (known @ solution(ridge, ~apart))
        return float(cosine_similarity(moved, whole, dim=-1)[apart[:, 0]].mean())

    best = solution(max(RIDGES, key=likeness), text >= 0)
    getattr(supernet.model, CORRECTION).copy_(best / scale[:, None])


def _examples(
    supernet: Supernet, batch: Batch, reference: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of texts and drawn sub-networks, (B, DRAWS, …): what is mapped, the share dropped, and both means."""
    assert supernet.pipeline is not None
    assert supernet.family is not None
    found = []
    # Rounding is noise, of which means and the fit leave little.
    rounded = torch.autocast("cpu", enabled=bf16_is_fast())
    with rounded, evaluating(supernet, supernet.inputs(batch)) as inputs:
        state = supernet.pipeline(inputs, supernet.full.stacks()["encoder"])
        whole, _ = mean_of(supernet.pipeline.finish(state), state.real)
        for _ in range(DRAWS):
            lengths = draw_shares(reference, supernet.blocks, SHAPES, SHARES, rng)
            subnet = Subnet.of_encoder(range(supernet.blocks), lengths, reference)
            state = supernet.pipeline(inputs, subnet.stacks()["encoder"])
            entered, kept, dropped = means(supernet.family.finish(supernet.model, state.hidden), state)
            found.append((pad(torch.cat([entered, kept], dim=-1), (0, 1), value=1.0), dropped, kept, whole))
    known, share, kept, whole = (torch.stack(part, dim=1).cpu() for part in zip(*found, strict=True))
    return known, share, kept, whole
