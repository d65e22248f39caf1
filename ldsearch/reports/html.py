"""Pieces of a self-contained HTML page: what is only text is escaped where it becomes a piece."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

# Marks the files that may be replaced.
GENERATOR = "ldsearch report"

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --page: #fff; --soft: #5a6068; --line: #d5d9de;
  --band: #f4f6f8; --link: #0b57d0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --page: #16181c; --soft: #a4abb4; --line: #3a3f46; --band: #1f2227;
    --link: #8ab4f8; }
  .plot svg { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 66rem; color: var(--ink);
  background: var(--page); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.08rem; margin: 2rem 0 .5rem; }
a { color: var(--link); }
nav ul { padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: .2rem 1rem; margin: .75rem 0; }
dt { color: var(--soft); }
dd { margin: 0; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  overflow-wrap: normal; white-space: nowrap; }
th:first-child, th.text, td.text { text-align: left; }
td.text { white-space: normal; }
td.text:last-child { min-width: 11rem; }
thead th { background: var(--band); }
tbody th { font-weight: normal; }
tr.chosen > * { font-weight: 700; }
figure { margin: 1rem 0; }
.plot { overflow-x: auto; }
.plot svg { max-width: 100%; min-width: 20rem; height: auto; }
figcaption { font-size: .9rem; color: var(--soft); max-width: 46rem; }
pre { background: var(--band); border: 1px solid var(--line); padding: .75rem; overflow-x: auto;
  font-size: .85rem; }
@media (max-width: 36rem) { dl { display: block; } dd { margin: 0 0 .5rem; } }
@media print {
  :root { --ink: #000; --page: #fff; --soft: #444; --line: #bbb; --band: #fff; --link: #000; }
  .plot svg { filter: none; mix-blend-mode: normal; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  .scroll, .plot { overflow: visible; }
  pre, td, th { white-space: pre-wrap; }
  figure, tr, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""


@dataclass(frozen=True)
class Markup:
    """HTML that is safe as it stands; anything that is only ``str`` still has to be escaped."""

    text: str


@dataclass(frozen=True)
class Section:
    """A chapter of the page.

    Args:
        anchor: Its id on the page, of letters, digits and hyphens.
        title: Its heading.
        body: What it holds.
    """

    anchor: str
    title: str
    body: Sequence[Markup]


def heading(text: str) -> Markup:
    """Of a part of a section."""
    return Markup(f"<h3>{escape(text)}</h3>")


def paragraphs(texts: Sequence[str]) -> Markup:
    """One for each text."""
    return Markup("\n".join(f"<p>{escape(text)}</p>" for text in texts))


def bullets(texts: Sequence[str]) -> Markup:
    """A list; nothing where there are no texts."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return Markup(f"<ul>{items}</ul>" if items else "")


def code(lines: Sequence[str]) -> Markup:
    """Commands, one to a line."""
    return Markup(f"<pre><code>{escape(chr(10).join(lines))}</code></pre>")


def definitions(facts: Mapping[str, str]) -> Markup:
    """Label and text, side by side."""
    pairs = (f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in facts.items())
    return Markup(f"<dl>\n{chr(10).join(pairs)}\n</dl>")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[int] = (),
    chosen: int | None = None,
) -> Markup:
    """A table whose first column names its rows; it scrolls by itself in a narrow window.

    Args:
        caption: Above it.
        heads: One for each column.
        rows: As many cells each.
        words: Columns that hold words, not numbers.
        chosen: A row that stands out.

    Raises:
        ValueError: If a row has another number of cells.
    """

    def named(index: int) -> str:
        return ' class="text"' if index in words else ""

    head = "".join(f'<th scope="col"{named(i)}>{escape(text)}</th>' for i, text in enumerate(heads))
    lines = []
    for number, row in enumerate(rows):
        if len(row) != len(heads):
            raise ValueError(f"a row of {len(row)} cells below {len(heads)} headings")
        first, *others = row
        cells = "".join(f"<td{named(i)}>{escape(text)}</td>" for i, text in enumerate(others, 1))
        mark = ' class="chosen"' if number == chosen else ""
        lines.append(f'<tr{mark}><th scope="row">{escape(first)}</th>{cells}</tr>')
    label = escape(caption)
    return Markup(
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table>\n'
        f"<caption>{label}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{chr(10).join(lines)}\n</tbody></table></div>"
    )


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole document: no script, nothing loaded from anywhere."""
    links = "".join(f'<li><a href="#{escape(s.anchor)}">{escape(s.title)}</a></li>' for s in sections)
    body = "\n".join(_section(section) for section in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{GENERATOR}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{escape(title)}</h1>\n<p>{escape(lead)}</p>\n"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n</header>\n'
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    body = "\n".join(part.text for part in section.body)
    anchor = escape(section.anchor)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">\n'
        f'<h2 id="{anchor}-title">{escape(section.title)}</h2>\n{body}\n</section>'
    )
