"""The user's problem: its data, its labels, its metric."""

from collections.abc import Callable, Sequence

import pandas as pd
from transformers import PreTrainedConfig

from ldsearch.errors import DataError, unknown
from ldsearch.registry import Registry
from ldsearch.tasks.base import Encoded, Task
from ldsearch.tasks.classification import MultiLabelClassification, TextClassification, TextRegression
from ldsearch.tasks.corpus import NAME as EMBEDDED
from ldsearch.tasks.corpus import load_docstrings
from ldsearch.tasks.embedding import SentenceEmbedding
from ldsearch.tasks.language import CausalLanguageModel, MaskedLanguageModel
from ldsearch.tasks.questions import QuestionAnswering
from ldsearch.tasks.ranking import Ranking
from ldsearch.tasks.sequences import Summarisation, Translation
from ldsearch.tasks.tables import DataSource
from ldsearch.tasks.tokens import TokenClassification

_KINDS: tuple[type[Task], ...] = (
    TextClassification,
    TextRegression,
    MultiLabelClassification,
    Ranking,
    SentenceEmbedding,
    TokenClassification,
    QuestionAnswering,
    MaskedLanguageModel,
    CausalLanguageModel,
    Translation,
    Summarisation,
)
TASKS: Registry[type[Task]] = Registry("tasks", {task.kind: task for task in _KINDS})


def task_kind(name: str) -> type[Task]:
    """A registered kind of task.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in TASKS:
        raise DataError(unknown("task", name, TASKS))
    return TASKS[name]


def kinds_of_head(head: str, config: PreTrainedConfig) -> list[type[Task]]:
    """The kinds of task that a model with that head may be fine-tuned for."""
    alone = "regression" if config.num_labels == 1 else "single_label_classification"
    wanted = config.problem_type or alone
    kinds = (kind for kind in TASKS.values() if kind.head == head)
    return [kind for kind in kinds if (getattr(kind, "problem_type", "") or wanted) == wanted]


def likeliest_kind(
    kinds: Sequence[type[Task]],
    config: PreTrainedConfig,
    table: Callable[[], pd.DataFrame],
    source: DataSource,
) -> type[Task]:
    """The task kind of a head: the one that claims model and data (``Task.claims``), else the first."""
    return next((kind for kind in kinds if kind.claims(config, table, source)), kinds[0])


def who_reads(option: str) -> list[str]:
    """The kinds of task that declare an option of data; none: every kind reads it, or it is not of data."""
    return [name for name in TASKS if option in TASKS[name].reads]


def load_task(name: str, source: DataSource, known_labels: Sequence[str] | None = None) -> Task:
    """Read a task and fix its splits.

    Raises:
        DataError: If there is no such task, or its data cannot be used.
    """
    kind = task_kind(name)
    if source.sentences and name not in (own := who_reads("sentences")):
        raise DataError(f"--sentences is for --task {', '.join(own)}; {name} reads each row by itself")
    if source.data != EMBEDDED:
        return kind.load(source, known_labels)
    if name != "classification" or source != DataSource(EMBEDDED):
        raise DataError(
            f"{EMBEDDED} is a classification task with splits and a metric of its own: --task, --metric, "
            "--validation, --config, --stride, --keep-overlap, --search-rows and columns are for --data FILE"
        )
    return load_docstrings()


__all__ = [
    "EMBEDDED",
    "TASKS",
    "DataSource",
    "Encoded",
    "Task",
    "TextClassification",
    "kinds_of_head",
    "likeliest_kind",
    "load_task",
    "task_kind",
    "who_reads",
]
