"""The documentation site's hooks (mkdocs.yml): tables of options, pages of results, links out of docs/.

The tables are made of the dataclasses that the command line is made of, so that there is one source. Pages
and figures of results/ become part of the site; a link to any other file goes to the repository.
"""

import dataclasses
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the options of this checkout, not of an installed ldsearch

from ldsearch.options import VERBS, flag_of, panel_of  # noqa: E402

OPTIONS_HERE = "<!-- options -->"
COMMANDS = re.compile(r"(?<=^```\n)ldsearch .*?(?=^```$)", re.DOTALL | re.MULTILINE)
WIDTH = 76  # characters of a command that fit beside the navigation
INTERVAL = re.compile(r"(?<=\d) (?=\([+-]?\d)|(?<=\d) (?=to [+-]?\d)|(?<=\d to) (?=[+-]?\d)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what results/ shows: its pages, figures and tables."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.name == "README.md" or path.suffix in {".png", ".svg", ".csv", ".json"}:
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the tables of options; links to files outside docs/ become links of the site."""
    here = page.file.src_uri
    disk = here if here.startswith("results/") else f"docs/{here}"

    def moved(match: re.Match[str]) -> str:
        target, hash_, anchor = match[1].partition("#")
        if not target or "://" in target:
            return match[0]
        name = posixpath.normpath(posixpath.join(posixpath.dirname(disk), target))
        inside = name.removeprefix("docs/")
        if files.get_file_from_path(inside):
            return f"]({posixpath.relpath(inside, posixpath.dirname(here) or '.')}{hash_}{anchor})"
        if (ROOT / name).exists():
            return f"]({config.extra['repository']}/blob/main/{name}{hash_}{anchor})"
        return match[0]  # mkdocs names it

    filled = re.sub(r"\]\(([^)\s]+)\)", moved, markdown.replace(OPTIONS_HERE, options_page()))
    filled = COMMANDS.sub(lambda block: "\n".join(map(folded, block[0].split("\n"))), filled)
    # In a table an interval stays on one line.
    lines = [INTERVAL.sub("\u00a0", line) if line[:1] == "|" else line for line in filled.split("\n")]
    return "\n".join(lines)


def folded(command: str) -> str:
    """A long command on several lines, broken before flags as a shell continues them."""
    first, *flags = re.split(r" (?=--)", command)
    lines = [first]
    for flag in flags:
        if len(lines[-1]) + len(flag) < WIDTH:
            lines[-1] += f" {flag}"
        else:
            lines.append(f"  {flag}")
    return " \\\n".join(lines)


def options_page() -> str:
    """Every option of every verb, as Markdown: a section a verb, a table a panel of ``--help``."""
    return "\n".join(line for verb, options in VERBS.items() for line in _section(verb, options))


def _section(verb: str, options: type[Any]) -> Iterator[str]:
    words = [field.metadata["argument"] for field in dataclasses.fields(options) if _is_argument(field)]
    yield f"\n## {verb}\n"
    yield f"`{' '.join(['ldsearch', verb, *words, '[OPTIONS]'])}`\n"
    yield from (line.strip() for line in (options.__doc__ or "").split("**Examples**")[0].splitlines())
    panels: dict[str, list[dataclasses.Field[Any]]] = {}
    for field in dataclasses.fields(options):
        if field.metadata:
            panels.setdefault(panel_of(options, field.name) or "", []).append(field)
    for panel, members in sorted(panels.items()):
        yield f"\n**{panel or 'General'}**\n" if len(panels) > 1 else ""
        yield "| option | default | |"
        yield "|---|---|---|"
        yield from map(_row, members)


def _row(field: "dataclasses.Field[Any]") -> str:
    given = field.metadata["argument"] or f"{flag_of(field.name)}"
    help_ = field.metadata["help"].replace("|", "\\|").replace("<", "&lt;")
    return f"| `{given}` | {_default(field)} | {help_} |"


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.metadata["shown"] is not None:
        return str(field.metadata["shown"]).replace("<", "&lt;")
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is True or field.default is False:
        return "on" if field.default else "off"
    return "" if field.default is None or field.default == () else f"`{field.default}`"


def _is_argument(field: "dataclasses.Field[Any]") -> bool:
    return bool(field.metadata and field.metadata["argument"])
