"""Data sources: hub ids, dataset folders, csv, tsv, json, parquet and text files.

Single files are read in place with pandas (compression by suffix); ids and folders go through datasets.
"""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ldsearch.errors import DataError, one_line, shortened
from ldsearch.hub import go_offline_if_unreachable
from ldsearch.tasks.splits import SearchRows

_SPLIT_PREFIXES = {"train": ("train",), "search": ("valid", "dev"), "report": ("test",)}
_SPLIT_FILES = ("train", "validation", "valid", "dev", "test")
# Between the two texts of a pair where rows are compared; no whitespace, so a word of its own.
PAIR_MARK = " \0 "
LINE = "text"  # the column of a text file's lines, as datasets names it


@dataclass(frozen=True)
class Columns:
    """Columns of the text, its pair and the label; None is found by name."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class DataSource:
    """A task's data and the options for reading them.

    Args:
        data: A file, a dataset folder or a hub id with the training rows.
        config: The configuration of a hub dataset.
        validation: A file with rows to search and report on; without any, they are cut from the training
            ones.
        columns: Columns that are not found by name.
        keep_overlap: Use every row, also those that share text across splits.
        search_rows: Which rows search and which report, of data without report rows (``fix_splits``).
        metric: Name of the score; None takes the task's first.
        stride: Tokens that two windows of one long context share (question answering).
        sentences: No block of text tears a line (causal language modelling).
    """

    data: str
    config: str | None = None
    validation: str | None = None
    columns: Columns = field(default_factory=Columns)
    keep_overlap: bool = False
    search_rows: SearchRows = "auto"
    metric: str | None = None
    stride: int = 128
    sentences: bool = False

    def __post_init__(self) -> None:
        if self.stride < 0:
            raise DataError(f"the stride is a number of shared tokens, not {self.stride}")

    def record(self, task: str, columns: Columns) -> dict[str, Any]:
        """Fields for ``supernet.json``; local paths are absolute, so that a search may run from elsewhere."""
        paths = {
            name: str(Path(path).resolve()) if path and Path(path).exists() else path
            for name, path in (("data", self.data), ("validation", self.validation))
        }
        return {"task": task, **asdict(self), **paths, "columns": asdict(columns)}


def read_tables(source: DataSource) -> dict[str, pd.DataFrame]:
    """Tables by role: ``train``, and where the source has them ``search`` and ``report``.

    Raises:
        DataError: If something is missing or unreadable, or a file is empty.
    """
    data, validation = source.data, source.validation
    tables = {"train": read_file(Path(data))} if _names_file(data) else _read_dataset(data, source.config)
    if validation is not None:
        if Path(validation).resolve() == Path(data).resolve():
            raise DataError(f"{validation} is the training data: scores on it would mean nothing")
        tables["search"] = read_file(Path(validation))
    return tables


def _names_file(data: str) -> bool:
    """Whether a file, if perhaps a missing one, is meant and no folder or hub id."""
    path = Path(data)
    return path.is_file() or (not path.is_dir() and path.suffix.lstrip(".") in (*_READERS, "gz"))


def read_file(path: Path) -> pd.DataFrame:
    """One csv, tsv, jsonl, json, parquet or text file, gz too; of text a row per line.

    Raises:
        DataError: If it is missing, of another format, unreadable or empty.
    """
    if not path.is_file():
        raise DataError(f"no data file {str(path)[:200]}")
    suffixes = [suffix.lstrip(".").lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix in _READERS), None)
    if kind is None:
        raise DataError(f"{path}: unknown format; use one of {', '.join(_READERS)} (optionally .gz)")
    try:
        table = _READERS[kind](path)
    except _UNREADABLE as error:
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    if table.empty:
        raise DataError(f"{path} has no rows")
    table.columns = table.columns.map(str)
    return table


def _read_delimited(separator: str) -> Callable[[Path], pd.DataFrame]:
    # Text such as "NA" or "null" is text; as objects each cell exists once, here and in the examples.
    return lambda path: pd.read_csv(
        path, sep=separator, dtype=object, keep_default_na=False, compression="infer"
    )


def _read_json(path: Path) -> pd.DataFrame:
    """One object a line."""
    return pd.read_json(path, lines=True, compression="infer", dtype=False)


def _read_json_array(path: Path) -> pd.DataFrame:
    """One array of objects; or, as many call it json too, one object a line."""
    try:
        return pd.read_json(path, compression="infer", dtype=False)
    except ValueError:
        return _read_json(path)


def _read_lines(path: Path) -> pd.DataFrame:
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    return pd.DataFrame({LINE: lines if any(line.strip() for line in lines) else []})


# pandas' parser errors and bytes that are no text are ValueErrors, pyarrow's errors OSErrors or ValueErrors;
# of archives each library has its own, ImportError where it is not installed.
_UNREADABLE = (
    *(ValueError, OSError, EOFError, OverflowError, RecursionError, ImportError, TypeError, AttributeError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
)

_READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "csv": _read_delimited(","),
    "tsv": _read_delimited("\t"),
    "jsonl": _read_json,
    "json": _read_json_array,
    "parquet": pd.read_parquet,
    "txt": _read_lines,
    "conll": _read_lines,
}


def _read_dataset(name: str, config: str | None) -> dict[str, pd.DataFrame]:
    import datasets
    from datasets.exceptions import DatasetsError

    from ldsearch.hub import refused

    datasets.disable_progress_bars()
    try:
        if Path(name).is_dir():
            # An absolute path, since datasets cannot name the folder ".".
            folder = Path(name).resolve()
            splits = datasets.load_dataset(
                str(folder), config, data_files=_split_files(folder), **_folder_options(folder)
            )
        else:
            go_offline_if_unreachable()
            splits = datasets.load_dataset(name, config)
    except (DatasetsError, ValueError, TypeError, KeyError, OSError, NotImplementedError) as error:
        raise refused(f"cannot load the dataset {shortened(name)!r}", error, DataError) from error
    finally:
        datasets.enable_progress_bars()
    tables = {}
    for role, prefixes in _SPLIT_PREFIXES.items():
        found = next((split for split in splits if split.startswith(prefixes)), None)
        if found is not None:
            tables[role] = splits[found].to_pandas()
    if "train" not in tables:
        raise DataError(f"the dataset {name!r} has no train split, only {', '.join(splits)}")
    return tables


def _split_files(folder: Path) -> dict[str, str] | None:
    """A folder's files named for a split, where datasets would join others to them (``test_2018``)."""
    named = {path.name.split(".")[0]: path.name for path in sorted(folder.iterdir()) if path.is_file()}
    files = {name: file for name, file in named.items() if name in _SPLIT_FILES}
    joined = any(name.split("_")[0] in files for name in named if name not in files)
    return files if joined and "train" in files else None


