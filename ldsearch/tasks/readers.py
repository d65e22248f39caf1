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

# A word and its tag a line.
WORD_LINES = ("conll", "conllu", "bio", "iob", "iob2")
LINE = "text"  # the column of a text file's lines, as datasets names it
# Key of a table's ``attrs``: for each column that holds ids of classes the classes' names.
CLASSES = "classes"
_SEPARATORS = (",", "\t", ";", "|")
_EMPTY_LINE = re.compile(r"\n[ \t\r]*\n")
# CoLA as it is distributed: source, label, the linguist's star, sentence (Warstadt et al. 2019).
_COLA = ["source", "label", "star", "sentence"]


def kind_of(path: Path) -> str | None:
    """The format that a file's name says; None: none that is read here."""
    suffixes = [suffix.lstrip(".").lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix in READERS), None)


def read_file(path: Path, by_line: bool = False, kind: str | None = None) -> pd.DataFrame:
    """One csv, tsv, jsonl, json, parquet or text file, gz too; of text a row per line.

    Args:
        path: The file.
        by_line: Whether a csv or tsv file with empty lines between its rows is a text.
        kind: Its format, where its name does not say it.

    Raises:
        DataError: If it is missing, of another format, unreadable, empty, or holds several tables.
    """
    tables = read_tables_of(path, by_line, kind)
    if len(tables) > 1:
        raise DataError(f"{path} holds several tables, {', '.join(tables)}: write each to a file of its own")
    return next(iter(tables.values()))


def read_tables_of(path: Path, by_line: bool = False, kind: str | None = None) -> dict[str, pd.DataFrame]:
    """As ``read_file``, of a json file with several tables all of them, by the names that it has for them."""
    if not path.is_file():
        raise DataError(f"no data file {str(path)[:200]}")
    kind = kind or kind_of(path)
    if kind is None:
        raise DataError(
            f"{path}: unknown format; use one of {', '.join(READERS)} (optionally .gz); lines in two "
            "languages are a folder with train.de and train.en"
        )
    try:
        if by_line and kind in ("csv", "tsv") and _EMPTY_LINE.search(_text_of(path).strip()):
            kind = "txt"
        tables = READERS[kind](path)
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    for table in tables.values():
        if table.empty:
            raise DataError(f"{path} has no rows")
        table.columns = table.columns.map(str)
    return tables


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


def _json_tables(path: Path) -> dict[str, pd.DataFrame]:
    """Read a json file: an array of rows, an array under some key, or one row a line.

    An object may hold rows under a key ``data`` (SQuAD's too), under their ids, several tables by name, or
    what pandas writes.
    """
    text = _text_of(path)
    try:
        content = json.loads(text)
    except ValueError:
        return {"": _json_lines(text)}
    if _are(list, content) and all(len(row) == 2 and isinstance(row[1], Mapping) for row in content):
        spans = [own.get("entities", []) for _, own in content]  # spaCy's training data
        return {"": pd.DataFrame({"text": [text for text, _ in content], "entities": spans})}
    if not isinstance(content, Mapping):
        return {"": pd.read_json(io.StringIO(text), dtype=False)}
    rows: Any = content.get("data")
    if content.keys() <= {"columns", "index", "data"} and {"columns", "data"} <= content.keys():
        return {"": pd.DataFrame(rows, columns=content["columns"])}  # pandas' orient="split"
    if _are(Mapping, rows):
        return {"": _squad(rows) if "paragraphs" in rows[0] else pd.DataFrame(rows)}
    tables = {name: _rows_of(value) for name, value in content.items()}
    if tables and all(table is not None for table in tables.values()):
        return {name: table for name, table in tables.items() if table is not None}
    records = list(content.values())
    if _are(Mapping, records) and len(records) > max(map(len, records)):
        return {"": pd.DataFrame(records)}  # by id: of columns by name there are fewer than rows
    return {"": pd.read_json(io.StringIO(text), dtype=False)}


def _rows_of(value: Any) -> pd.DataFrame | None:
    """An array of objects, or of texts with their labels (Larson et al. 2019); None: it is none."""
    if _are(Mapping, value):
        return pd.DataFrame(value)
    if _are(list, value) and all(len(row) == 2 and _are(str, row) for row in value):
        return pd.DataFrame(value, columns=["text", "label"])
    return None


def _are(kind: type, value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, kind) for row in value)


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


def _alone(read: Callable[[Path], pd.DataFrame]) -> Callable[[Path], dict[str, pd.DataFrame]]:
    return lambda path: {"": read(path)}


READERS: Mapping[str, Callable[[Path], dict[str, pd.DataFrame]]] = {
    "csv": _alone(_read_delimited(",")),
    "tsv": _alone(_read_delimited("\t")),
    "jsonl": _alone(_read_json),
    "json": _json_tables,
    "parquet": _alone(_read_parquet),
    **dict.fromkeys(("txt", *WORD_LINES), _alone(_read_lines)),
}
