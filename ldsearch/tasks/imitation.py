"""Imitation: a sub-network's score is how far its answers are from the full model's; no label is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import Encoded, Task
from ldsearch.tasks.classification import TextClassification
from ldsearch.tasks.metrics import Metric, mean
from ldsearch.tasks.objectives import Categorical


@dataclass(frozen=True)
class Imitation(TextClassification):
    """A text classification scored by KL(full model || sub-network) in nats; lower is better.

    Args:
        teacher: The full model's logits, one row per feature of the split that is scored.
    """

    teacher: tuple[NDArray[np.float32], ...] = ()

    @classmethod
    def of(cls, task: Task) -> "Imitation":
        """The same problem, without a teacher yet.

        Raises:
            DataError: If an answer is no distribution over a few classes.
        """
        if not isinstance(task, TextClassification) or not isinstance(task.objective, Categorical):
            raise DataError(
                "--objective kl compares the class probabilities of whole texts (--task classification or "
                "multi-label); search this task by its score"
            )
        return cls(task.source, task.labels, task.splits, task.overlap, task.kind, task.metric_name)

    @property
    def metric(self) -> Metric:
        """The mean divergence over examples."""
        return Metric("kl", self._divergences, mean, higher_is_better=False)

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Each example's divergence; of several labels the mean over them."""
        return self.metric.statistics(np.stack(outputs), np.stack(self.teacher))

    def _divergences(self, student: NDArray[Any], teacher: NDArray[Any]) -> Statistics:
        """From logits, shape (examples, outputs) each, to shape (examples,)."""
        ours, theirs = self._log_probabilities(student), self._log_probabilities(teacher)
        nats = (theirs.exp() * (theirs - ours)).sum(dim=-1)
        divergences: Statistics = nats.reshape(len(student), -1).mean(dim=1).numpy()
        return divergences

    def _log_probabilities(self, logits: NDArray[Any]) -> torch.Tensor:
        """One row for each distribution that the objective sees, an example's rows together."""
        assert isinstance(self.objective, Categorical)
        outputs = torch.from_numpy(logits.astype(np.float64))
        # The objective wants labels, and where they are not compared any will do.
        labels = torch.zeros(outputs.shape, dtype=torch.long)
        return self.objective.rows(outputs, {"labels": labels})[0].log_softmax(dim=-1)
