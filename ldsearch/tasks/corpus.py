"""The embedded default: "which library does this docstring belong to?", from what is installed.

Real text that every machine with ldsearch has: docstrings of the packages it depends on and of the
standard library, split by file, near-duplicates removed, cached per set of versions.
"""

import ast
import hashlib
import importlib.util
import itertools
import json
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from rich.progress import track

from ldsearch.errors import DataError
from ldsearch.files import write_atomic
from ldsearch.fingerprint import digest
from ldsearch.tasks.classification import TextClassification, TextExamples

NAME = "docstrings"
LIBRARIES = (
    "matplotlib",
    "networkx",
    "numpy",
    "pandas",
    "python",
    "scipy",
    "sqlalchemy",
    "sympy",
    "torch",
    "transformers",
)
PER_LIBRARY = 3_000
PER_FILE = 12  # many files rather than long ones, or the splits by file would differ too much
_RECIPE = 1  # raise it when the reading below changes, so that caches are made anew
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


class Row(TypedDict):
    """One docstring of the cache file."""

    text: str
    label: int
    split: str


def load_docstrings() -> TextClassification:
    """The embedded task, read from the cache or made (some 20 seconds).

    Raises:
        DataError: If one of the libraries is not installed.
    """
    path = _cache_path()
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"cannot write to {path.parent}: set XDG_CACHE_HOME to a folder you own"
            ) from error
        named = track(list(enumerate(LIBRARIES)), "reading docstrings (once)", transient=True)
        read = [row for label, name in named for row in _read_library(name, label)]
        kept = [json.dumps(row) for row in _without_near_duplicates(read)]
        write_atomic(path, "\n".join(kept) + "\n")
    rows: list[Row] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    splits = {}
    for split in ("train", "search", "report"):
        own = [row for row in rows if row["split"] == split]
        splits[split] = TextExamples(
            tuple(row["text"] for row in own), None, tuple(row["label"] for row in own)
        )
    return TextClassification({"data": NAME}, LIBRARIES, splits, "split by file, near-duplicates removed")


def _cache_path() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    recipe = (_RECIPE, PER_LIBRARY, PER_FILE, _MIN_WORDS, _MAX_CHARACTERS, _SHINGLE)
    versions = sorted((name, str(_version(name))) for name in LIBRARIES)
    return base / "ldsearch" / f"docstrings-{digest(map(str, recipe), versions)}.jsonl"


def _version(library: str) -> str:
    try:
        return platform.python_version() if library == "python" else metadata.version(library)
    except metadata.PackageNotFoundError:
        raise DataError(f"the embedded default reads the docstrings of {library}: install it") from None


def _root(library: str) -> Path:
    if library == "python":
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _read_library(library: str, label: int) -> Iterator[Row]:
    """Docstrings of a library, file by file in an order that depends on file names only."""
    root = _root(library)
    files = [path.relative_to(root) for path in root.rglob("*.py")]
    usable = [file for file in files if not _SKIPPED_FOLDERS & set(file.parts)]
    by_hash = sorted((hashlib.sha256(file.as_posix().encode()).hexdigest(), file) for file in usable)
    count = 0
    for order, file in by_hash:
        split = _SPLIT_OF_TENTH.get(int(order, 16) % 10, "train")
        for text in itertools.islice(_docstrings(root / file), PER_FILE):
            yield {"text": text, "label": label, "split": split}
            count += 1
            if count == PER_LIBRARY:
                return


def _docstrings(path: Path) -> Iterator[str]:
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


def _without_near_duplicates(rows: list[Row]) -> Iterator[Row]:
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
