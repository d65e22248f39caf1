"""Pages: all text is escaped, every tag is closed, every figure and table can be read without seeing it."""

from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from ldsearch.reports.drawing import Drawing, file_names, inline, plain, render
from ldsearch.reports.html import (
    GENERATOR,
    Markup,
    Section,
    bullets,
    code,
    definitions,
    heading,
    page,
    paragraphs,
    table,
)

BAD = '<script>alert("x")</script> & <b>'
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


def drawing(name: str, text: str = "cost") -> Drawing:
    figure = Figure(figsize=(2, 2))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], "o", label=text, clip_on=True)
    axes.set_xlabel(text)
    axes.legend()
    return Drawing(name, figure, f"alt {text}", f"caption {text}")


@pytest.mark.parametrize(
    "part",
    [
        heading(BAD),
        paragraphs([BAD]),
        bullets([BAD]),
        code([BAD]),
        definitions({BAD: BAD}),
        table(BAD, [BAD, BAD], [[BAD, BAD]], words=[1], chosen=0),
        inline(render(drawing("one", BAD)), BAD),
    ],
    ids=["heading", "paragraphs", "bullets", "code", "definitions", "table", "figure"],
)
def test_text_is_text_wherever_it_stands(part: Markup) -> None:
    read = Reader(part.text)
    assert {"script", "b"} & {tag for tag, _ in read.tags} == set()
    assert BAD in read.text


def test_a_page_is_whole_and_names_itself() -> None:
    sections = [Section("one", BAD, [paragraphs(["first"])]), Section("two", "Second", [bullets([])])]
    text = page(BAD, BAD, sections)
    read = Reader(text)
    assert text.startswith("<!DOCTYPE html>")
    assert not read.named("script")
    assert {"name": "generator", "content": GENERATOR} in read.named("meta")
    assert {attributes["href"] for attributes in read.named("a")} == {"#one", "#two"}
    assert [attributes["id"] for attributes in read.named("section")] == ["one", "two"]
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 36rem"):
        assert query in text


def test_a_table_has_heads_for_rows_and_columns() -> None:
    read = Reader(table("numbers", ["a", "b"], [["x", "1"], ["y", "2"]], chosen=1).text)
    assert [own["scope"] for own in read.named("th")] == ["col", "col", "row", "row"]
    assert [own.get("class") for own in read.named("tr")] == [None, None, "chosen"]
    with pytest.raises(ValueError, match="1 cells below 2"):
        table("numbers", ["a", "b"], [["x"]])


def test_figures_of_one_page_share_no_ids_and_point_at_their_own() -> None:
    read = Reader("".join(inline(render(drawing(name)), "page").text for name in ("one", "two")))
    ids = [str(own["id"]) for _, own in read.tags if "id" in own]
    assert len(ids) == len(set(ids)) > 10
    used = [str(own["xlink:href"])[1:] for own in read.named("use")]
    clips = [str(own["clip-path"])[5:-1] for _, own in read.tags if "clip-path" in own]
    assert used
    assert clips
    assert {*used, *clips} <= set(ids)
    assert [own["aria-label"] for own in read.named("svg")] == ["alt cost"] * 2
    files = [own["href"] for own in read.named("a")]
    assert files == ["page-one.svg", "page-one.png", "page-two.svg", "page-two.png"]


def test_the_same_figure_is_the_same_file_and_says_what_wrote_it() -> None:
    first, second = (render(drawing("one")).files("page") for _ in range(2))
    assert first == second
    assert tuple(first) == file_names(drawing("one"), "page") == ("page-one.svg", "page-one.png")
    assert all(GENERATOR.encode() in content for content in first.values())


def test_a_name_is_not_mathematics() -> None:
    svg = render(drawing("one", plain("a$_b$ run"))).svg.decode()
    assert "a$_b$ run" in svg
