"""Fits the maps of dropped tokens' states (``ldsearch.supernet.left_behind``), in closed form."""

import torch
from torch import Tensor

RIDGE = 1e-3  # of the variance of each number of a state
FLOOR = 1e-6  # of the mean variance, or deviation: what varies less counts as if it varied so much


class StateSums:
    """Sums of a ridge regression of reduced rank, from the states that enter a block to the last block's.

    Args:
        width: Of a state.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.entered = torch.zeros(width, dtype=torch.float64)
        self.left = torch.zeros(width, dtype=torch.float64)
        self.squares = torch.zeros(width, width, dtype=torch.float64)
        self.products = torch.zeros(width, width, dtype=torch.float64)
        self.left_squares = torch.zeros(width, dtype=torch.float64)

    def add(self, entered: Tensor, left: Tensor) -> None:
        """Add tokens: what entered the block and what left the last one, each of shape (tokens, width)."""
        entered, left = entered.float(), left.float()
        self.count += len(entered)
        self.entered += entered.sum(dim=0).double().cpu()
        self.left += left.sum(dim=0).double().cpu()
        # Sums of half precision would lose what tells directions apart in which states vary little.
        with torch.autocast(entered.device.type, enabled=False):
            self.squares += (entered.T @ entered).double().cpu()
            self.products += (entered.T @ left).double().cpu()
        self.left_squares += left.square().sum(dim=0).double().cpu()

    def solution(self, rank: int) -> Tensor:
        """The map, shape (2 * rank + 1, width): the best of its rank for the ridge's own predictions.

        Reduced-rank regression (Izenman 1975): the ridge's predictions in their principal directions, each
        number of a state over its deviation, since some vary much more than others. Zeros where states are
        constant, or not finite.
        """
        means = self.entered / self.count, self.left / self.count
        squares = self.squares / self.count - torch.outer(means[0], means[0])
        products = self.products / self.count - torch.outer(*means)
        deviation = (self.left_squares / self.count - means[1].square()).clamp_min(0).sqrt()
        if not (squares.diagonal() > 0).any() or not (squares.isfinite().all() and products.isfinite().all()):
            return torch.zeros(2 * rank + 1, len(means[0]))
        variance = squares.diagonal()
        ridge = (RIDGE * variance.clamp_min(variance.mean() * FLOOR)).diag()
        whole = torch.linalg.solve(squares + ridge, products)
        scaled = whole / deviation.clamp_min(FLOOR * deviation.mean())
        _, directions = torch.linalg.eigh(scaled.T @ squares @ scaled)
        best = directions[:, -rank:].T
        reads = best @ scaled.T
        writes = best * deviation.clamp_min(FLOOR * deviation.mean())
        bias = means[1] - (means[0] @ reads.T) @ writes
        return torch.cat([reads, writes, bias[None]]).float()
