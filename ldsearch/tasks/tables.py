"""Data sources: files, folders of files and hub ids as tables by role, and which of their columns is what.

Files are read in place (``ldsearch.tasks.readers``); ids and other folders go through datasets.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ldsearch.disk.hub import go_offline_if_unreachable
from ldsearch.errors import DataError, shortened
from ldsearch.tasks.readers import (
    CLASSES,
    LINE,
    READERS,
    WORD_LINES,
    classes_of,
    kind_of,
    read_file,
    read_tables_of,
)
from ldsearch.tasks.splits import SearchRows

_SPLIT_PREFIXES = {"train": ("train",), "search": ("val", "dev"), "report": ("test",)}
_SPLIT_FILES = ("train", "validation", "valid", "val", "dev", "test")
# A file's name that is a split's, or begins with one.
_SPLIT_NAME = re.compile(rf"({'|'.join(_SPLIT_FILES)})[-_.]")
# What datasets writes into a folder beside its tables (``save_to_disk``).
_SAVED = ("dataset_dict.json", "state.json")
# Between the two texts of a pair where rows are compared; no whitespace, so a word of its own.
PAIR_MARK = " \0 "
# More words than a column's name has.
_MANY_WORDS = 4
NO_HINTS: Mapping[str, str] = MappingProxyType({})


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


def read_tables(source: DataSource, by_line: bool = False) -> dict[str, pd.DataFrame]:
    """Tables by role: ``train``, and where the source has them ``search`` and ``report``.

    Args:
        source: The data.
        by_line: Whether empty lines mean something to the kind of task (``read_file``).

    Raises:
        DataError: If something is missing or unreadable, or a file is empty.
    """
    data, validation = source.data, source.validation
    tables = _by_role(Path(data), by_line) if _names_file(data) else _read_dataset(source, by_line)
    if validation is not None:
        if Path(validation).resolve() == Path(data).resolve():
            raise DataError(f"{validation} is the training data: scores on it would mean nothing")
        tables["search"] = read_file(Path(validation), by_line)
    return tables


def _by_role(path: Path, by_line: bool) -> dict[str, pd.DataFrame]:
    """The table of a file; of a json file with several those of each role, one behind the other.

    Raises:
        DataError: If the name of one says no role, or none is the training rows.
    """
    tables = read_tables_of(path, by_line)
    if len(tables) == 1:
        return {"train": next(iter(tables.values()))}
    roles = [
        next((role for role, own in _SPLIT_PREFIXES.items() if name.rpartition("_")[2].startswith(own)), "")
        for name in tables
    ]
    if "train" not in roles or "" in roles:
        raise DataError(
            f"{path} holds several tables, {', '.join(tables)}: name each train, validation or test, or "
            "write it to a file of its own"
        )
    parts = list(zip(roles, tables.values(), strict=True))
    return {
        role: pd.concat([table for own, table in parts if own == role], ignore_index=True)
        for role in dict.fromkeys(roles)
    }


def _names_file(data: str) -> bool:
    """Whether a file, if perhaps a missing one, is meant and no folder or hub id."""
    path = Path(data)
    return path.is_file() or (not path.is_dir() and path.suffix.lstrip(".") in (*READERS, "gz"))


def _read_dataset(source: DataSource, by_line: bool) -> dict[str, pd.DataFrame]:
    name, config, folder = source.data, source.config, Path(source.data)
    if config is None and folder.is_dir():
        if files := _split_files(folder):
            return {role: read_file(path, by_line) for role, path in files.items()}
        for read in (_read_languages, _read_classes):
            if "train" in (by_role := read(folder)):
                return by_role
    splits = _load_dataset(name, config)
    tables = {}
    for role, prefixes in _SPLIT_PREFIXES.items():
        found = next((split for split in splits if split.startswith(prefixes)), None)
        if found is not None:
            tables[role] = splits[found].to_pandas()
            tables[role].attrs[CLASSES] = classes_of(splits[found].features)
    if "train" not in tables:
        raise DataError(f"the dataset {name!r} has no train split, only {', '.join(splits)}")
    return tables


def _load_dataset(name: str, config: str | None) -> Any:
    """Splits of a folder or a hub id, as datasets has them."""
    import datasets
    from datasets.exceptions import DatasetsError

    from ldsearch.disk.hub import refused

    datasets.disable_progress_bars()
    try:
        if Path(name).is_dir():
            # An absolute path, since datasets cannot name the folder ".".
            folder = Path(name).resolve()
            if any((folder / file).is_file() for file in _SAVED):
                saved = datasets.load_from_disk(str(folder))
                return saved if isinstance(saved, Mapping) else {"train": saved}
            return datasets.load_dataset(str(folder), config, **_folder_options(folder))
        go_offline_if_unreachable()
        return datasets.load_dataset(name, config)
    except (DatasetsError, ValueError, TypeError, KeyError, OSError, NotImplementedError) as error:
        raise refused(f"cannot load the dataset {shortened(name)!r}", error, DataError) from error
    finally:
        datasets.enable_progress_bars()


def _split_files(folder: Path) -> dict[str, Path]:
    """A folder's files by role, where one is the training rows alone: ``train.tsv``, ``train-v1.1.json``.

    Where there are several for a role the one with the plainest name (``test``, not ``test_2018``; of
    ``dev_matched`` and ``dev_mismatched`` the first). Parts of one split are left to datasets.
    """
    paths = sorted(path for path in folder.iterdir() if path.is_file() and kind_of(path))
    if any("-of-" in path.name for path in paths):
        return {}
    found = {}
    for role, prefixes in _SPLIT_PREFIXES.items():
        named = [path for path in paths if _SPLIT_NAME.match(path.name) and path.name.startswith(prefixes)]
        plain = [path for path in named if path.name.split(".")[0] in _SPLIT_FILES]
        if plain or (named and (len(named) == 1 or role != "train")):
            found[role] = (plain or named)[0]
    return found if "train" in found else {}


def _read_languages(folder: Path) -> dict[str, pd.DataFrame]:
    """Pairs of files of lines, a language each, as Moses has them: ``train.de`` and ``train.en``.

    Raises:
        DataError: If the files of one split have not the same number of lines.
    """
    tables = {}
    for role, prefixes in _SPLIT_PREFIXES.items():
        paths = [
            path for path in sorted(folder.iterdir()) if path.is_file() and path.name.startswith(prefixes)
        ]
        named = {path.stem: [other for other in paths if other.stem == path.stem] for path in paths}
        stem = next((stem for stem, own in named.items() if len(own) > 1), None)
        if stem is None:
            continue
        columns = {path.suffix.removeprefix("."): read_file(path, kind="txt")[LINE] for path in named[stem]}
        counts = {name: len(lines) for name, lines in columns.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} in {stem}.{name}" for name, count in counts.items())
            raise DataError(f"{folder}: the languages of a split need as many lines each, not {told}")
        tables[role] = pd.DataFrame(columns)
    return tables


def _read_classes(folder: Path) -> dict[str, pd.DataFrame]:
    """Folders of texts, a class each, as IMDB has them: ``train/pos/0_9.txt``.

    IMDB's ``unsup`` holds texts without labels, which are left out.
    """
    tables = {}
    for role, prefixes in _SPLIT_PREFIXES.items():
        homes = [
            path for path in sorted(folder.iterdir()) if path.is_dir() and path.name.startswith(prefixes)
        ]
        paths = (
            [path for path in sorted(homes[0].glob("*/*.txt")) if path.parent.name != "unsup"]
            if homes
            else []
        )
        if paths:
            rows = [("\n".join(read_file(path)[LINE]), path.parent.name) for path in paths]
            tables[role] = pd.DataFrame(rows, columns=["text", "label"])
    return tables


def _folder_options(folder: Path) -> dict[str, bool]:
    """In a folder of delimited files, too, text such as "NA" is text."""
    suffixes = {suffix.lstrip(".").lower() for path in folder.rglob("*") for suffix in path.suffixes}
    kinds = suffixes & {*READERS} - {"txt", *WORD_LINES}
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
        if named.count(column) > 1:
            raise DataError(f"{source}: column {column!r} cannot be two of text, pair and label")
    return there


def usual_column(there: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of the usual names that is there, capital letters and spaces around it aside."""
    alike = {column.strip().casefold(): column for column in reversed(there)}
    found = (name if name in there else alike.get(name.casefold()) for name in names)
    return next((name for name in found if name is not None), None)


