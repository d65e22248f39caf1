"""Translation and summarisation: one text from another, scored token by token with the target given."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Batch, Collate, DataSource, Encoded, split_named
from ldsearch.tasks.metrics import Metric, metric_named
from ldsearch.tasks.objectives import Categorical, labelled_tokens, summed_nats
from ldsearch.tasks.rows import find_column
from ldsearch.tasks.splits import fix_splits
from ldsearch.tasks.tables import read_tables

# Per kind what the columns of sources and of targets are called.
COLUMNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "translation": (("source", "src", "de", "text"), ("target", "tgt", "en")),
        "summarisation": (("source", "document", "article", "text"), ("target", "summary", "highlights")),
    }
)
# Stands between the texts of a row where rows are compared; no whitespace, so a word of its own.
_MARK = " \0 "


@dataclass(frozen=True)
class SequencePairs:
    """One split: sources, and of each one target or several, the first of which is learned from."""

    sources: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def texts(self) -> tuple[str, ...]:
        """The sources, and the targets that are learned from."""
        return (*self.sources, *(own[0] for own in self.targets))

    def take(self, rows: Sequence[int]) -> "SequencePairs":
        """Some of the rows, in the given order."""
        return SequencePairs(
            tuple(self.sources[row] for row in rows), tuple(self.targets[row] for row in rows)
        )

    @property
    def fingerprint(self) -> str:
        """Changes with any text."""
        return digest(self.sources, self.targets)


@dataclass(frozen=True)
class SequenceToSequence:
    """Texts to be turned into others, with their splits.

    Args:
        source: Where the data came from, enough to read it again (``supernet.json`` records it).
        splits: ``train``, ``search`` and ``report``.
        overlap: What was done so that they share no text, in words; empty where nothing was.
        metric_name: A metric of language models; None takes the first, perplexity.
    """

    source: Mapping[str, Any]
    splits: Mapping[str, SequencePairs]
    overlap: str = ""
    metric_name: str | None = None

    labels = ()
    head = "Seq2SeqLM"
    head_config: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    per_token = False
    objective = Categorical(labelled_tokens)

    @property
    def metric(self) -> Metric:
        """Perplexity of the target, each token told from the source and the true tokens before it."""
        return metric_named("language-model", self.metric_name, 1)

    def sources(self, split: str) -> list[str]:
        """What is to be decoded, in the features' order.

        Raises:
            DataError: If there is no such split.
        """
        return list(split_named(self.splits, split).sources)

    def references(self, split: str) -> list[list[str]]:
        """For each source every target that the data give, at least one.

        Raises:
            DataError: If there is no such split.
        """
        return [list(own) for own in split_named(self.splits, split).targets]

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, sources and first targets each cut to ``reference`` tokens.

        Both get the tokenizer's own special tokens; a target also its end-of-text token if it then has none.

        Raises:
            DataError: If there is no such split, or the tokenizer has no end-of-text or no pad token.
        """
        pairs = split_named(self.splits, split)
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

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """Pads both sides to their longest, or to ``pad_to``; ``labels`` of shape (B, m) with -100."""
        collator = DataCollatorForSeq2Seq(
            tokenizer, padding=True if pad_to is None else "max_length", max_length=pad_to
        )
        return lambda features: dict(collator([dict(feature) for feature in features]))

    def prepare(self, batch: Batch, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> Batch:
        """The batch itself."""
        return batch

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Nats summed over a target's tokens, and their number: shape (B, 2)."""
        return summed_nats(logits, batch["labels"])

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Nats and tokens of each target, shape (examples, 2)."""
        return self.metric.statistics(*np.stack(outputs).astype(np.float64).T)


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
    tables = read_tables(source.data, source.config, source.validation)
    columns = _columns(tables["train"], source, kind)
    given = {
        role: _pairs(table, columns, f"{source.data} ({role})", role)
        for role, table in tables.items()
        # Public test sets hide their targets.
        if role != "report" or (columns[1] in table and not table[columns[1]].isna().all())
    }
    texts = {role: _joined(pairs) for role, pairs in given.items()}
    fixed = fix_splits(texts, source.keep_overlap, search_rows=source.search_rows)
    splits = {role: given[table].take(index.tolist()) for role, (table, index) in fixed.rows.items()}
    record = source.record(kind, {"text": columns[0], "pair": None, "label": columns[1]})
    task = SequenceToSequence(record, splits, fixed.overlap.describe(), source.metric)
    _ = task.metric  # refuses an unknown one before anything is trained
    return task


def _columns(table: pd.DataFrame, source: DataSource, kind: str) -> tuple[str, str]:
    """Of sources and of targets; one that is named for the one side is not looked for on the other."""
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
    return [_MARK.join((text, *own)) for text, own in zip(pairs.sources, pairs.targets, strict=True)]
