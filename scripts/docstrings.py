"""Makes the embedded default's data anew: docstrings of the standard library and of installed packages.

    python scripts/docstrings.py

Reads the libraries that are installed (``constraints.txt`` names the versions), splits by file, drops
near-duplicates, and writes ``ldsearch/tasks/docstrings.jsonl.gz`` and the libraries' licences beside it; the
last line is one JSON object with the hash that ``ldsearch/tasks/corpus.py`` must name.
"""

import ast
import gzip
import hashlib
import importlib.util
import itertools
import json
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ldsearch.disk.files import write_together
from ldsearch.tasks.corpus import LIBRARIES, LICENCES, SNAPSHOT, Row

PER_LIBRARY = 3_000
PER_FILE = 12  # many files rather than long ones, or the splits by file would differ too much
_MIN_WORDS, _MAX_CHARACTERS = 6, 600
_SHINGLE = 5  # words
_SKIPPED_FOLDERS = {
    "tests",
    "test",
    "testing",
    "site-packages",
    "__pycache__",
    "_vendor",
    "idlelib",
    "lib2to3",
}
_SPLIT_OF_TENTH = {0: "search", 1: "report"}  # the other eight tenths of the files train


# Where the licences of older versions, and of what a library bundles and is not read, begin.
_OTHERS = re.compile(r"^(----|.* versions prior to |This binary distribution|.* bundles )", re.MULTILINE)


def root_of(library: str) -> Path:
    """Where its sources lie."""
    if library == "python":
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def read_library(library: str, label: int) -> Iterator[Row]:
    """Docstrings of a library, file by file in an order that depends on file names only."""
    root = root_of(library)
    files = [path.relative_to(root) for path in root.rglob("*.py")]
    usable = [file for file in files if not _SKIPPED_FOLDERS & set(file.parts)]
    by_hash = sorted((hashlib.sha256(file.as_posix().encode()).hexdigest(), file) for file in usable)
    count = 0
    for order, file in by_hash:
        split = _SPLIT_OF_TENTH.get(int(order, 16) % 10, "train")
        for text in itertools.islice(docstrings(root / file), PER_FILE):
            yield {"text": text, "label": label, "split": split}
            count += 1
            if count == PER_LIBRARY:
                return


def docstrings(path: Path) -> Iterator[str]:
    """Those of at least six words of a source file, cut, whitespace as single spaces."""
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # the latter for bytes that are no text, and for zero bytes
        return  # templates and deliberately broken files lie among sources
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = " ".join((ast.get_docstring(node) or "").split())[:_MAX_CHARACTERS]
            if len(text.split()) >= _MIN_WORDS:
                yield text


def without_near_duplicates(rows: list[Row]) -> Iterator[Row]:
    """Rows of which less than half of the five-word spans stood in a row before, in any library."""
    seen: set[int] = set()
    for row in rows:
        words = re.findall(r"[a-z]+", row["text"].lower())
        spans = {
            int.from_bytes(
                hashlib.blake2b(" ".join(words[i : i + _SHINGLE]).encode(), digest_size=8).digest()
            )
            for i in range(max(1, len(words) - _SHINGLE + 1))
        }
        if 2 * len(spans & seen) < len(spans):
            yield row
        seen |= spans


def licence_of(library: str) -> str:
    """The library's own licence, without those of what it bundles."""
    if library == "python":
        return (Path(sysconfig.get_path("stdlib")) / "LICENSE.txt").read_text(encoding="utf-8")
    files = metadata.files(library) or []
    names = [file for file in files if file.name.upper().startswith(("LICENSE", "LICENCE"))]
    text = Path(str(min(names, key=lambda file: len(file.parts)).locate())).read_text(encoding="utf-8")
    found = _OTHERS.search(text, 400)
    return text[: found.start()] if found else text


def version_of(library: str) -> str:
    """As installed."""
    return platform.python_version() if library == "python" else metadata.version(library)


def main() -> None:
    """Read, split, write."""
    read = [row for label, name in enumerate(LIBRARIES) for row in read_library(name, label)]
    lines = "".join(json.dumps(row) + "\n" for row in without_near_duplicates(read)).encode()
    versions = {library: version_of(library) for library in LIBRARIES}
    licences = ["docstrings.jsonl.gz holds docstrings of these libraries, each under its own licence."]
    for name, version in versions.items():
        licences += ["", "", f"{name} {version}", "=" * 40, "", licence_of(name).strip()]
    packed = gzip.compress(lines, mtime=0)
    write_together({SNAPSHOT: packed, LICENCES: "\n".join(licences) + "\n"})
    told = {"rows": lines.count(b"\n"), "bytes": len(packed), "sha256": hashlib.sha256(lines).hexdigest()}
    print(json.dumps({**told, "versions": versions}))


if __name__ == "__main__":
    main()
