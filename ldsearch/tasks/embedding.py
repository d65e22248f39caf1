"""Sentence embeddings: texts, and the vectors that a model gives them, which its sub-networks should keep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedConfig

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Encoded
from ldsearch.tasks.classification import TextClassification
from ldsearch.tasks.labels import Column
from ldsearch.tasks.likeness import OF_VECTORS
from ldsearch.tasks.objectives import Vectors
from ldsearch.tasks.tables import Columns, DataSource, find_columns, is_missing, refuse_rows, usual_column


class SentenceEmbedding(TextClassification):
    """One vector per text, such as a model gave it: ``ldsearch compress`` asks the full model for them."""

    kind = metrics = "embedding"
    head = "SentenceEmbedding"
    reads = ()
    problem_type = ""  # none of stock configurations'
    objective = Vectors()
    likeness = OF_VECTORS
    own_answers = "the scores are cosines to the full model's own vectors in fp32"
    column_names: ClassVar = {
        "text": TextClassification.column_names["text"],
        "label": ("embedding", "vector", "label"),
    }
    label_hint = "a column of vectors; ldsearch compress needs none, it takes the model's own"

    @classmethod
    def find_columns(cls, table: pd.DataFrame, source: DataSource) -> Columns:
        """Columns that were named, else the usual ones; the only column left is the text."""
        wanted, there = source.columns, [str(column) for column in table.columns]
        label = wanted.label or usual_column(there, cls.column_names["label"])
        left = {*there} - {label}
        if wanted.text is None and label in there and len(left) == 1:
            wanted = replace(wanted, text=left.pop())
        return find_columns(table, wanted, cls.column_names, source.data, {"label": cls.label_hint})

    @classmethod
    def is_hidden(cls, cell: Any) -> bool:
        """Whether a cell holds no vector."""
        return not isinstance(cell, list | tuple | np.ndarray) and is_missing(cell)

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        """None: the numbers of a vector have no names."""
        return ()

    @classmethod
    def label_values(cls, column: "Column[Any]", names: Sequence[str], role: str) -> tuple[Any, ...]:
        """The vectors, all of one width."""
        strange = [not isinstance(cell, list | tuple | np.ndarray) or not len(cell) for cell in column]
        refuse_rows(strange, role, f"have no vector (a list of numbers) in {column.name!r}")
        try:
            vectors = np.array([list(cell) for cell in column], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{role} rows have vectors in {column.name!r} that are not all numbers, or not of one width"
            ) from error
        rows = tuple(tuple(vector) for vector in vectors.tolist())
        infinite = (not all(map(math.isfinite, row)) for row in rows)
        refuse_rows(infinite, role, f"have no finite vector in {column.name!r}")
        return rows

    @classmethod
    def blanks(cls, table: pd.DataFrame, source: DataSource, names: Sequence[str]) -> list[Any]:
        """A vector of one 0, for each row."""
        return [[0.0] for _ in range(len(table))]

    def answers(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> list[Any]:
        """The vector of each row."""
        return [[float(number) for number in row] for row in outputs]

    @property
    def head_config(self) -> Mapping[str, Any]:
        """Nothing: a head that is new is the mean."""
        return {}

    def check_model(self, config: PreTrainedConfig) -> None:
        """Refuse vectors of another width than the model's.

        Raises:
            DataError: If they are.
        """
        for rows in self.splits.values():
            for vector in rows.labels[:1]:  # all of a split have one width
                if len(vector) != config.hidden_size:
                    raise DataError(
                        f"the data's vectors have {len(vector)} numbers, the model's {config.hidden_size}: "
                        "--label-column names those of another"
                    )

    def predictions(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """The vectors."""
        return logits.astype(np.float64)

    def probe(self, logits: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """The vectors along random directions: what they depend on, in the mean over directions.

        The loss will not do: of a model that gave the vectors itself it has no gradient.
        """
        directions = torch.randn(logits.shape, generator=generator).to(logits)
        return (logits * directions).sum()
