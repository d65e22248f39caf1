"""Pages: all text is escaped, every tag is closed, every figure and table can be read without seeing it."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ldsearch.errors import RunError
from ldsearch.reports.figures import plain
from ldsearch.reports.page import GENERATOR, Drawing, write_page

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


@cache
def drawing(name: str, text: str = "cost") -> Drawing:
    figure = Figure(figsize=(2, 2))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], "o", label=text, clip_on=True)
    axes.set_xlabel(text)
    axes.legend()
    return Drawing(name, figure)


TEXTS = ("label", "folder", "supernet", "supernet_name", "cost", "metric", "search_split", "split", "timed")
LISTS = ("held_out_words", "commands", "command_notes", "front_heads", "count_heads")
TABLES = ("front", "areas", "counts", "latency")
FACTS = ("head", "supernet_facts", "costs", "health")


def run(index: int, text: str, **variables: Any) -> dict[str, Any]:
    """The template's variables of a run; every text is the variable's name and ``text``."""
    figures = ("searched", "held_out", "convergence", "kept", "health", "importance-0")
    loss = dict.fromkeys(("folder", "stack", "metric", "examples", "split"), f"importance {text}")
    return {
        **{name: f"{name} {text}" for name in TEXTS},
        **{name: [f"{name} {text}"] for name in LISTS},
        **{name: [[f"{name} {text}"] * 8] * 2 for name in TABLES},
        **{name: {text: f"{name} {text}", "sub-networks": 3} for name in FACTS},
        "importance": [{**loss, "drawing": "importance-0", "rows": [[f"importance {text}"] * 5]}],
        "trials": 30,
        "held_out": True,
        "structured": True,
        "chosen": 1,
        "drawings": {name: drawing(f"{index}-{name}", text) for name in figures},
        **variables,
    }


def written(tmp_path: Path, runs: list[dict[str, Any]], title: str = "title") -> tuple[Reader, set[str]]:
    """The page and the names of the figures' files."""
    context: dict[str, Any] = {"title": title, "runs": runs, "overlay": None, "groups": []}
    drawings = [drawing for run in runs for drawing in run["drawings"].values() if drawing]
    if len(runs) > 1:
        context["overlay"] = drawing("overlay")
        group = dict.fromkeys(("metric", "split", "examples", "low", "high"), title)
        context["groups"] = [{**group, "rows": [[title] * 8]}]
        drawings.append(context["overlay"])
    files = write_page(tmp_path / "a b.html", drawings, context)
    assert all(path.is_file() for path in files)
    text = (tmp_path / "a b.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    return Reader(text), {path.name for path in files}


@pytest.mark.parametrize("count", [1, 2])
def test_all_text_is_escaped(tmp_path: Path, count: int) -> None:
    read, _ = written(tmp_path, [run(index, BAD) for index in range(count)], BAD)
    assert not {"script", "b"} & {tag for tag, _ in read.tags}
    shown = read.text + "".join(str(attributes.get("aria-label")) for _, attributes in read.tags)
    names = {*TEXTS, *LISTS, *TABLES, *FACTS} - {"folder", "supernet", "label" if count == 1 else ""}
    assert not [name for name in names if f"{name} {BAD}" not in shown]


def test_a_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    read, files = written(tmp_path, [run(1, "x"), run(2, "y")])
    assert {"name": "generator", "content": GENERATOR} in read.named("meta")
    sections = [str(section["id"]) for section in read.named("section")]
    assert len(sections) == 3  # side by side, and one for each run
    hrefs = {str(link["href"]).replace("%20", " ") for link in read.named("a")}
    assert hrefs == {f"#{section}" for section in sections} | files
    sources = [own.get("src", own.get("href")) for _, own in read.tags]
    assert not [source for source in sources if str(source).startswith("http")]
    (style,) = [part for part in read.text.split("</style>") if "color-scheme" in part]
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 36rem"):
        assert query in style


def test_chapters_without_content_say_so_or_are_left_out(tmp_path: Path) -> None:
    def lines(**variables: Any) -> list[str]:
        read, _ = written(tmp_path, [run(1, BAD, **variables)])
        return read.text.splitlines()

    optional = {"Latency", "Importance of blocks"}
    assert optional <= {*lines()}
    drawings = {**run(1, "x")["drawings"], "held_out": None, "convergence": None}
    gone = {"latency": [], "importance": [], "health": None, "supernet_facts": None, "held_out": False}
    left = lines(**gone, drawings=drawings)
    assert not optional & {*left}
    assert any(f"ldsearch report folder {BAD} --health" in line for line in left)
    for start in ("No health run", f"The supernet is not at supernet {BAD}", "There were no", "Nothing was"):
        assert any(line.startswith(start) for line in left), start


def test_a_table_has_heads_for_rows_and_columns(tmp_path: Path) -> None:
    heads = ["score", "sub-network"]
    read, _ = written(
        tmp_path, [run(1, "x", front_heads=heads, front=[["0.1", "a"], ["0.2", "b"]], chosen=1)]
    )
    scopes = [own["scope"] for own in read.named("th")]
    assert scopes[:4] == ["col", "col", "row", "row"]
    assert [own.get("class") for own in read.named("th")][:2] == [None, "text"]
    assert [own.get("class") for own in read.named("tr")][:3] == [None, None, "chosen"]
    assert all(own["aria-label"] for own in read.named("div") if own["class"] == "scroll")


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


def test_the_same_figure_is_the_same_file_and_says_what_wrote_it() -> None:
    first, second = (drawing.__wrapped__("one").contents for _ in range(2))
    assert first == second
    assert all(GENERATOR.encode() in content for content in first.values())


def test_its_own_files_are_replaced_and_no_others(tmp_path: Path) -> None:
    _, files = written(tmp_path, [run(1, "x")])
    written(tmp_path, [run(1, "y")])
    for name in ("a b.html", sorted(files)[-1]):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"mine")
        others = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(RunError, match=name):
            written(tmp_path, [run(1, "z")])
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == others
        (tmp_path / name).write_bytes(kept)


def test_a_name_is_not_mathematics() -> None:
    assert "a$_b$ run" in drawing("one", plain("a$_b$ run")).contents["svg"].decode()
