"""Text classification: labelled texts or pairs; one label, several, or a number to predict."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Encoded, Rows, Task, features_of
from ldsearch.tasks.labels import (
    Column,
    alone,
    class_ids,
    class_names,
    fitting,
    in_order,
    label_text,
    nameless,
    refuse_strangers,
    unlabelled,
    with_class_names,
)
from ldsearch.tasks.likeness import OF_NUMBERS
from ldsearch.tasks.objectives import Categorical, Objective, Regression, independent_labels, one_label
from ldsearch.tasks.readers import LINE
from ldsearch.tasks.tables import (
    PAIR_MARK,
    Columns,
    DataSource,
    check_columns,
    find_columns,
    is_missing,
    is_no_text,
    read_written,
    refuse_rows,
    texts_of,
    usual_column,
)
from ldsearch.trials.intervals import Statistics

# A table that has both members of a pair is a pair task.
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("question", "sentence"),
    ("question", "passage"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("query", "passage"),
    ("query", "document"),
    ("query", "text"),
    ("context", "hypothesis"),  # ANLI
    ("title", "description"),  # AG News
    ("#1 String", "#2 String"),  # MRPC as it is distributed
)

_FASTTEXT = "__label__"
_YES_OR_NO = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class TextExamples(Rows):
    """One split: texts, optional second texts, and labels: ids, numbers, or one 0 or 1 for each label."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: tuple[Any, ...]

    @property
    def compared(self) -> Sequence[str]:
        """One text per row: a pair's two, with a mark between."""
        if self.pairs is None:
            return self.texts
        return [PAIR_MARK.join(both) for both in zip(self.texts, self.pairs, strict=True)]