def _folder_options(folder: Path) -> dict[str, bool]:
    """In a folder of delimited files, too, text such as "NA" is text."""
    suffixes = {suffix.lstrip(".").lower() for path in folder.rglob("*") for suffix in path.suffixes}
    kinds = suffixes & {*_READERS} - {"txt", "conll"}
    return {"keep_default_na": False} if kinds and kinds <= {"csv", "tsv"} else {}


def check_columns(table: pd.DataFrame, columns: Columns, source: str) -> list[str]:
    """The table's columns, among which those that are named must be.

    Raises:
        DataError: If one is not there, or one is named twice.
    """
    there, named = [str(column) for column in table.columns], [name for name in astuple(columns) if name]
    for column in named:
        if column not in there:
            raise DataError(f"{source} has no column {column!r}; it has {', '.join(there)}")
        if there.count(column) > 1:
            raise DataError(f"{source} has several columns {column!r}")
        if named.count(column) > 1:
            raise DataError(f"{source}: column {column!r} cannot be two of text, pair and label")
    return there


def find_columns(
    table: pd.DataFrame, wanted: Columns, usual: Mapping[str, Sequence[str]], source: str
) -> Columns:
    """Fill in the columns that were not named, each with the first of the usual ones that is there.

    A column that is named for one thing is not taken for another.

    Args:
        table: Where they are looked for.
        wanted: Those that the user named.
        usual: For each of ``text``, ``pair`` and ``label`` that is needed what such columns are called.
        source: What is being read, for the message.

    Raises:
        DataError: If a named column does not exist or none can be found; it lists those there are.
    """
    there, found = check_columns(table, wanted, source), asdict(wanted)
    for kind, names in usual.items():
        free = [name for name in names if name in there and name not in found.values()]
        found[kind] = found[kind] or next(iter(free), None)
    taken = [name for name in found.values() if name]
    if len(set(taken)) < len(taken):
        raise DataError(
            f"{source}: column {max(taken, key=taken.count)!r} cannot be two of text, pair and label"
        )
    missing = [kind for kind in usual if found[kind] is None]
    if missing:
        lacking = " and ".join(f"no {kind} column ({', '.join(usual[kind])})" for kind in missing)
        flags = " and ".join(f"--{kind}-column" for kind in missing)
        raise DataError(f"{source}: {lacking} among {', '.join(there)}; name it with {flags}")
    return Columns(**found)


def is_missing(cell: Any) -> bool:
    """True for null and NaN; a list is never missing."""
    return pd.api.types.is_scalar(cell) and bool(pd.isna(cell))


def is_blank(cell: Any) -> bool:
    """True for whatever is no text, or text of spaces alone."""
    return not isinstance(cell, str) or not cell.strip()


def texts_of(column: "pd.Series[Any]", role: str) -> tuple[str, ...]:
    """The cells of a column as texts, which may be empty.

    Raises:
        DataError: If one is missing.
    """
    refuse_rows(column.isna(), role, f"have no text in column {column.name!r}")
    cells = column.tolist()
    refuse_rows(map(is_no_text, cells), role, f"have no text but something else in column {column.name!r}")
    return tuple(map(str, cells))


def is_no_text(cell: Any) -> bool:
    """Whether a cell can be written down as text only by chance: bytes, a list, half of a surrogate pair."""
    if not isinstance(cell, str):
        numbers = bool | int | float | np.number | np.bool_ | Decimal | date
        return not isinstance(cell, numbers)
    try:
        cell.encode()
    except UnicodeEncodeError:
        return True
    return False


def refuse_rows(bad: Iterable[bool], role: str, what: str) -> None:
    """Refuse rows, with their number and the first of them.

    Args:
        bad: Of each row whether it is refused.
        role: Of the rows, for the message.
        what: What is wrong with them, for the message.

    Raises:
        DataError: If any row is bad.
    """
    rows = [row for row, refused in enumerate(bad) if refused]
    if rows:
        raise DataError(f"{len(rows)} {role} rows {what} (the first is row {rows[0]})")
