"""Figures of a page, and a reader of pages that fails where a tag is not closed."""

from functools import cache
from html.parser import HTMLParser

from matplotlib.figure import Figure

from ldsearch.reports.page import Drawing
from ldsearch.reports.style import plain

VOID = {"meta", "br", "link", "img"}


class Reader(HTMLParser):
    """Collects tags, attributes and text; fails where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@cache
def drawing(name: str, text: str = "cost") -> Drawing:
    figure = Figure(figsize=(2, 2))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], "o", label=text, clip_on=True)
    axes.set_xlabel(text)
    axes.legend()
    return Drawing(name, figure)


def test_figures_of_one_page_share_no_ids_and_point_at_their_own() -> None:
    read = Reader("".join(drawing(name).inline("alt cost") for name in ("one", "two")))
    ids = [str(own["id"]) for _, own in read.tags if "id" in own]
    assert len(ids) == len(set(ids)) > 10
    used = [str(own["xlink:href"])[1:] for own in read.named("use")]
    clips = [str(own["clip-path"])[5:-1] for _, own in read.tags if "clip-path" in own]
    assert used
    assert clips
    assert {*used, *clips} <= set(ids)
    assert [own["aria-label"] for own in read.named("svg")] == ["alt cost"] * 2


def test_a_name_is_not_mathematics() -> None:
    assert "a$_b$ run" in drawing("one", plain("a$_b$ run")).contents["svg"].decode()
