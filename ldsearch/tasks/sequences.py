"""Translation and summarisation: one text from another, scored token by token with the target given."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Encoded, Rows, split_rows
from ldsearch.tasks.classification import PAIR_MARK
from ldsearch.tasks.language import LanguageModel
from ldsearch.tasks.objectives import Categorical, labelled_tokens
from ldsearch.tasks.tables import DataSource, find_column, read_tables, without_hidden

# Per kind what the columns of sources and of targets are called.
COLUMNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "translation": (("source", "src", "de", "text"), ("target", "tgt", "en")),
        "summarisation": (("source", "document", "article", "text"), ("target", "summary", "highlights")),
    }
)


@dataclass(frozen=True)
class SequencePairs(Rows):
    """One split: sources, and for each one target or several, the first of which is learned from."""

    sources: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sources, and the targets that are learned from."""
        return (*self.sources, *(own[0] for own in self.targets))


class SequenceToSequence(LanguageModel):
    """Texts to turn into others, with their splits of ``SequencePairs``.

    The score is the perplexity of the target, each token given the source and the true tokens before it.
    """

    head = "Seq2SeqLM"
    collator = DataCollatorForSeq2Seq
    objective = Categorical(labelled_tokens)

    def sources(self, split: str) -> list[str]:
        """Sources to decode, in the features' order.

        Raises:
            DataError: If there is no such split.
        """
        return list(self.rows(split).sources)

    def references(self, split: str) -> list[list[str]]:
        """Every reference target of each source, at least one.

        Raises:
            DataError: If there is no such split.
        """
        return [list(own) for own in self.rows(split).targets]

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, sources and first targets each cut to ``reference`` tokens.

        Both get the tokenizer's own special tokens; a target also its end-of-text token if it then has none.

        Raises:
            DataError: If there is no such split, or the tokenizer has no end-of-text or no pad token.
        """
        pairs: SequencePairs = self.rows(split)
        for kind in ("eos", "pad"):
            if getattr(tokenizer, f"{kind}_token_id") is None:
                raise DataError(f"sequence to sequence needs a tokenizer with an {kind} token")
        cut: dict[str, Any] = {"truncation": True, "max_length": reference}
        inputs = tokenizer(list(pairs.sources), **cut)["input_ids"]
        targets = tokenizer(text_target=[own[0] for own in pairs.targets], **cut)["input_ids"]
        end, special = tokenizer.eos_token_id, frozenset(tokenizer.all_special_ids)
        features = tuple(
            {"input_ids": source, "labels": _ended(target, end, special, reference)}
            for source, target in zip(inputs, targets, strict=True)
        )
        return Encoded(features, reference, writes=True)


def _ended(ids: list[int], end: int, special: Set[int], reference: int) -> list[int]:
    """With an end-of-text token: mBART's is followed by the language, some tokenizers leave it out."""
    closing = takewhile(special.__contains__, reversed(ids))
    return ids if end in closing else [*ids[: reference - 1], end]


def load_sequences(
    source: DataSource, known_labels: Sequence[str] | None = None, *, kind: str
) -> SequenceToSequence:
    """Read a task from a file, a dataset folder or a hub id, and fix its splits.

    The text column holds the sources, the label column the targets. A cell is a text or a list of texts: a
    source's are its sentences, a target's are references. Rows share text if either side does.

    Args:
        source: The data.
        known_labels: Not used: the outputs are the tokenizer's vocabulary.
        kind: A key of ``COLUMNS``.

    Raises:
        DataError: If data is missing, empty or misshapen, or too small or too alike to be split.
    """
    tables = read_tables(source)
    columns = _columns(tables["train"], source, kind)
    given = {
        role: _pairs(table, columns, f"{source.data} ({role})", role)
        for role, table in without_hidden(tables, columns[1]).items()
    }
    splits, overlap = split_rows(given, _joined, source)
    record = source.record(kind, {"text": columns[0], "pair": None, "label": columns[1]})
    return SequenceToSequence(record, (), splits, overlap, source.metric)


def _columns(table: pd.DataFrame, source: DataSource, kind: str) -> tuple[str, str]:
    """Columns of sources and of targets; a column named for one side is not taken for the other."""
    wanted = source.columns
    if wanted.text is not None and wanted.text == wanted.label:
        raise DataError(f"column {wanted.text!r} cannot be both source and target")
    texts, targets = COLUMNS[kind]
    text = find_column(
        table, wanted.text, [name for name in texts if name != wanted.label], "text", source.data
    )
    label = find_column(table, wanted.label, [name for name in targets if name != text], "label", source.data)
    return text, label


def _pairs(table: pd.DataFrame, columns: tuple[str, str], source: str, role: str) -> SequencePairs:
    for column, kind in zip(columns, ("text", "label"), strict=True):
        find_column(table, column, (), kind, source)
    cells = [[_texts(cell) for cell in table[column]] for column in columns]
    for column, rows in zip(columns, cells, strict=True):
        if missing := sum(not row for row in rows):
            raise DataError(f"{missing} {role} rows have no text in column {column!r}")
    sources, targets = cells
    return SequencePairs(tuple(" ".join(row) for row in sources), tuple(targets))


def _texts(cell: Any) -> tuple[str, ...]:
    """The texts of a cell; none where it holds anything else. Parquet and the hub give arrays for lists."""
    texts = tuple(cell) if isinstance(cell, list | np.ndarray) else (cell,)
    good = all(isinstance(text, str) and text.strip() for text in texts)
    return texts if good else ()


def _joined(pairs: SequencePairs) -> list[str]:
    return [PAIR_MARK.join((text, *own)) for text, own in zip(pairs.sources, pairs.targets, strict=True)]
