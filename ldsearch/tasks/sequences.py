"""Translation and summarisation: one text from another, scored token by token with the target given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Encoded, Rows, special_ids
from ldsearch.tasks.language import LanguageModel
from ldsearch.tasks.objectives import Categorical, labelled_tokens
from ldsearch.tasks.tables import PAIR_MARK, Columns, DataSource, is_blank, refuse_rows


@dataclass(frozen=True)
class SequencePairs(Rows):
    """One split: sources, and for each one target or several, the first of which is learned from."""

    sources: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sources, and the targets that are learned from."""
        return (*self.sources, *(references[0] for references in self.targets))

    @property
    def compared(self) -> Sequence[str]:
        """Source and targets of each row: rows share text if either side does."""
        return [
            PAIR_MARK.join((source, *own)) for source, own in zip(self.sources, self.targets, strict=True)
        ]


def language(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token of the language that every target begins with, as NLLB's and M2M100's do; None: none.

    Raises:
        DataError: If the tokenizer writes languages into texts and does not know the targets'.
    """
    if getattr(tokenizer, "tgt_lang", "") is None:  # transformers would take the sources'
        raise DataError(
            f"a {type(tokenizer).__name__} writes languages into texts: set its src_lang and tgt_lang, and "
            "save it beside the model"
        )
    first = tokenizer(text_target="")["input_ids"][:1] if hasattr(tokenizer, "tgt_lang") else []
    return None if first == [tokenizer.eos_token_id] else next(iter(first), None)


class SequenceToSequence(LanguageModel):
    """Texts to turn into others, with their splits of ``SequencePairs``.

    The text column holds the sources, the label column the targets. A cell is a text or a list of texts: a
    source's are its sentences, a target's are references. The score is the perplexity of the target, each
    token given the source and the true tokens before it.
    """

    head = "Seq2SeqLM"
    objective = Categorical(labelled_tokens)

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """A column for each language where one column holds them all, as WMT's files do on the Hub."""
        pairs = table.get("translation", pd.Series())
        if len(pairs) and all(isinstance(pair, Mapping) for pair in pairs):
            return pd.DataFrame(pairs.tolist())
        return table

    @classmethod
    def read_rows(
        cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str
    ) -> SequencePairs:
        """Sources, their sentences joined, and targets."""
        sides = []
        for column in (columns.text, columns.label):
            # Parquet and the hub give arrays for lists.
            cells = [
                tuple(cell) if isinstance(cell, list | np.ndarray) else (cell,) for cell in table[column]
            ]
            refuse_rows(
                (not texts or any(map(is_blank, texts)) for texts in cells),
                role,
                f"have no text in column {column!r}",
            )
            sides.append(tuple(cells))
        return SequencePairs(tuple(" ".join(texts) for texts in sides[0]), sides[1])

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, sources and first targets each cut to ``reference`` tokens.

        Both get the tokenizer's own special tokens; a target also its end-of-text token if it then has none:
        mBART's is followed by the language, some tokenizers leave it out.

        Raises:
            DataError: If there is no such split, or the tokenizer has no end-of-text or no pad token, or does
                not know the targets' language.
        """
        pairs: SequencePairs = self.rows(split)
        language(tokenizer)
        end, _ = special_ids(tokenizer, "eos", "pad")
        cut: dict[str, Any] = {"truncation": True, "max_length": reference}
        inputs = tokenizer(list(pairs.sources), **cut)["input_ids"]
        targets = tokenizer(text_target=[references[0] for references in pairs.targets], **cut)["input_ids"]
        special, features = frozenset(tokenizer.all_special_ids), []
        for source, target in zip(inputs, targets, strict=True):
            ended = end in takewhile(special.__contains__, reversed(target))
            labels = target if ended else [*target[: reference - 1], end]
            features.append({"input_ids": source, "labels": labels})
        return Encoded(tuple(features), reference, writes=True)


class Translation(SequenceToSequence):
    """Sentences in another language."""

    kind = "translation"
    column_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "text": ("source", "src", "de", "text"),
        "label": ("target", "tgt", "en"),
    }


class Summarisation(SequenceToSequence):
    """Documents and their summaries."""

    kind = "summarisation"
    column_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "text": ("source", "document", "article", "dialogue", "text"),
        "label": ("target", "summary", "highlights"),
    }