def find_columns(
    table: pd.DataFrame,
    wanted: Columns,
    usual: Mapping[str, Sequence[str]],
    source: str,
    hints: Mapping[str, str] = NO_HINTS,
) -> Columns:
    """Fill in the columns that were not named, each with the first of the usual ones that is there.

    A column that is named for one thing is not taken for another.

    Args:
        table: Where they are looked for.
        wanted: Those that the user named.
        usual: For each of ``text``, ``pair`` and ``label`` that is needed what such columns are called.
        source: What is being read, for the message.
        hints: What else the message says where a text, pair or label column is missing.

    Raises:
        DataError: If a named column does not exist or none can be found; it lists those there are. If the
            names look like a row.
    """
    there, found = check_columns(table, wanted, source), asdict(wanted)
    for kind, names in usual.items():
        free = [name for name in there if name not in found.values()]
        found[kind] = found[kind] or usual_column(free, names)
    missing = [kind for kind in usual if found[kind] is None]
    label = found["label"]
    if _like_a_row(there) and (missing or (label and label in set(map(str, table[label])))):
        raise DataError(
            f"{source}: its first line names the columns, but {', '.join(there)[:100]!r} looks like a row: "
            f"put a line of names before it, such as {' and '.join(names[0] for names in usual.values())}"
        )
    if missing:
        lacking = " and ".join(f"no {kind} column ({', '.join(usual[kind])})" for kind in missing)
        flags = " and ".join(f"--{kind}-column" for kind in missing)
        more = "".join(f"; {hints[kind]}" for kind in missing if kind in hints)
        raise DataError(f"{source}: {lacking} among {', '.join(there)}; name it with {flags}{more}")
    return Columns(**found)