class TextClassification(Task):
    """A problem whose answer is read from the whole text, here one class, with splits of ``TextExamples``."""

    kind = metrics = "classification"
    head = "SequenceClassification"
    # As stock configurations call it.
    problem_type: ClassVar[str] = "single_label_classification"
    objective: ClassVar[Objective] = Categorical(one_label)
    column_names: ClassVar = {
        "text": (
            *("text", "sentence", "content", "review", "document", "docstring"),
            *("utterance", "utt", "comment", "comment_text", "tweet", "headline"),
        ),
        # Those from the eighth on are of MNLI, QQP, MRPC, AG News and BoolQ as they are distributed.
        "label": (
            *("label", "labels", "class", "category", "target", "intent", "sentiment"),
            *("gold_label", "is_duplicate", "Quality", "Class Index", "stars", "answer"),
        ),
    }
    several: ClassVar[bool] = False  # labels a text
    reads: ClassVar[Collection[str]] = ("pair_column", "labels")
    # What is said where no label column is found.
    label_hint: ClassVar[str] = "numbers that are predicted as numbers are --task regression"

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """FastText's lines as rows: a word for each label, then the text."""
        if [*table.columns] != [LINE] or not table[LINE].str.startswith(_FASTTEXT).all():
            return table
        words = [line.split() for line in table[LINE]]
        labels = [[*itertools.takewhile(lambda word: word.startswith(_FASTTEXT), line)] for line in words]
        texts = [" ".join(line[len(own) :]) for line, own in zip(words, labels, strict=True)]
        if not cls.several:
            refuse_rows((len(own) > 1 for own in labels), "given", "have several labels: --task multi-label")
        names = [",".join(word.removeprefix(_FASTTEXT) for word in own) for own in labels]
        return pd.DataFrame({"text": texts, "label": names})

    @classmethod
    def find_columns(cls, table: pd.DataFrame, source: DataSource) -> Columns:
        """Columns that were named, else a usual pair or text; the only column left is the text."""
        wanted, there = source.columns, [str(column) for column in table.columns]
        if wanted.text is None:
            pairs = ([usual_column(there, (name,)) for name in names] for names in _PAIRS)
            pair = next((names for names in pairs if None not in names), None)
            label = wanted.label or usual_column(there, cls.column_names["label"])
            left = {*there} - {wanted.pair, label}
            if pair and wanted.pair is None:
                wanted = replace(wanted, text=pair[0], pair=pair[1])
            elif label in there and len(left) == 1:
                wanted = replace(wanted, text=left.pop())
        if there == [LINE]:
            raise DataError(
                f"{source.data}: lines of text have no labels; a word and its tag a line are --task tokens, "
                "running text is --task masked or causal"
            )
        hints = {"text": "the second text of a pair with --pair-column", "label": cls.label_hint}
        return find_columns(table, wanted, cls.column_names, source.data, hints)

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """GLUE's hidden labels are -1."""
        return is_missing(cell) or label_text(cell) == "-1"

    @classmethod
    def by_class_names(
        cls, tables: Mapping[str, pd.DataFrame], columns: Columns, known: Sequence[str] | None
    ) -> tuple[dict[str, pd.DataFrame], Sequence[str] | None, str]:
        """Names for ids, where the data set has them."""
        return with_class_names(tables, columns.label, known)

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """All that occur, numbers by value; or the model's, which the data must use.

        Of a model without names of its own (LABEL_0, ...) the data's, in order, where there are as many.
        """
        column = train[columns.label]
        if known is not None and nameless(known) and not {*map(label_text, alone(column))} <= {*known}:
            names = class_names(column, None)
            if len(names) == len(known) and not {*names} <= {*map(str, range(len(known)))}:
                return names
        return class_names(column, known)

    @classmethod
    def label_note(cls, names: Sequence[str], known: Sequence[str]) -> str:
        """A note on the data's labels that stand for a model's unnamed ones; else empty."""
        if [*names] == [*known] or not nameless(known):
            return ""
        taken = ", ".join(f"{own} for {name}" for own, name in zip(known, names, strict=True))
        return f"the model's labels have no names: {taken}; --labels says it otherwise"

    @classmethod
    def label_values(cls, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[Any, ...]:
        """One label per row, as JSON can hold it: its id."""
        return class_ids(column, names, role)

    @classmethod
    def read_rows(
        cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str
    ) -> TextExamples:
        """Texts, pairs and labels."""
        pairs = None if columns.pair is None else texts_of(table[columns.pair], role)
        values = cls.label_values(table[columns.label], names, role)
        return TextExamples(texts_of(table[columns.text], role), pairs, values)

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """The first class, for each row."""
        return [names[0]] * len(table)

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """The name of the most likely class of each row."""
        return [self.labels[row.argmax()] for row in outputs]

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Label names and the problem type."""
        return {**super().head_config, "problem_type": self.problem_type}

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Tokenise a split, cut to ``reference`` tokens.

        Raises:
            DataError: If there is no such split, or a text has no token.
        """
        examples: TextExamples = self.rows(split)
        pairs = None if examples.pairs is None else list(examples.pairs)
        tokens = tokenizer(list(examples.texts), pairs, truncation=True, max_length=reference)
        refuse_rows((not ids for ids in tokens["input_ids"]), split, "have a text without any token")
        return Encoded(features_of(tokens, examples.labels), reference)

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """Predictions in the form of the labels, from logits of shape (examples, outputs)."""
        best: NDArray[np.int64] = logits.argmax(axis=-1)
        return best

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Per-example statistics of the metric."""
        labels = np.array([feature["labels"] for feature in encoded])
        return self.metric.statistics(self.predictions(np.stack(outputs)), labels)


class TextRegression(TextClassification):
    """One number per example (STS-B's similarities), which is the output itself."""

    kind = metrics = problem_type = "regression"
    reads = ("pair_column",)
    objective = Regression()
    likeness = OF_NUMBERS
    column_names: ClassVar = {
        "text": TextClassification.column_names["text"],
        "label": ("label", "score", "labels", "target", "similarity", "rating"),
    }
    label_hint = "names of classes are --task classification"

    @classmethod
    def by_class_names(
        cls, tables: Mapping[str, pd.DataFrame], columns: Columns, known: Sequence[str] | None
    ) -> tuple[dict[str, pd.DataFrame], Sequence[str] | None, str]:
        """Numbers stay numbers."""
        return dict(tables), known, ""

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """One output."""
        if known is not None and len(known) != 1:
            raise DataError(
                f"the model classifies {', '.join(known)}; regression needs one output: --task classification"
            )
        return ["score"]

    @classmethod
    def label_values(cls, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[Any, ...]:
        """The numbers."""
        refuse_rows(unlabelled(column), role, "have no label")
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        strange = ~np.isfinite(numbers)
        commas = column[strange].astype(str).str.fullmatch(r"\s*-?\d+,\d+\s*")
        hint = ": a decimal point is needed, not a comma" if strange.any() and commas.all() else ""
        refuse_rows(strange, role, f"have no number in the label column {column.name!r}{hint}")
        return tuple(numbers.tolist())

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """A 0 for each row."""
        return [0.0] * len(table)

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """The output of each row."""
        return [float(row[0]) for row in outputs]

    def probe(self, logits: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """The outputs: the loss has the same gradient in each row but for a factor, which may be 0."""
        return logits.sum()

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """The output itself."""
        return logits[:, 0].astype(np.float64)


class MultiLabelClassification(TextClassification):
    """Any number of labels per example: a list, or names with commas between; the empty text is none."""

    kind = metrics = "multi-label"
    problem_type = "multi_label_classification"
    several = True
    label_hint = (
        "several labels are one column, of lists or of names with commas between, or one of 0 and 1 each: "
        "--label-column joy,anger"
    )
    objective = Categorical(independent_labels)

    @classmethod
    def prepare_table(cls, table: pd.DataFrame, source: DataSource) -> pd.DataFrame:
        """As of the base; columns of 0 and 1 that were named with commas between become one of lists."""
        table = read_written(super().prepare_table(table, source))
        label = source.columns.label
        if label is None or label in table or "," not in label:
            return table
        names = [name.strip() for name in label.split(",")]
        for name in names:
            check_columns(table, Columns(label=name), source.data)
            strange = (label_text(cell).casefold() not in _YES_OR_NO for cell in table[name])
            refuse_rows(strange, "given", f"have neither 0 nor 1 in column {name!r}")
        yes = table[names].map(lambda cell: _YES_OR_NO[label_text(cell).casefold()])
        several = [[name for name, on in zip(names, row, strict=True) if on] for row in yes.to_numpy()]
        return table.assign(**{label: pd.Series(several, table.index)})

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """All that occur; or the model's."""
        distinct = {name for names in map(_several, train[columns.label]) for name in names}
        if known is None and not distinct:
            raise DataError(f"no row of {columns.label!r} has a label: name another with --label-column")
        return in_order(distinct) if known is None else fitting(distinct, known)

    @classmethod
    def label_values(cls, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[Any, ...]:
        """1 or 0 for each label."""
        rows = [set(_several(value)) for value in column]
        refuse_strangers(set().union(*rows) - set(names), role)
        return tuple(tuple(float(name in row) for name in names) for row in rows)

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """No label, for each row."""
        return [[] for _ in range(len(table))]

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """The names of the labels that are more likely than not, of each row."""
        return [[name for name, logit in zip(self.labels, row, strict=True) if logit > 0] for row in outputs]

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """1 where a label is more likely than not."""
        return (logits > 0).astype(np.int64)


def _several(value: Any) -> list[str]:
    if isinstance(value, str):
        if value.startswith("[") and value.endswith("]"):
            raise DataError(
                f"{value!r} is a list as NumPy prints it: a csv has names with commas between, jsonl and "
                "parquet have lists"
            )
        return [name.strip() for name in value.split(",") if name.strip()]
    if isinstance(value, list | tuple | np.ndarray) and not any(map(is_no_text, value)):
        return [label_text(name) for name in value]
    raise DataError(
        f"several labels are a list, or names with commas between, not {value!r}: name another column with "
        "--label-column"
    )
