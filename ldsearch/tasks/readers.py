"""Files as tables: csv, tsv, json, parquet and text, also in the layouts that known data sets come in.

GLUE's tsv files quote nothing, CoLA's has no header, SQuAD's json is nested. pandas does the reading
(compression by suffix).
"""

import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from csv import QUOTE_MINIMAL, QUOTE_NONE
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd

from ldsearch.errors import DataError, one_line

LINE = "text"  # the column of a text file's lines, as datasets names it
# Key of a table's ``attrs``: for each column that holds ids of classes the classes' names.
CLASSES = "classes"
_SEPARATORS = (",", "\t", ";", "|")
# CoLA as it is distributed: source, label, the linguist's star, sentence (Warstadt et al. 2019).
_COLA = ["source", "label", "star", "sentence"]


def kind_of(path: Path) -> str | None:
    """The format that a file's name says; None: none that is read here."""
    suffixes = [suffix.lstrip(".").lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix in READERS), None)


def read_file(path: Path) -> pd.DataFrame:
    """One csv, tsv, jsonl, json, parquet or text file, gz too; of text a row per line.

    Raises:
        DataError: If it is missing, of another format, unreadable or empty.
    """
    if not path.is_file():
        raise DataError(f"no data file {str(path)[:200]}")
    kind = kind_of(path)
    if kind is None:
        raise DataError(f"{path}: unknown format; use one of {', '.join(READERS)} (optionally .gz)")
    try:
        table = READERS[kind](path)
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    if table.empty:
        raise DataError(f"{path} has no rows")
    table.columns = table.columns.map(str)
    return table


def classes_of(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the classes of each column that holds ids, or lists of ids, by a data set's own features."""
    inner = {name: getattr(feature, "feature", feature) for name, feature in features.items()}
    return {name: list(own.names) for name, own in inner.items() if hasattr(own, "names")}


def _text_of(path: Path) -> str:
    """A file's text, line ends as they are: UTF-8, or UTF-16 if it begins with that one's mark.

    Raises:
        ValueError: If it is neither. No other encoding is guessed: of latin-1 and its kin any would fit.
    """
    with fsspec.open(str(path), "rb", compression="infer") as file:
        content: bytes = file.read()
    try:
        utf16 = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line} is not UTF-8; if it is latin-1 or Windows-1252: iconv -f WINDOWS-1252 -t UTF-8 "
            f"{path.name} > utf8-{path.name}"
        ) from error


def _read_delimited(usual: str) -> Callable[[Path], pd.DataFrame]:
    def read(path: Path) -> pd.DataFrame:
        text = _text_of(path)
        header = text.partition("\n")[0]
        separator = _separator(header, usual)
        quoted = separator != "\t" or '"' not in text or _is_quoted(text)
        cells = header.rstrip("\r").split(separator)
        cola = len(cells) == len(_COLA) and cells[1] in ("0", "1") and cells[2] in ("", "*")
        table = pd.read_csv(
            io.StringIO(text, newline=""),
            sep=separator,
            quoting=QUOTE_MINIMAL if quoted else QUOTE_NONE,
            # Text such as "NA" or "null" is text; as objects each cell exists once, here and in the examples.
            dtype=object,
            keep_default_na=False,
            header=None if cola else "infer",
            names=_COLA if cola else None,
        )
        if quoted and _swallows(table) and not _rows(separator).fullmatch(text.replace("\r\n", "\n")):
            raise ValueError(
                "a quotation mark that is not closed takes following lines into its cell; inside quoted "
                "cells it is written twice"
            )
        return table

    return read


def _separator(header: str, usual: str) -> str:
    """Delimiter of a file: the usual one, unless the header holds exactly one of the others instead."""
    found = [mark for mark in _SEPARATORS if mark in header]
    return found[0] if len(found) == 1 else usual


def _is_quoted(text: str) -> bool:
    """Whether quotation marks of a tsv file enclose cells; else, as in GLUE's files, they are characters."""
    text = text.replace("\r\n", "\n")
    row = _rows("\t")
    if not row.fullmatch(text):
        return False
    lines = [line for line in text.split("\n") if line]
    # By chance a mark in one row and one in another may enclose what is between; tabs tell.
    tabs = {line.count("\t") for line in lines}
    return all(map(row.fullmatch, lines)) or len(tabs) > 1 or tabs == {0}


def _rows(separator: str) -> re.Pattern[str]:
    """Rows whose cells are quoted as csv has it (RFC 4180), or hold no quotation mark first."""
    mark = re.escape(separator)
    cell = rf'(?:"(?:[^"]|"")*+"|[^"\n{mark}][^\n{mark}]*+|)'
    return re.compile(rf"{cell}(?:[\n{mark}]{cell})*+")


def _swallows(table: pd.DataFrame) -> bool:
    """Whether a cell goes over several lines."""
    return any("\n" in cell for column in table for cell in table[column] if isinstance(cell, str))


def _read_json(path: Path) -> pd.DataFrame:
    """One object a line."""
    return _json_lines(_text_of(path))


def _json_lines(text: str) -> pd.DataFrame:
    return pd.read_json(io.StringIO(text), lines=True, dtype=False)


def _read_json_array(path: Path) -> pd.DataFrame:
    """One array of objects, also under a key ``data``; SQuAD's; or, as many call it json too, one a line."""
    text = _text_of(path)
    try:
        content = json.loads(text)
    except ValueError:
        return _json_lines(text)
    if isinstance(content, Mapping):
        rows: Any = content.get("data")
        if _are_objects(rows):
            return _squad(rows) if "paragraphs" in rows[0] else pd.DataFrame(rows)
        if content and all(map(_are_objects, content.values())):
            raise ValueError(
                f"it holds several tables, {', '.join(content)}: write each to a file of its own"
            )
    return pd.read_json(io.StringIO(text), dtype=False)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _squad(articles: list[dict[str, Any]]) -> pd.DataFrame:
    """SQuAD's articles (Rajpurkar et al. 2016), a row per question, in the columns that the Hub has."""
    rows = pd.json_normalize(articles, ["paragraphs", "qas"], [["paragraphs", "context"]])
    rows = rows.rename(columns={"paragraphs.context": "context"})
    fields = ("text", "answer_start")
    answers = [{field: [one[field] for one in own] for field in fields} for own in rows["answers"]]
    return rows.assign(answers=pd.Series(answers, dtype=object))


def _read_parquet(path: Path) -> pd.DataFrame:
    # Here, since they take a second to load.
    import pyarrow.parquet
    from datasets import Features

    table = pd.read_parquet(path)
    table.attrs[CLASSES] = classes_of(Features.from_arrow_schema(pyarrow.parquet.read_schema(path)))
    return table


def _read_lines(path: Path) -> pd.DataFrame:
    lines = [line.rstrip("\n") for line in io.StringIO(_text_of(path), newline=None)]
    return pd.DataFrame({LINE: lines if any(line.strip() for line in lines) else []})


# pandas' parser errors and bytes that are no text are ValueErrors, pyarrow's errors OSErrors or ValueErrors;
# of archives each library has its own, ImportError where it is not installed.
_UNREADABLE = (
    *(ValueError, OSError, EOFError, OverflowError, RecursionError, ImportError, TypeError, AttributeError),
    *(KeyError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
)

READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "csv": _read_delimited(","),
    "tsv": _read_delimited("\t"),
    "jsonl": _read_json,
    "json": _read_json_array,
    "parquet": _read_parquet,
    "txt": _read_lines,
    "conll": _read_lines,
}
