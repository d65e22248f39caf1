"""The user's problem: its data, its labels, its metric."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ldsearch.errors import DataError, unknown
from ldsearch.registry import Registry
from ldsearch.tasks.base import Encoded, Examples, Task
from ldsearch.tasks.classification import LABEL_KINDS, TextClassification, load_classification
from ldsearch.tasks.corpus import NAME as EMBEDDED
from ldsearch.tasks.corpus import load_docstrings
from ldsearch.tasks.language import CausalLanguageModel, MaskedLanguageModel, load_causal, load_masked
from ldsearch.tasks.questions import QuestionAnswering, load_questions
from ldsearch.tasks.sequences import COLUMNS, SequenceToSequence, load_sequences
from ldsearch.tasks.tables import DataSource
from ldsearch.tasks.tokens import TokenClassification, load_tokens


@dataclass(frozen=True)
class TaskKind:
    """One kind of task.

    Args:
        head: The model head it needs, as in the name of the stock class.
        load: Reads it; given the label names of a fine-tuned model, which the data must use.
    """

    head: str
    load: Callable[[DataSource, Sequence[str] | None], Task]


TASKS: Registry[TaskKind] = Registry(
    "tasks",
    {kind: TaskKind(TextClassification.head, partial(load_classification, kind=kind)) for kind in LABEL_KINDS}
    | {
        "tokens": TaskKind(TokenClassification.head, load_tokens),
        "questions": TaskKind(QuestionAnswering.head, load_questions),
        "masked": TaskKind(MaskedLanguageModel.head, load_masked),
        "causal": TaskKind(CausalLanguageModel.head, load_causal),
    }
    | {kind: TaskKind(SequenceToSequence.head, partial(load_sequences, kind=kind)) for kind in COLUMNS},
)


def task_kind(name: str) -> TaskKind:
    """A registered kind of task.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in TASKS:
        raise DataError(unknown("task", name, TASKS))
    return TASKS[name]


def load_task(name: str, source: DataSource, known_labels: Sequence[str] | None = None) -> Task:
    """Read a task and fix its splits.

    Raises:
        DataError: If there is no such task, or its data cannot be used.
    """
    kind = task_kind(name)
    if source.sentences and name != "causal":
        raise DataError(f"--sentences is for --task causal; {name} reads each row by itself")
    if source.data != EMBEDDED:
        return kind.load(source, known_labels)
    if name != "classification" or source != DataSource(EMBEDDED):
        raise DataError(
            f"{EMBEDDED} is a classification task with splits and a metric of its own: "
            "no --task, --metric, --validation, --config, --stride, --keep-overlap, --search-rows or columns"
        )
    return load_docstrings()


__all__ = [
    "EMBEDDED",
    "TASKS",
    "DataSource",
    "Encoded",
    "Examples",
    "Task",
    "TaskKind",
    "TextClassification",
    "load_task",
    "task_kind",
]
