"""What tasks share: text files line by line, one column by name, padded batches."""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)

from ldsearch.errors import DataError, one_line
from ldsearch.tasks.base import Collate, DataSource
from ldsearch.tasks.tables import read_file, read_tables

LINE = "text"  # the column of lines, as datasets names it
_TEXT_FILES = (".txt", ".conll")


def read_rows(source: DataSource) -> dict[str, pd.DataFrame]:
    """Tables by role as ``read_tables`` gives them; of a text file (gz too) every line is a row.

    Raises:
        DataError: If something is missing, unreadable or empty.
    """
    data, validation = source.data, source.validation
    if not any(path is not None and _is_text(path) for path in (data, validation)):
        return read_tables(data, source.config, validation)
    if validation is not None and Path(validation).resolve() == Path(data).resolve():
        raise DataError(f"{validation} is the training data: scores on it would mean nothing")
    tables = {"train": _read_lines(data)} if _is_text(data) else read_tables(data, source.config, None)
    if validation is not None:
        tables["search"] = _read_lines(validation) if _is_text(validation) else read_file(Path(validation))
    return tables


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


def pad_inputs(tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
    """Batches padded to the longest or to ``pad_to``, ``labels`` as they are."""
    collator = DataCollatorWithPadding(
        tokenizer, padding=True if pad_to is None else "max_length", max_length=pad_to
    )
    return lambda features: dict(collator([dict(feature) for feature in features]))


def pad_tokens(tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
    """Batches padded to the longest or to ``pad_to``, ``labels`` of shape (B, n) with -100."""
    collator = DataCollatorForTokenClassification(
        tokenizer, padding=True if pad_to is None else "max_length", max_length=pad_to
    )
    return lambda features: dict(collator(list(features)))


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
