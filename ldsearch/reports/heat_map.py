"""Which blocks the sub-networks of a frontier keep, and how many tokens leave each, as a heat map."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ldsearch.subnet import Subnet

# Beyond these a number in each cell could not be read.
_ROWS, _BLOCKS = 40, 16


def kept_shares(subnets: Sequence[Subnet], stack: str, blocks: int) -> NDArray[np.float64]:
    """The share of the tokens that leaves each block, shape (sub-networks, blocks); NaN: it does not run.

    Args:
        subnets: What is looked at.
        stack: ``"encoder"`` or ``"decoder"``.
        blocks: Of the full stack.
    """
    shares = np.full((len(subnets), blocks), np.nan)
    for row, subnet in zip(shares, subnets, strict=True):
        own = subnet.stacks().get(stack)
        if own is not None:
            lengths = own.lengths
            row[list(own.blocks)] = 1.0 if lengths is None else np.array(lengths.tokens) / lengths.reference
    return shares


def draw_kept(subnets: Sequence[Subnet], costs: Sequence[float], depths: Mapping[str, int]) -> Figure:
    """A panel for each stack; a row for each sub-network, a column for each block.

    Args:
        subnets: Cheapest first.
        costs: The share of the full model's MACs of each.
        depths: Blocks of each stack of the full model, by name.
    """
    height = 1.5 + max(1.0, min(0.3 * len(subnets), 9.0))
    figure = Figure(figsize=(2.4 + 0.42 * sum(depths.values()), height), layout="constrained")
    panels = figure.subplots(1, len(depths), squeeze=False, sharey=True, width_ratios=[*depths.values()])[0]
    for axes, (stack, blocks) in zip(panels, depths.items(), strict=True):
        shares = kept_shares(subnets, stack, blocks)
        image = axes.imshow(shares, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        if len(subnets) <= _ROWS and blocks <= _BLOCKS:
            _write_numbers(axes, shares)
        axes.set_xticks(range(0, blocks, max(1, blocks // 12)))
        axes.set_xticks(np.arange(blocks + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(subnets) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="0.8", lw=0.6)
        axes.tick_params(which="minor", length=0)
        axes.set_xlabel(f"{stack} block")
    step = max(1, -(-len(subnets) // _ROWS))
    panels[0].set_yticks(range(0, len(subnets), step), [f"{cost:.3f}" for cost in costs[::step]], fontsize=8)
    panels[0].set_ylabel("share of the full model's MACs")
    figure.colorbar(image, ax=list(panels), label="share of tokens that leave")
    return figure


def _write_numbers(axes: Axes, shares: NDArray[np.float64]) -> None:
    """Percentages in black or white, whichever can be read."""
    shades = colormaps["viridis"](shares)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (row, column), share in np.ndenumerate(shares):
        if not np.isnan(share):
            colour = "black" if shades[row, column] > 0.5 else "white"
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
