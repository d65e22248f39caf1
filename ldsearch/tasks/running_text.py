"""Running text: lines or documents in their order, in three splits, as tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.tasks.base import DataSource
from ldsearch.tasks.rows import LINE, find_column, read_rows
from ldsearch.tasks.splits import fix_splits

_TEXTS = (LINE, "sentence", "content", "document")
_AS_GIVEN = "splits of running text used as given: not compared with each other"


@dataclass(frozen=True)
class TextLines:
    """One split: lines or documents in their order, none of them blank."""

    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> "TextLines":
        """Some of the lines, in the given order."""
        return TextLines(tuple(self.texts[row] for row in rows))

    @property
    def fingerprint(self) -> str:
        """Changes with any line."""
        return digest(self.texts)


@dataclass(frozen=True)
class RunningText:
    """A text as it was read.

    Args:
        column: Where its lines stood.
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that they share no text, in words; empty where nothing was.
    """

    column: str
    splits: Mapping[str, TextLines]
    overlap: str

    @property
    def columns(self) -> dict[str, str | None]:
        """For the record of the source."""
        return {"text": self.column, "pair": None, "label": None}


def read_running_text(source: DataSource) -> RunningText:
    """Read running text and fix the splits.

    Where the source has all three splits they are used as they are: lines of running text are no examples of
    their own, headings and turns of phrase recur in every text, and a text without the lines that stand
    elsewhere too would be torn. What is missing is cut by lines that share no text; then, unless a line is a
    document, neighbours of a held-out line are trained on, and its perplexity is a little too good.

    Args:
        source: The data: text files (``.txt``), one line or document a line, or tables with a text column.

    Raises:
        DataError: If data is missing, empty or misshapen, or too small or too alike to be split.
    """
    tables = read_rows(source)
    column = find_column(tables["train"], source.columns.text, _TEXTS, "text", source.data)
    given = {role: _lines(table, column, f"{source.data} ({role})", role) for role, table in tables.items()}
    if len(given) == 3:
        return RunningText(column, given, "" if source.keep_overlap else _AS_GIVEN)
    fixed = fix_splits(
        {role: lines.texts for role, lines in given.items()},
        source.keep_overlap,
        search_rows=source.search_rows,
    )
    splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
    return RunningText(column, splits, fixed.overlap.describe())


def tokens_of(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The ids of each text that has any, without special tokens around them."""
    # Not verbose: the tokenizer would warn of lines longer than the model reads.
    lines = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [line for line in lines if line]


def _lines(table: pd.DataFrame, column: str, source: str, role: str) -> TextLines:
    find_column(table, column, (), "text", source)
    if missing := sum(not isinstance(text, str) for text in table[column]):
        raise DataError(f"{missing} {role} rows have no text in column {column!r}")
    texts = tuple(text for text in table[column] if text.strip())
    if not texts:
        raise DataError(f"{source} has no text")
    return TextLines(texts)
