"""The embedded default: the data that come with the package, and how a hand-made library is read."""

import gzip
import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ldsearch.errors import DataError
from ldsearch.tasks import corpus

ROOT = Path(__file__).parents[2]

SOURCE = '''"""Module docstrings of at least six words count."""
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
DOCSTRINGS = [
    "Module docstrings of at least six words count.",
    "Reads one file after the other, across several lines and spaces.",
    "Fetches a page, waits for it, returns its text.",
    "An inner function is a function like any other one.",
    "one two three four five six",
]


def docstring(library: str, file: int) -> str:
    """Six words of letters that no other file has: numbers do not count as words."""
    numbers = hashlib.sha256(f"{library} {file}".encode()).hexdigest()
    names = numbers.translate(str.maketrans("0123456789", "ghijklmnop"))
    return " ".join(names[i : i + 6] for i in range(0, 48, 6))


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    """scripts/docstrings.py."""
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "scripts" / "docstrings.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: ModuleType) -> Path:
    """Two libraries of 60 files with one docstring each."""
    for library in ("alpha", "beta"):
        for file in range(60):
            path = tmp_path / "libraries" / library / f"part{file % 5}" / f"file{file}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'"""{docstring(library, file)}"""\n')
    monkeypatch.setattr(reader, "root_of", lambda library: tmp_path / "libraries" / library)
    return tmp_path / "libraries"


def splits(reader: ModuleType) -> dict[str, str]:
    """The split of each text of both libraries."""
    rows = [row for label, name in enumerate(("alpha", "beta")) for row in reader.read_library(name, label)]
    return {row["text"]: row["split"] for row in reader.without_near_duplicates(rows)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SOURCE.encode(), DOCSTRINGS),
        (f'"""{"word " * 400}"""'.encode(), ["word " * 120]),  # cut to 600 characters
        # An invalid escape warns nobody.
        (b'"""Six words before the bad escape."""\nPATTERN = "\\d"\n', ["Six words before the bad escape."]),
        (b"def broken(:\n", []),
        (b'"""\xff\xfe not utf-8 at all, whatever it says"""', []),
        (b"a = 1\x00", []),
        (b"", []),
    ],
)
def test_docstrings_of_modules_classes_and_functions_are_read_and_nothing_else(
    tmp_path: Path, reader: ModuleType, content: bytes, expected: list[str]
) -> None:
    (tmp_path / "source.py").write_bytes(content)
    assert sorted(reader.docstrings(tmp_path / "source.py")) == sorted(expected)


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["a b c d e f g", "A b, c d! E f g."], 1),
        # Spans of five words: of the second text's two one is known, which is half; of three, less.
        (["a b c d e f", "b c d e f g"], 1),
        (["a b c d e f", "b c d e f g h"], 2),
        (["a b c d x y", "a b c d z w"], 2),  # four equal words in a row are no span
        # The third shares a span with the second only, which was dropped: it counts too.
        (["a b c d e f", "b c d e f g", "c d e f g h"], 1),
        (["a b c d e f", "c d e f g h"], 2),
    ],
)
def test_a_text_half_of_whose_spans_stood_before_is_dropped(
    reader: ModuleType, texts: list[str], kept: int
) -> None:
    given = [corpus.Row(text=text, label=label, split="train") for label, text in enumerate(texts)]
    assert [row["text"] for row in reader.without_near_duplicates(given)] == texts[:kept]


def test_a_file_keeps_its_split_when_others_come_and_go(reader: ModuleType, libraries: Path) -> None:
    before = splits(reader)
    for file in range(0, 60, 2):
        next(libraries.glob(f"alpha/*/file{file}.py")).unlink()
    after = splits(reader)
    assert len(after) == 90
    assert after.items() <= before.items()


def test_tests_and_borrowed_code_are_not_read(reader: ModuleType, libraries: Path) -> None:
    for folder in ("tests", "test", "testing", "site-packages", "_vendor"):
        path = libraries / "alpha" / "deep" / folder / "file.py"
        path.parent.mkdir(parents=True)
        path.write_text('"""Six words that must never be read."""')
    assert len(splits(reader)) == 120


def test_a_file_and_a_library_give_no_more_than_their_share(
    reader: ModuleType, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PER_LIBRARY", 25)
    monkeypatch.setattr(reader, "PER_FILE", 1)
    for path in libraries.glob("alpha/*/*.py"):
        path.write_text(path.read_text() + 'def f():\n    """Six other words of this file."""\n')
    found = splits(reader)
    assert len(found) == 50
    assert "Six other words of this file." not in found


def test_what_the_package_carries_is_small_licensed_and_what_its_pages_say() -> None:
    task = corpus.load_docstrings()
    sizes = {name: len(rows) for name, rows in task.splits.items()}
    assert sizes == {"train": 13_654, "search": 1_761, "report": 1_818}
    assert task.labels == corpus.LIBRARIES
    texts = [text for rows in task.splits.values() for text in rows.texts]
    assert len(set(texts)) == len(texts)
    assert {label for rows in task.splits.values() for label in rows.labels} == set(range(10))
    assert corpus.SNAPSHOT.stat().st_size < 2_000_000
    licences = corpus.LICENCES.read_text()
    assert all(f"\n{library} " in licences for library in corpus.LIBRARIES)
    assert licences.count("opyright") >= len(corpus.LIBRARIES)


@pytest.mark.parametrize("damage", ["gone", "cut", "other", "text"])
def test_data_that_are_not_those_of_this_version_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    packed = corpus.SNAPSHOT.read_bytes()
    contents = {"cut": packed[:-100], "other": gzip.compress(b"{}\n"), "text": b"no gzip"}
    monkeypatch.setattr(corpus, "SNAPSHOT", tmp_path / "docstrings.jsonl.gz")
    if damage in contents:
        corpus.SNAPSHOT.write_bytes(contents[damage])
    with pytest.raises(DataError, match="install ldsearch again") as caught:
        corpus.load_docstrings()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("libraries")
def test_the_script_writes_what_the_package_reads(
    reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("alpha", "beta")
    made = {"SNAPSHOT": tmp_path / "made.jsonl.gz", "LICENCES": tmp_path / "made.txt", "LIBRARIES": names}
    for module in (reader, corpus):
        for name, value in made.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(reader, "version_of", lambda library: "1.0")
    monkeypatch.setattr(reader, "licence_of", lambda library: f"Copyright {library}")
    reader.main()
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["sha256"] == hashlib.sha256(gzip.decompress(corpus.SNAPSHOT.read_bytes())).hexdigest()
    monkeypatch.setattr(corpus, "SHA256", told["sha256"])
    task = corpus.load_docstrings()
    found = [row for rows in task.splits.values() for row in zip(rows.texts, rows.labels, strict=True)]
    assert len(found) == told["rows"] == 120
    assert dict(found) == {
        docstring(name, file): label for label, name in enumerate(names) for file in range(60)
    }
    assert len(task.splits["train"]) > 60
    assert min(map(len, task.splits.values())) > 0
    assert "Copyright beta" in corpus.LICENCES.read_text()
