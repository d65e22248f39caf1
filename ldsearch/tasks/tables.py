"""Data sources: hub ids, dataset folders, csv, tsv, json, parquet and text files.

Single files are read in place with pandas (compression by suffix); ids and folders go through datasets.
"""

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.errors import DataError, one_line
from ldsearch.tasks.splits import SearchRows

# Pairs first: a table that has both members of a pair is a pair task.
_PAIR_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("text", "text_pair"),
)
_TEXT_COLUMNS = ("text", "sentence", "content", "review", "document", "docstring")
_LABEL_COLUMNS = ("label", "labels", "class", "category", "target")
_SPLIT_PREFIXES = {"train": ("train",), "search": ("valid", "dev"), "report": ("test",)}
_SPLIT_FILES = ("train", "validation", "valid", "dev", "test")
_FORMATS = ("csv", "tsv", "jsonl", "json", "parquet")
_TEXT_FILES = (".txt", ".conll")
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

    def record(self, task: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
        """Fields for ``supernet.json``; local paths are absolute, so that a search may run from elsewhere."""
        return {
            "task": task,
            "data": _absolute(self.data),
            "config": self.config,
            "validation": None if self.validation is None else _absolute(self.validation),
            "columns": dict(columns),
            "keep_overlap": self.keep_overlap,
            "search_rows": self.search_rows,
            "metric": self.metric,
            "stride": self.stride,
            "sentences": self.sentences,
        }


def _absolute(data: str) -> str:
    return str(Path(data).resolve()) if Path(data).exists() else data


def read_tables(source: DataSource, lines: bool = False) -> dict[str, pd.DataFrame]:
    """Tables by role: ``train``, and where the source has them ``search`` and ``report``.

    Args:
        source: The data.
        lines: Whether a text file (``.txt``, ``.conll``, gz too) is a table with a row per line.

    Raises:
        DataError: If something is missing, unreadable or empty.
    """
    data, validation = source.data, source.validation

    def read(path: str) -> pd.DataFrame:
        return _read_lines(path) if lines and _is_text(path) else read_file(Path(path))

    is_file = Path(data).is_file() or (lines and _is_text(data))
    tables = {"train": read(data)} if is_file else _read_dataset(data, source.config)
    if validation is not None:
        if Path(validation).resolve() == Path(data).resolve():
            raise DataError(f"{validation} is the training data: scores on it would mean nothing")
        tables["search"] = read(validation)
    for role, table in tables.items():
        if table.empty:
            raise DataError(f"{data}: the {role} rows are empty")
    return tables


def read_file(path: Path) -> pd.DataFrame:
    """One csv, tsv, jsonl or parquet file, gz too.

    Raises:
        DataError: If it is missing, of another format, unreadable or empty.
    """
    if not path.is_file():
        raise DataError(f"no data file {path}")
    suffixes = [suffix.lstrip(".").lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix in _FORMATS), None)
    table: pd.DataFrame | None
    try:
        table = _READERS[kind](path) if kind else None
    except (ValueError, OSError, EOFError, zlib.error) as error:
        # pandas' parser errors are ValueErrors, pyarrow's OSErrors or ValueErrors, the last two gzip's.
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    if table is None:
        raise DataError(f"{path}: unknown format; use one of {', '.join(_FORMATS)} (optionally .gz)")
    if table.empty:
        raise DataError(f"{path} has no rows")
    return table


def _read_delimited(separator: str) -> Callable[[Path], pd.DataFrame]:
    # Text such as "NA" or "null" is text.
    return lambda path: pd.read_csv(
        path, sep=separator, dtype=str, keep_default_na=False, compression="infer"
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


_READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "csv": _read_delimited(","),
    "tsv": _read_delimited("\t"),
    "jsonl": _read_json,
    "json": _read_json_array,
    "parquet": pd.read_parquet,
}


