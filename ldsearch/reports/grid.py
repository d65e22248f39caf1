"""Scores of depth configurations: a table of encoder by decoder depths, as text and as heat maps."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from ldsearch.errors import DataError

# (encoder depth, decoder depth) to a score, for every pair of the depths that occur.
Grid = Mapping[tuple[int, int], float]


def grid_table(scores: Grid) -> pd.DataFrame:
    """A row for each encoder depth and a column for each decoder depth, ascending.

    Raises:
        DataError: If there is no score, or a pair of the depths has none: no mean would be comparable.
    """
    encoders, decoders = (sorted({key[stack] for key in scores}) for stack in (0, 1))
    missing = [(m, n) for m in encoders for n in decoders if (m, n) not in scores]
    if not scores or missing:
        raise DataError(f"a grid needs a score for each pair of depths, but has none for {missing or 'any'}")
    return pd.DataFrame(
        [[float(scores[m, n]) for n in decoders] for m in encoders],
        index=pd.Index(encoders, name="encoder"),
        columns=pd.Index(decoders, name="decoder"),
    )


def difference_table(scores: Grid, baseline: Grid) -> pd.DataFrame:
    """``scores`` less ``baseline``, as ``grid_table`` lays them out.

    Raises:
        DataError: If the two are not of the same depth configurations.
    """
    if strangers := sorted({*scores} ^ {*baseline}):
        raise DataError(f"the grid and its baseline must have the same depths, but differ in {strangers}")
    return grid_table(scores) - grid_table(baseline)


def grid_text(scores: Grid, baseline: Grid | None = None, decimals: int = 2) -> str:
    """The grid for a terminal: scores, signed differences to the baseline behind them, and the mean.

    Args:
        scores: One for each depth configuration.
        baseline: What to compare with; None: nothing.
        decimals: Of every number.

    Raises:
        DataError: If a grid has holes, or the baseline has other depths.
    """
    table = grid_table(scores)
    cells = table.map(lambda score: f"{score:.{decimals}f}")
    mean = _mean(table)
    summary = f"mean of {table.size} depth configurations: {mean:.{decimals}f}"
    if baseline is not None:
        differences = difference_table(scores, baseline)
        cells += differences.map(lambda difference: f" {difference:+.{decimals}f}")
        gained = _mean(differences)
        summary += f", {gained:+.{decimals}f} against the baseline's {mean - gained:.{decimals}f}"
    heads = ["encoder \\ decoder", *map(str, table.columns)]
    rows = [[str(depth), *cells.loc[depth]] for depth in table.index]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
        for row in (heads, *rows)
    ]
    return "\n".join([*lines, summary])


def draw_grid(scores: Grid, title: str, baseline: Grid | None = None, decimals: int = 2) -> Figure:
    """A heat map with the numbers of ``grid_text``; beside a baseline, the colours are the differences.

    Args:
        scores: One for each depth configuration.
        title: Above the axes, before the mean.
        baseline: What to compare with; None: nothing.
        decimals: Of every number.

    Raises:
        DataError: If a grid has holes, or the baseline has other depths.
    """
    table = grid_table(scores)
    texts = table.map(lambda score: f"{score:.{decimals}f}")
    title = f"{title}: mean {_mean(table):.{decimals}f}"
    coloured, norm, colours, label = table, _shared_norm([table]), "viridis", "score"
    if baseline is not None:
        coloured = difference_table(scores, baseline)
        texts += coloured.map(lambda difference: f"\n{difference:+.{decimals}f}")
        title += f" ({_mean(coloured):+.{decimals}f})"
        # Colours that praise neither sign: of some scores less is better.
        norm, colours, label = CenteredNorm(), "PuOr", "difference to the baseline"
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
    for table in tables.values():
        if max(_encoders(table)) > encoder or max(_decoders(table)) > decoder:
            raise DataError(f"a grid has depths beyond the full model's {encoder} and {decoder} blocks")
    norm = _shared_norm([*tables.values()])
    rows, columns = next(iter(tables.values())).shape
    figure = Figure(
        figsize=((1.2 + 0.7 * columns) * len(tables) + 1.0, 1.6 + 0.42 * rows), layout="constrained"
    )
    for position, (rate, table) in enumerate(tables.items(), 1):
        axes = figure.add_subplot(1, len(tables), position)
        # Deepest first, so that both ratios rise from the corner of the full model.
        turned = table.iloc[::-1, ::-1]
        image = _heat_map(axes, turned, turned.map(lambda score: f"{score:.1f}"), norm, "viridis")
        _label_ratios(axes, turned, (encoder, decoder), rate)
        axes.set_title(f"trained with p = {rate:g}")
    figure.colorbar(image, ax=figure.axes, label=metric)
    return figure


def _label_ratios(axes: Axes, table: pd.DataFrame, full: tuple[int, int], rate: float) -> None:
    """Ticks as (left out)/(blocks), and the star at the training's rate."""
    pruned = [
        [full[0] - depth for depth in _encoders(table)],
        [full[1] - depth for depth in _decoders(table)],
    ]
    labels = [[f"{out}/{blocks}" for out in outs] for outs, blocks in zip(pruned, full, strict=True)]
    axes.set_yticks(range(len(labels[0])), labels[0])
    axes.set_xticks(range(len(labels[1])), labels[1])
    axes.set_ylabel("encoder blocks left out, $p'_{enc}$")
    axes.set_xlabel("decoder blocks left out, $p'_{dec}$")
    y, x = (
        float(np.interp(rate * blocks, outs, range(len(outs))))
        for outs, blocks in zip(pruned, full, strict=True)
    )
    # Hollow, since it may lie on a number.
    axes.scatter([x], [y], marker="*", s=600, facecolors="none", edgecolors="tab:red", linewidths=1.6)


def _heat_map(
    axes: Axes, values: pd.DataFrame, texts: pd.DataFrame, norm: Normalize, colours: str
) -> AxesImage:
    """Cells coloured by ``values``, with ``texts`` in black or white, whichever can be read."""
    image = axes.imshow(values.to_numpy(), norm=norm, cmap=colours, aspect="auto")
    shades = image.to_rgba(values.to_numpy())[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (row, column), shade in np.ndenumerate(shades):
        axes.text(
            column,
            row,
            str(texts.iat[row, column]),
            ha="center",
            va="center",
            fontsize=8,
            color="black" if shade > 0.5 else "white",
        )
    return image


def _shared_norm(tables: Sequence[pd.DataFrame]) -> Normalize:
    return Normalize(
        min(table.to_numpy().min() for table in tables), max(table.to_numpy().max() for table in tables)
    )


def _encoders(table: pd.DataFrame) -> list[int]:
    return [int(depth) for depth in table.index]


def _decoders(table: pd.DataFrame) -> list[int]:
    return [int(depth) for depth in table.columns]


def _mean(table: pd.DataFrame) -> float:
    return float(table.to_numpy().mean())
