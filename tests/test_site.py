"""The documentation site: it builds strictly, its options are the code's, and it needs no network."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

import ldsearch
from ldsearch.options import VERBS, flag_of

ROOT = Path(__file__).parent.parent
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Fetches(HTMLParser):
    """What a browser loads when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.urls.append(given.get("href") or "")
        self.urls.append(given.get(FETCHED.get(tag, ""), "") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_the_navigation_and_holds_something(site: Path) -> None:
    # --strict fails for a page that the navigation lacks, and for a link or an anchor that leads nowhere.
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")}
    results = {path.relative_to(ROOT).parent / "index.html" for path in ROOT.glob("results/**/README.md")}
    assert len(pages) > 20
    for page in pages | results:
        text = (site / page).read_text(encoding="utf-8")
        assert len(re.sub(r"<[^>]+>", "", text.split("<article")[1])) > 500, page


@pytest.mark.slow
def test_the_page_of_options_has_every_option_with_its_help(site: Path) -> None:
    text = (site / "reference" / "options.html").read_text(encoding="utf-8")
    sections = dict(re.findall(r'<h2 id="([\w-]+)">(.*?)(?=<h2 |</article>)', text, re.DOTALL))
    for verb, options in VERBS.items():
        rows = re.findall(r"<tr>\s*<td><code>([^<]+)</code></td>", sections[verb])
        given = [field for field in fields(options) if field.metadata]
        assert sorted(rows) == sorted(field.metadata["argument"] or flag_of(field.name) for field in given)


@pytest.mark.slow
def test_a_long_command_is_folded_as_a_shell_continues_it(site: Path) -> None:
    source = (ROOT / "docs" / "howto" / "classifier.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ldsearch .*--sandwich taught.*$", source, re.MULTILINE)
    page = re.sub(r"<[^>]+>", "", (site / "howto" / "classifier.html").read_text(encoding="utf-8"))
    (shown,) = re.findall(r"^ldsearch train(?:.*\\\n)+.*$", page, re.MULTILINE)[1:]
    assert max(map(len, shown.split("\n"))) < 80
    assert shlex.split(shown.replace("\\\n", " ")) == shlex.split(command)


@pytest.mark.slow
def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 30
    for page in pages:
        parser = Fetches()
        parser.feed(page.read_text(encoding="utf-8"))
        assert any(parser.urls)
        assert not [url for url in parser.urls if "//" in url], page
    assert "url(http" not in "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))


def test_the_version_to_cite_is_the_librarys():
    cited = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == [ldsearch.__version__]