def _like_a_row(names: Sequence[str]) -> bool:
    """Whether what should be names of columns holds a number or a sentence, as rows do."""
    numbered = [str(place) for place in range(len(names))]  # columns that have no names
    number = re.compile(r"-?\d+(\.\d+)?")
    return list(names) != numbered and any(
        number.fullmatch(name) or len(name.split()) > _MANY_WORDS for name in names
    )


def is_missing(cell: Any) -> bool:
    """True for null and NaN; a list is never missing."""
    return pd.api.types.is_scalar(cell) and bool(pd.isna(cell))


def is_blank(cell: Any) -> bool:
    """True for whatever is no text, or text of spaces alone."""
    return not isinstance(cell, str) or not cell.strip()


def read_written(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns of lists or objects that a csv holds as text hold the lists and objects.

    They are read as JSON, or as Python prints them; a cell that is neither stays what it is.
    """
    written = {
        str(name): table[name].map(_written)
        for name in table
        if all(isinstance(cell, str) and cell.startswith(("[", "{")) for cell in table[name])
    }
    return table.assign(**written) if written else table


def _written(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        pass
    try:
        tree = ast.parse(cell, mode="eval")
        texts = sum(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in ast.walk(tree))
        tokens = tokenize.generate_tokens(io.StringIO(cell).readline)
        # NumPy prints no commas: what it prints would be one text, read as Python.
        if texts == sum(token.type == tokenize.STRING for token in tokens):
            return ast.literal_eval(tree)
    except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
        pass
    return cell


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
