"""Heat maps: what each frontier point keeps of every block, and scores by encoder and decoder depth."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray

from ldsearch.errors import DataError
from ldsearch.reports.style import CELLS, INK
from ldsearch.subnet import Subnet

# (encoder depth, decoder depth) to a score, for every pair of the depths that occur.
Grid = Mapping[tuple[int, int], float]

# Beyond these a number in each cell could not be read.
_ROWS, _BLOCKS = 40, 16


def kept_shares(subnets: Sequence[Subnet], stack: str, blocks: int) -> NDArray[np.float64]:
    """The share of the tokens that leaves each block, shape (sub-networks, blocks); NaN: it does not run.

    Args:
        subnets: The sub-networks.
        stack: ``"encoder"`` or ``"decoder"``.
        blocks: Of the full stack.
    """
    shares = np.full((len(subnets), blocks), np.nan)
    for row, subnet in zip(shares, subnets, strict=True):
        kept = subnet.stacks().get(stack)
        if kept is not None:
            lengths = kept.lengths
            row[list(kept.blocks)] = 1.0 if lengths is None else np.array(lengths.tokens) / lengths.reference
    return shares


@rc_context(CELLS)
def draw_kept(subnets: Sequence[Subnet], costs: Sequence[float], depths: Mapping[str, int]) -> Figure:
    """A panel for each stack; a row for each sub-network, a column for each block.

    Args:
        subnets: Cheapest first.
        costs: The share of the full model's MACs of each.
        depths: Blocks of each stack of the full model, by name.
    """
    height = 1.5 + max(1.4, min(0.3 * len(subnets), 9.0))
    figure = Figure(figsize=(2.4 + 0.42 * sum(depths.values()), height), layout="constrained")
    panels = figure.subplots(1, len(depths), squeeze=False, sharey=True, width_ratios=[*depths.values()])[0]
    for axes, (stack, blocks) in zip(panels, depths.items(), strict=True):
        shares = kept_shares(subnets, stack, blocks)
        legible = len(subnets) <= _ROWS and blocks <= _BLOCKS
        percents = np.where(np.isnan(shares), "", np.char.mod("%.0f", 100 * shares)) if legible else None
        image = _heat_map(axes, shares, percents, Normalize(0, 1))
        axes.set_xticks(range(0, blocks, max(1, blocks // 12)))
        axes.set_xticks(np.arange(blocks + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(subnets) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="0.8", lw=0.6)
        axes.tick_params(which="minor", length=0)
        axes.set_xlabel(f"{stack} block")
    step = max(1, -(-len(subnets) // _ROWS))
    panels[0].set_yticks(range(0, len(subnets), step), [f"{cost:.3f}" for cost in costs[::step]], fontsize=8)
    # In two lines: a frontier of a few points makes a low figure.
    panels[0].set_ylabel("share of the\nfull model's MACs")
    figure.colorbar(image, ax=list(panels), label="share of tokens\nthat leave")
    return figure


def grid_table(scores: Grid) -> pd.DataFrame:
    """A row for each encoder depth and a column for each decoder depth, ascending.

    Raises:
        DataError: If there is no score, or a pair of the depths has none: no mean would be comparable.
    """
    keys = pd.MultiIndex.from_tuples(scores, names=["encoder", "decoder"])
    table = pd.Series([*scores.values()], keys, dtype=float).unstack() if scores else pd.DataFrame()
    if table.empty or table.isna().to_numpy().any():
        raise DataError(f"a grid needs a score for each pair of depths, but has only {sorted(scores)}")
    return table


def _compared(
    scores: Grid, baseline: Grid | None, decimals: int, between: str
) -> tuple[pd.DataFrame, pd.DataFrame | None, pd.DataFrame]:
    """The scores, their differences to the baseline, and the text of each cell.

    Raises:
        DataError: If a grid has holes, or the baseline has other depths.
    """
    table = grid_table(scores)
    texts = table.map(lambda score: f"{score:.{decimals}f}")
    if baseline is None:
        return table, None, texts
    if strangers := sorted({*scores} ^ {*baseline}):
        raise DataError(f"the grid and its baseline must have the same depths, but differ in {strangers}")
    differences = table - grid_table(baseline)
    return table, differences, texts + differences.map(lambda gain: f"{between}{gain:+.{decimals}f}")


def grid_text(scores: Grid, baseline: Grid | None = None, decimals: int = 2) -> str:
    """The grid for a terminal: scores, signed differences to the baseline behind them, and the mean.

    Args:
        scores: One for each depth configuration.
        baseline: What to compare with; None: nothing.
        decimals: Of every number.

    Raises:
        DataError: If a grid has holes, or the baseline has other depths.
    """
    table, differences, texts = _compared(scores, baseline, decimals, " ")
    mean = table.to_numpy().mean()
    summary = f"mean of {table.size} depth configurations: {mean:.{decimals}f}"
    if differences is not None:
        gained = differences.to_numpy().mean()
        summary += f", {gained:+.{decimals}f} against the baseline's {mean - gained:.{decimals}f}"
    texts = texts.rename_axis(index=None, columns="encoder \\ decoder")
    return f"{texts.to_string()}\n{summary}"


@rc_context(CELLS)
def draw_grid(scores: Grid, title: str, baseline: Grid | None = None, decimals: int = 2) -> Figure:
    """A heat map with the numbers of ``grid_text``; with a baseline, the colours are the differences.

    Args:
        scores: One for each depth configuration.
        title: Above the axes, before the mean.
        baseline: What to compare with; None: nothing.
        decimals: Of every number.

    Raises:
        DataError: If a grid has holes, or the baseline has other depths.
    """
    table, differences, texts = _compared(scores, baseline, decimals, "\n")
    title = f"{title}: mean {table.to_numpy().mean():.{decimals}f}"
    coloured, norm, colours, label = table, _common_norm([table]), "viridis", "score"
    if differences is not None:
        title += f" ({differences.to_numpy().mean():+.{decimals}f})"
        # Colours that praise neither sign: of some scores less is better.
        coloured, norm, colours, label = differences, CenteredNorm(), "PuOr", "difference to the baseline"
    figure = Figure(figsize=(2.4 + 0.9 * table.shape[1], 1.6 + 0.55 * table.shape[0]), layout="constrained")
    axes = figure.add_subplot()
    image = _heat_map(axes, coloured, texts, norm, colours)
    axes.set_xticks(range(table.shape[1]), [str(depth) for depth in table.columns])
    axes.set_yticks(range(table.shape[0]), [str(depth) for depth in table.index])
    axes.set_xlabel("decoder blocks")
    axes.set_ylabel("encoder blocks")
    axes.set_title(title)
    figure.colorbar(image, label=label)
    return figure


@rc_context(CELLS)
def draw_pruning_ratios(panels: Mapping[float, Grid], encoder: int, decoder: int, metric: str) -> Figure:
    """Scores by the share of blocks that inference leaves out (Fig. 1 of Wang, Xiao & Zhu 2020).

    One heat map for each model, all in one scale of colours; a star marks where the ratios at inference
    equal the model's LayerDrop rate in training.

    Args:
        panels: LayerDrop rate of a model to its grid.
        encoder: Encoder blocks of the full model.
        decoder: Decoder blocks of the full model.
        metric: What the scores are.

    Raises:
        DataError: If there is no grid, one has holes, or a depth exceeds the full model's.
    """
    tables = {rate: grid_table(scores) for rate, scores in sorted(panels.items())}
    if not tables:
        raise DataError("pruning ratios need at least one grid")
    if any(m > encoder or n > decoder for scores in panels.values() for m, n in scores):
        raise DataError(f"a grid has depths beyond the full model's {encoder} and {decoder} blocks")
    norm = _common_norm([*tables.values()])
    rows, columns = next(iter(tables.values())).shape
    width = (1.2 + 0.7 * columns) * len(tables) + 1.0
    figure = Figure(figsize=(width, 1.6 + 0.42 * rows), layout="constrained")
    for position, (rate, table) in enumerate(tables.items(), 1):
        axes = figure.add_subplot(1, len(tables), position)
        # Deepest first, so that both ratios rise from the corner of the full model.
        turned = table.iloc[::-1, ::-1]
        image = _heat_map(axes, turned, turned.map(lambda score: f"{score:.1f}"), norm)
        place = []
        for axis, depths, blocks in (
            (axes.xaxis, turned.columns, decoder),
            (axes.yaxis, turned.index, encoder),
        ):
            left_out = blocks - depths.to_numpy()
            axis.set_ticks(range(len(left_out)), [f"{count}/{blocks}" for count in left_out])
            place.append(float(np.interp(rate * blocks, left_out, range(len(left_out)))))
        # Hollow, since it may lie on a number.
        axes.scatter(
            place[:1], place[1:], marker="*", s=600, facecolors="none", edgecolors=INK, linewidths=1.6
        )
        axes.set_ylabel("encoder blocks left out, $p'_{enc}$")
        axes.set_xlabel("decoder blocks left out, $p'_{dec}$")
        axes.set_title(f"trained with p = {rate:g}")
    figure.colorbar(image, ax=figure.axes, label=metric)
    return figure


def _heat_map(
    axes: Axes, values: ArrayLike, texts: ArrayLike | None, norm: Normalize, colours: str = "viridis"
) -> AxesImage:
    """Cells coloured by ``values``, with ``texts`` in black or white, whichever can be read."""
    cells = np.asarray(values)
    image = axes.imshow(cells, norm=norm, cmap=colours, aspect="auto")
    luminance = image.to_rgba(cells)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (row, column), text in np.ndenumerate(np.asarray(texts) if texts is not None else np.empty((0, 0))):
        colour = "black" if luminance[row, column] > 0.5 else "white"
        axes.text(column, row, str(text), ha="center", va="center", fontsize=9, color=colour)
    return image


def _common_norm(tables: Sequence[pd.DataFrame]) -> Normalize:
    """One scale of colours for several grids."""
    return Normalize(
        min(table.to_numpy().min() for table in tables), max(table.to_numpy().max() for table in tables)
    )
