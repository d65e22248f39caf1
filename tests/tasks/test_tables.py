"""Tables: every format gives the same rows; what cannot be read is one line."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from ldsearch.errors import DataError
from ldsearch.tasks.readers import read_file
from ldsearch.tasks.tables import DataSource, read_tables

# Each text is one that some reader would like to turn into something else.
TEXTS = ["NA", "null", "007", "1e5", "2020-01-31", "true", 'a "quoted", comma', " spaces ", "Grüße 漢字"]
LABELS = ("NA", "none", "nan")
ROWS = [{"text": text, "label": LABELS[index % 3]} for index, text in enumerate(TEXTS)]


def delimited(separator: str) -> Callable[[Sequence[dict[str, object]]], bytes]:
    def write(rows: Sequence[dict[str, object]]) -> bytes:
        file = io.StringIO()
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().encode()

    return write


def jsonl(rows: Sequence[dict[str, object]]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode() + b"\n\n"


def parquet(rows: Sequence[dict[str, object]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(list(rows)).to_parquet(file)
    return file.getvalue()


WRITERS = {"csv": delimited(","), "tsv": delimited("\t"), "jsonl": jsonl, "json": jsonl, "parquet": parquet}


def put(path: Path, rows: Sequence[dict[str, object]] = ROWS) -> Path:
    kind = next(kind for kind in reversed(path.name.split(".")) if kind in WRITERS)
    content = WRITERS[kind](rows)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "name",
    [
        *(f"reviews.{kind}" for kind in WRITERS),
        *(f"reviews.{kind}.gz" for kind in ("csv", "tsv", "jsonl", "json")),
        "reviews.2024.v1.csv",
        "json.reviews.csv",
    ],
)
def test_every_format_gives_the_rows_that_went_in(tmp_path: Path, name: str) -> None:
    table = read_file(put(tmp_path / name))
    assert list(table.columns) == ["text", "label"]
    assert table["label"].tolist() == [*LABELS] * 3
    assert table["text"].tolist() == TEXTS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset folder; what datasets caches stays out of the user's home."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "reviews").mkdir()
    return tmp_path / "reviews"


@pytest.mark.parametrize(
    ("suffix", "held"), [("jsonl.gz", "validation"), ("csv", "valid"), ("parquet", "dev-v1.1")]
)
def test_a_dataset_folder_is_split_by_the_names_of_its_files(
    folder: Path, suffix: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / f"train.{suffix}")
    put(folder / f"{held}.{suffix}", ROWS[3:5])
    put(folder / f"test.{suffix}", ROWS[5:6])
    monkeypatch.chdir(folder)
    for data in (str(folder), "."):
        tables = read_tables(DataSource(data))
        assert tables["train"]["text"].tolist() == TEXTS
        assert tables["search"]["text"].tolist() == TEXTS[3:5]
        assert tables["report"]["text"].tolist() == TEXTS[5:6]
    # A validation file goes before the folder's.
    tables = read_tables(DataSource(str(folder), validation=str(put(folder.parent / "held.csv", ROWS[:1]))))
    assert tables["search"]["text"].tolist() == ["NA"]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("validation.jsonl", "no train split, only validation"),
        (None, "cannot load the dataset"),
        ("readme.md", "cannot load the dataset"),
    ],
)
def test_a_folder_without_training_rows_is_refused(folder: Path, file: str | None, says: str) -> None:
    if file:
        (folder / file).write_bytes(jsonl(ROWS))
    with pytest.raises(DataError, match=says) as caught:
        read_tables(DataSource(str(folder)))
    one_line(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", None, "no data file"),
        ("a.csv.gz", None, "no data file"),
        ("a.csv", b"", "cannot read"),
        ("a.csv", b"text,label\n", "no rows"),
        ("a.tsv", b"text\tlabel\n", "no rows"),
        ("a.jsonl", b"", "no rows"),
        ("a.xlsx", b"words", "csv, tsv, jsonl, json, parquet, txt"),
        ("a", b"words", "unknown format"),
        ("a.gz", b"words", "unknown format"),
        ("a.csv", b"text,label\na,b\na,b,c,d\n", "cannot read"),
        ("a.csv", b'text,label\n"a,b\n', "cannot read"),
        ("a.csv", b"text,label\n\xff\xfe,b\n", "cannot read"),
        ("a.csv.gz", b"text,label\na,b\n", "cannot read"),
        ("a.csv.gz", gzip.compress(b"text,label\n" + bytes(range(256)) * 9, mtime=0)[:-200], "cannot read"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', "cannot read"),
        ("a.jsonl", b"words\n", "cannot read"),
        ("a.parquet", b"words", "cannot read"),
        ("a.parquet", b"", "cannot read"),
        ("a.txt", b"\n \n\n", "no rows"),
        ("a.txt", "größe".encode("latin-1"), "cannot read"),
        ("a.conll.gz", gzip.compress(b"a\n" * 99, mtime=0)[:-9], "cannot read"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_file(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_file(path)
    assert name in one_line(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "folder/a.parquet", "a.txt"])
def test_a_missing_file_is_not_looked_for_on_a_hub(name: str) -> None:
    with pytest.raises(DataError, match=f"no data file {name}"):
        read_tables(DataSource(name))


def test_the_training_file_is_no_validation_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,0\nb,1\n")
    with pytest.raises(DataError, match="is the training data"):
        read_tables(DataSource(str(path), validation=str(path)))
