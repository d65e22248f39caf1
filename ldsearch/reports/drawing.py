"""Figures for a page: as SVG and PNG files, and as SVG inside the page, with a text that stands for them."""

import io
import re
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from matplotlib import rc_context
from matplotlib.figure import Figure

from ldsearch.reports.html import GENERATOR, Markup


@dataclass(frozen=True)
class Drawing:
    """A figure of a page.

    Args:
        name: Of its files, without a suffix; distinct on a page, of letters, digits and hyphens.
        figure: What is drawn.
        alt: What it shows, for whoever does not see it.
        caption: Below it.
    """

    name: str
    figure: Figure
    alt: str
    caption: str


def plain(text: str) -> str:
    """A name as Matplotlib is to write it: not as mathematics."""
    return text.replace("$", r"\$")


@dataclass(frozen=True)
class Rendered:
    """A drawing as files; the same drawing gives the same files.

    Args:
        drawing: What was drawn.
        svg: Without a date.
        png: As run folders have them.
    """

    drawing: Drawing
    svg: bytes
    png: bytes

    def files(self, stem: str) -> dict[str, bytes]:
        """Names to contents."""
        return dict(zip(file_names(self.drawing, stem), (self.svg, self.png), strict=True))


def file_names(drawing: Drawing, stem: str) -> tuple[str, str]:
    """Of the SVG and the PNG file beside a page of that stem."""
    return f"{stem}-{drawing.name}.svg", f"{stem}-{drawing.name}.png"


def render(drawing: Drawing) -> Rendered:
    """Draw it, in one layout for both files."""
    svg, png = io.BytesIO(), io.BytesIO()
    # Text stays text: it can be searched, and is read with the reader's fonts.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": drawing.name}):
        drawing.figure.savefig(svg, format="svg", metadata={"Creator": GENERATOR, "Date": None})
    drawing.figure.set_layout_engine("none")
    drawing.figure.savefig(png, format="png", dpi=130, metadata={"Software": GENERATOR})
    return Rendered(drawing, svg.getvalue(), png.getvalue())


def inline(rendered: Rendered, stem: str) -> Markup:
    """The figure inside a page, with its caption and links to the files of ``file_names``."""
    drawing, svg = rendered.drawing, rendered.svg.decode()
    svg = svg[svg.index("<svg") :]
    # Another figure of the page has the same ids.
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{drawing.name}-", svg)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(drawing.alt)}"', 1)
    links = ", ".join(
        f'<a href="{escape(quote(name))}">{kind}</a>'
        for name, kind in zip(file_names(drawing, stem), ("SVG", "PNG"), strict=True)
    )
    return Markup(
        f'<figure><div class="plot">{svg}</div>\n'
        f"<figcaption>{escape(drawing.caption)} {links}</figcaption></figure>"
    )
