"""The embedded default on a hand-made library: what is read, dropped, split and cached."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from ldsearch.errors import DataError
from ldsearch.tasks import TextClassification, corpus
from ldsearch.tasks.base import fingerprints_of

SOURCE = '''"""Module docstrings of at least six words count."""

import os

CONSTANT = """A string that is no docstring, however long it may be."""


class Reader:
    """Reads one file after the other,

    across   several lines and spaces.
    """

    def short(self):
        """Too short to count."""

    async def fetch(self):
        """Fetches a page, waits for it, returns its text."""
        def inner():
            """An inner function is a function like any other one."""

    def bare(self):
        return "A returned string that is no docstring at all."

    def exact(self):
        """one two three four five six"""
'''
DOCSTRINGS = {
    "Module docstrings of at least six words count.",
    "Reads one file after the other, across several lines and spaces.",
    "Fetches a page, waits for it, returns its text.",
    "An inner function is a function like any other one.",
    "one two three four five six",
}


def docstring(library: str, file: int) -> str:
    """Six words of letters that no other file has: numbers do not count as words."""
    names = (
        hashlib.sha256(f"{library} {file}".encode())
        .hexdigest()
        .translate(str.maketrans("0123456789", "ghijklmnop"))
    )
    return " ".join(names[i : i + 6] for i in range(0, 48, 6))


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two libraries of 60 files with one docstring each, and a cache of their own."""
    for library in ("alpha", "beta"):
        for file in range(60):
            path = tmp_path / "libraries" / library / f"part{file % 5}" / f"file{file}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'"""{docstring(library, file)}"""\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "LIBRARIES", ("alpha", "beta"))
    monkeypatch.setattr(corpus, "_root", lambda library: tmp_path / "libraries" / library)
    monkeypatch.setattr(corpus, "_version", lambda library: "1.0")
    return tmp_path / "libraries"


def texts(task: TextClassification) -> dict[str, str]:
    """Text to split."""
    return {text: split for split, examples in task.splits.items() for text in examples.texts}


def cached(place: Path) -> list[Path]:
    return sorted((place.parent / "cache" / "ldsearch").iterdir())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SOURCE.encode(), DOCSTRINGS),
        (f'"""{"word " * 400}"""'.encode(), {"word " * 120}),  # cut to 600 characters
        # An invalid escape warns nobody.
        (b'"""Six words before the bad escape."""\nPATTERN = "\\d"\n', {"Six words before the bad escape."}),
        (b"def broken(:\n", {}),
        (b'"""\xff\xfe not utf-8 at all, whatever it says"""', {}),
        (b"a = 1\x00", {}),
        (b"", {}),
    ],
)
def test_docstrings_of_modules_classes_and_functions_are_read_and_nothing_else(
    tmp_path: Path, content: bytes, expected: set[str]
) -> None:
    (tmp_path / "source.py").write_bytes(content)
    assert Counter(corpus._docstrings(tmp_path / "source.py")) == Counter(expected)


def kept(*rows: tuple[str, int]) -> list[str]:
    given = [corpus.Row(text=text, label=label, split="train") for text, label in rows]
    return [row["text"] for row in corpus._without_near_duplicates(given)]


def test_a_text_half_of_whose_spans_stood_before_is_dropped() -> None:
    assert kept(("a b c d e f g", 0), ("A b, c d! E f g.", 1)) == ["a b c d e f g"]
    # Spans of five words: the first text has abcde bcdef. Of two spans one is known: half, so it goes.
    assert kept(("a b c d e f", 0), ("b c d e f g", 0)) == ["a b c d e f"]
    # Of three spans one is known: less than half.
    assert kept(("a b c d e f", 0), ("b c d e f g h", 0)) == ["a b c d e f", "b c d e f g h"]
    # Four equal words in a row are no span.
    assert kept(("a b c d x y", 0), ("a b c d z w", 0)) == ["a b c d x y", "a b c d z w"]
    # Spans of dropped texts count too.
    first, second, third = "a b c d e f", "b c d e f g", "c d e f g h"
    # The third shares cdefg with the second only, which was dropped.
    assert kept((first, 0), (second, 0), (third, 0)) == [first]
    assert kept((first, 0), (third, 0)) == [first, third]


def test_every_text_keeps_its_library_and_lies_in_one_split(libraries: Path) -> None:
    task = corpus.load_docstrings()
    assert task.labels == ("alpha", "beta")
    found = {
        text: label
        for split in task.splits.values()
        for text, label in zip(split.texts, split.labels, strict=True)
    }
    assert found == {
        docstring(lib, i): label for label, lib in enumerate(("alpha", "beta")) for i in range(60)
    }
    assert sum(len(split) for split in task.splits.values()) == 120
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert set(sizes) == {"train", "search", "report"}
    assert sizes["train"] > 60
    assert min(sizes.values()) > 0


def test_a_file_keeps_its_split_when_others_come_and_go(libraries: Path) -> None:
    before = texts(corpus.load_docstrings())
    for path in cached(libraries):
        path.unlink()
    for file in range(0, 60, 2):
        next(libraries.glob(f"alpha/*/file{file}.py")).unlink()
    after = texts(corpus.load_docstrings())
    assert len(after) == 90
    assert all(before[text] == split for text, split in after.items())


def test_tests_and_borrowed_code_are_not_read(libraries: Path) -> None:
    for folder in ("tests", "test", "testing", "site-packages", "_vendor"):
        path = libraries / "alpha" / "deep" / folder / "file.py"
        path.parent.mkdir(parents=True)
        path.write_text('"""Six words that must never be read."""')
    assert "Six words that must never be read." not in texts(corpus.load_docstrings())


def test_a_file_and_a_library_give_no_more_than_their_share(
    libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "PER_LIBRARY", 25)
    monkeypatch.setattr(corpus, "PER_FILE", 1)
    for path in libraries.glob("alpha/*/*.py"):
        path.write_text(path.read_text() + 'def f():\n    """Six other words of this file."""\n')
    task = corpus.load_docstrings()
    labels = Counter(label for split in task.splits.values() for label in split.labels)
    assert labels == {0: 25, 1: 25}
    assert "Six other words of this file." not in texts(task)


def test_the_second_call_reads_the_cache_not_the_libraries(
    libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = corpus.load_docstrings()
    monkeypatch.setattr(corpus, "_root", lambda library: pytest.fail(f"{library} was read again"))
    second = corpus.load_docstrings()
    assert second == first
    assert fingerprints_of(second) == fingerprints_of(first)
    assert len(cached(libraries)) == 1
    rows = [json.loads(line) for line in cached(libraries)[0].read_text().splitlines()]
    assert len(rows) == 120


def test_another_version_of_a_library_is_read_anew(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = corpus.load_docstrings()
    next(libraries.glob("alpha/*/file7.py")).write_text('"""Seven quite new words for version two."""')
    assert fingerprints_of(corpus.load_docstrings()) == fingerprints_of(first)
    monkeypatch.setattr(corpus, "_version", lambda library: "2.0" if library == "alpha" else "1.0")
    assert "Seven quite new words for version two." in texts(corpus.load_docstrings())
    assert len(cached(libraries)) == 2


def test_an_interrupted_reading_leaves_no_cache(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(rows: list[corpus.Row]) -> list[corpus.Row]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_without_near_duplicates", interrupted)
        with pytest.raises(KeyboardInterrupt):
            corpus.load_docstrings()
    assert not list(libraries.parent.glob("cache/**/*.jsonl"))
    assert len(texts(corpus.load_docstrings())) == 120


def test_a_library_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "LIBRARIES", ("numpy", "no-such-library"))
    with pytest.raises(DataError, match="no-such-library: install it") as caught:
        corpus.load_docstrings()
    assert "\n" not in str(caught.value)


def test_every_library_of_the_default_is_installed_where_it_is_looked_for() -> None:
    for library in corpus.LIBRARIES:
        assert corpus._version(library)
        assert next(corpus._root(library).rglob("*.py"))
