"""The HTML page on finished runs: ``report.html.j2`` filled in, figures inside it and as files next to it."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from ldsearch.disk.files import write_together
from ldsearch.errors import RunError, of_system
from ldsearch.reports.style import BLUE, contents
from ldsearch.subnet import Subnet

# Marks the files that may be replaced.
GENERATOR = "ldsearch report"


@dataclass(frozen=True)
class Drawing:
    """A figure of a page.

    Args:
        name: Of its files, without a suffix; distinct on a page, of letters, digits and hyphens.
        figure: The figure.
    """

    name: str
    figure: Figure

    @cached_property
    def contents(self) -> dict[str, bytes]:
        """The figure as ``svg`` and ``png``: the same figure gives the same bytes."""
        return contents(self.figure, self.name, GENERATOR)

    def file(self, stem: str, kind: str) -> str:
        """Name of the ``svg`` or ``png`` file of a page with that stem."""
        return f"{stem}-{self.name}.{kind}"

    def inline(self, alt: str) -> Markup:
        """The figure as an SVG element, labelled for readers who do not see it."""
        svg = self.contents["svg"].decode()
        svg = svg[svg.index("<svg") :]
        # Another figure of the page has the same ids.
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", svg)
        return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1))


def number(value: float | None, otherwise: str = "none", digits: int = 4) -> str:
    """A number for a table; ``otherwise`` where there is none."""
    if value is None or math.isnan(value):
        return otherwise
    return f"{value:,.{digits}f}"


def write_page(output: Path, drawings: Sequence[Drawing], context: Mapping[str, Any]) -> tuple[Path, ...]:
    """Write the page and its figures; files that this function wrote before are replaced.

    Args:
        output: The HTML file; the names of the figures' files begin with its own.
        drawings: All figures of the page.
        context: Variables of the template; ``stem`` and ``generator`` are added.

    Returns:
        The figures' files.

    Raises:
        RunError: If a file of another kind is where one would be written.
        LdsearchError: If one cannot be written; then none is.
    """
    files = {
        output.with_name(drawing.file(output.stem, kind)): (drawing, kind)
        for drawing in drawings
        for kind in ("svg", "png")
    }
    environment = Environment(
        loader=PackageLoader("ldsearch", "reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters["number"] = number
    environment.globals.update(zip=zip, describe=lambda text: Subnet.from_json(text).describe())
    template = environment.get_template("report.html.j2")
    fresh = not output.parent.exists()
    try:
        for path in (output, *files):  # before anything is written
            if path.exists() and not (path.is_file() and GENERATOR.encode() in path.read_bytes()):
                raise RunError(f"{path} was not written by this command: choose another --output")
        page = template.render({**context, "stem": output.stem, "generator": GENERATOR, "blue": BLUE})
        output.parent.mkdir(parents=True, exist_ok=True)
        figures = {path: drawing.contents[kind] for path, (drawing, kind) in files.items()}
        write_together({**figures, output: page})
    except OSError as error:
        if fresh:
            with contextlib.suppress(OSError):  # there is none, or another's file in it
                output.parent.rmdir()
        raise of_system(f"cannot write {output}", error) from error
    return tuple(files)
