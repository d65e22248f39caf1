"""Writes one HTML page on one or several finished searches, and its figures beside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ldsearch.commands.finished import FinishedRun
from ldsearch.errors import RunError, one_line
from ldsearch.files import write_atomic
from ldsearch.reports.drawing import Drawing, Rendered, file_names, inline, plain, render
from ldsearch.reports.html import GENERATOR, Markup, Section, heading, page, paragraphs, table
from ldsearch.reports.overlay import Line, common_areas, draw_overlay, panels_of
from ldsearch.workflows.reporting.chapters import Part, chapters
from ldsearch.workflows.reporting.chapters_of_costs import number


@dataclass(frozen=True)
class Report:
    """What was written.

    Args:
        page: The HTML file.
        figures: The SVG and PNG files beside it.
    """

    page: Path
    figures: tuple[Path, ...]


def report(folders: Sequence[str | Path], output: str | Path = "report.html") -> Report:
    """Read finished searches and write the page; no model is loaded and nothing is run.

    Args:
        folders: The runs, in the order they are shown.
        output: The page; figures lie beside it, their names begin with its own. Files that this function
            wrote before are replaced.

    Raises:
        RunError: If a folder holds no finished search, is named twice or is damaged, or a file of another
            kind is where one would be written.
    """
    output = Path(output)
    if output.suffix != ".html":
        raise RunError(f"the report is an HTML page: name it .html, not {output.name}")
    runs = [FinishedRun.read(Path(folder)) for folder in folders]
    if not runs:
        raise RunError("a report needs at least one run")
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise RunError("a run is named twice")
    labels = [run.name if len(runs) == 1 else f"{index} {run.name}" for index, run in enumerate(runs, 1)]
    told = [_told(run, f"{index}-") for index, run in enumerate(runs, 1)]
    sections = told[0]
    if len(runs) > 1:
        # A section for each run, its chapters below headings.
        sections = [("Side by side", _together(runs, labels))]
        for label, chapters_of_run in zip(labels, told, strict=True):
            below = [part for name, parts in chapters_of_run for part in (heading(name), *parts)]
            sections.append((label, below))
    drawings = [part for _, parts in sections for part in parts if isinstance(part, Drawing)]
    try:
        _refuse_foreign([output, *_beside(output, drawings)])
        rendered = {drawing.name: render(drawing) for drawing in drawings}
        shown = [
            Section(f"part-{index}", title, [_markup(part, rendered, output.stem) for part in parts])
            for index, (title, parts) in enumerate(sections, 1)
        ]
        output.parent.mkdir(parents=True, exist_ok=True)
        for drawn in rendered.values():
            for name, content in drawn.files(output.stem).items():
                write_atomic(output.with_name(name), content)
        title = f"Report: {', '.join(run.name for run in runs)}"
        write_atomic(output, page(title, _lead(runs), shown))
    except OSError as error:
        raise RunError(f"cannot write {output}: {error.strerror or error}") from error
    return Report(output, tuple(_beside(output, drawings)))


def _beside(output: Path, drawings: Sequence[Drawing]) -> list[Path]:
    return [output.with_name(name) for drawing in drawings for name in file_names(drawing, output.stem)]


def _refuse_foreign(paths: Sequence[Path]) -> None:
    """Every name is looked at before anything is written."""
    for path in paths:
        if path.exists() and not (path.is_file() and GENERATOR.encode() in path.read_bytes()):
            raise RunError(f"{path} was not written by this command: choose another --output")


def _told(run: FinishedRun, prefix: str) -> list[tuple[str, list[Part]]]:
    try:
        return chapters(run, prefix)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run.folder} is damaged: {one_line(error)}") from error


def _lead(runs: Sequence[FinishedRun]) -> str:
    supernets = dict.fromkeys(run.supernet.name for run in runs)
    searches = "one search" if len(runs) == 1 else f"{len(runs)} searches"
    return (
        f"Of {searches} of {', '.join(supernets)}. Costs are shares of the full model's multiply-accumulates."
    )


def _markup(part: Part, rendered: Mapping[str, Rendered], stem: str) -> Markup:
    return inline(rendered[part.name], stem) if isinstance(part, Drawing) else part


def _together(runs: Sequence[FinishedRun], labels: Sequence[str]) -> list[Part]:
    lines = [
        Line(plain(label), run.front, run.trials.iloc[0]) for run, label in zip(runs, labels, strict=True)
    ]
    parts: list[Part] = [
        Drawing(
            "overlay",
            draw_overlay(lines),
            f"The frontiers of {', '.join(labels)} in one figure. The tables of each run have the numbers.",
            "Frontiers on rows that chose nothing, where a run has such; bars: 95% intervals of the "
            "difference to the full model (star). Runs on other rows have a panel of their own.",
        )
    ]
    by_line = dict(zip(map(id, lines), zip(runs, labels, strict=True), strict=True))
    for (metric, split, examples), own in panels_of(lines).items():
        areas, low, high = common_areas(own)
        rows = [_row(*by_line[id(line)], line, area) for line, area in zip(own, areas, strict=True)]
        over = f"costs of {low / 1e6:.4g} to {high / 1e6:.4g} million MACs per example"
        caption = f"{metric} on {examples} {split} examples; area: mean score over {over}"
        heads = [
            "run",
            "supernet",
            "strategy",
            "trials",
            "full model",
            "area",
            "own area",
            "gains over controls",
        ]
        parts.append(table(caption, heads, rows, [1, 2, 7]))
    note = (
        "Own area: over the run's own range of costs, which its controls share; gains are of that one, with "
        "95% intervals. Areas can be compared where they are of the same range and rows."
    )
    return [*parts, paragraphs([note])]


def _row(run: FinishedRun, label: str, line: Line, area: float) -> list[str]:
    held = run.fields.get("held_out") or {}
    gains = [
        f"{name} {gain['mean']:+.4f} ({gain['low']:+.4f} to {gain['high']:+.4f})"
        for name, gain in (held.get("gains") or {}).items()
    ]
    return [
        label,
        run.supernet.name,
        str(run.fields["identity"].get("strategy")),
        str(run.fields["trials"]),
        f"{line.full_score:.4f}",
        number(area),
        number(held.get("area", math.nan)),
        "; ".join(gains) or "none",
    ]