def _read_dataset(name: str, config: str | None) -> dict[str, pd.DataFrame]:
    if Path(name).suffix and not Path(name).is_dir() and name.split(".")[-1] in (*_FORMATS, "gz"):
        raise DataError(f"no data file {name}")
    import datasets
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    try:
        if Path(name).is_dir():
            # An absolute path, since datasets cannot name the folder ".".
            folder = Path(name).resolve()
            splits = datasets.load_dataset(
                str(folder), config, data_files=_split_files(folder), **_folder_options(folder)
            )
        else:
            splits = datasets.load_dataset(name, config)
    except (DatasetsError, ValueError, OSError) as error:
        raise DataError(f"cannot load the dataset {name!r}: {one_line(error)}") from error
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
    kinds = suffixes & {*_FORMATS}
    return {"keep_default_na": False} if kinds and kinds <= {"csv", "tsv"} else {}


def find_columns(table: pd.DataFrame, wanted: Columns, source: str) -> Columns:
    """Fill in the columns that were not named.

    Raises:
        DataError: If a named column does not exist or none can be found; it lists those there are.
    """
    there = [str(column) for column in table.columns]
    for column in (wanted.text, wanted.pair, wanted.label):
        if column is not None and column not in there:
            raise DataError(f"{source} has no column {column!r}; it has {', '.join(there)}")
    label = wanted.label or next((name for name in _LABEL_COLUMNS if name in there), None)
    if wanted.text is not None and label is not None:
        return Columns(wanted.text, wanted.pair, label)
    text, pair = wanted.text, wanted.pair
    if text is None:
        pairs = (names for names in _PAIR_COLUMNS if set(names) <= set(there))
        single = next((name for name in _TEXT_COLUMNS if name in there), None)
        text, pair = next(pairs, (single, pair))
    left = [name for name in there if name not in (text, pair, label)]
    if text is None and label is not None and len(left) == 1:
        text = left[0]
    missing = [kind for kind, name in (("text", text), ("label", label)) if name is None]
    if missing:
        flags = " and ".join(f"--{kind}-column" for kind in missing)
        raise DataError(
            f"{source}: no {' and no '.join(missing)} column among {', '.join(there)}; name it with {flags}"
        )
    return Columns(text, pair, label)


def find_column(table: pd.DataFrame, wanted: str | None, usual: Sequence[str], kind: str, source: str) -> str:
    """The wanted column, else the first of the usual ones that is there.

    Args:
        table: Where it is looked for.
        wanted: Its name, if the user gave one.
        usual: What such columns are called.
        kind: What it holds; it is named with ``--{kind}-column``.
        source: What is being read, for the message.

    Raises:
        DataError: If it is not there; it lists the columns that are.
    """
    there = [str(column) for column in table.columns]
    found = next((name for name in ((wanted,) if wanted else usual) if name in there), None)
    if found is not None:
        return found
    if wanted:
        raise DataError(f"{source} has no column {wanted!r}; it has {', '.join(there)}")
    raise DataError(
        f"{source}: no {' or '.join(usual)} column among {', '.join(there)}; name it with --{kind}-column"
    )


def is_missing(cell: Any) -> bool:
    """True for null and NaN; a list is never missing."""
    return pd.api.types.is_scalar(cell) and bool(pd.isna(cell))


def without_hidden(
    tables: Mapping[str, pd.DataFrame], label: str, hidden: Callable[[Any], bool] = is_missing
) -> dict[str, pd.DataFrame]:
    """The tables without a report split whose labels are all hidden, as those of public test sets are.

    Args:
        tables: By role.
        label: Column of the labels.
        hidden: Whether a cell tells no label.
    """
    return {
        role: table
        for role, table in tables.items()
        if role != "report" or (label in table and not table[label].map(hidden).all())
    }


def _is_text(path: str) -> bool:
    return path.lower().removesuffix(".gz").endswith(_TEXT_FILES) and not Path(path).is_dir()


def _read_lines(path: str) -> pd.DataFrame:
    if not Path(path).is_file():
        raise DataError(f"no data file {path}")
    try:
        with (gzip.open if path.lower().endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file]
    except (ValueError, OSError, EOFError, zlib.error) as error:
        # Bytes that are no text are a ValueError, the last two are gzip's.
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    if not any(line.strip() for line in lines):
        raise DataError(f"{path} has no text")
    return pd.DataFrame({LINE: lines})
