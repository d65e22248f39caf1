"""Imitation: the score is the divergence of a sub-network's outputs from the full model's, without labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks.base import Batch, Collate, Encoded, Scorer, Task
from ldsearch.tasks.metrics import Metric, mean
from ldsearch.tasks.objectives import Distributions
from ldsearch.trials.intervals import Statistics

# Tells a row of a batch from others, whatever the padding.
Key = tuple[bytes, ...]
# Positions whose divergences are computed at once: of a large vocabulary each takes a megabyte or more.
_POSITIONS = 64


@dataclass(frozen=True)
class Imitation(Scorer):
    """A task scored by KL(full model || sub-network) in nats; lower is better.

    The score is the mean over examples of the mean over an example's scored positions. These are where the
    task's loss has a distribution: over classes, over the tokens that may come next, over where an answer
    starts and where it ends. Where the labels stand is read; what they say is read by decoders only, which
    are given the true tokens so far.

    Args:
        task: The problem.
        teacher: The full model's logits, shape (positions, classes), of each feature that is scored.

    Raises:
        DataError: If the task's outputs are no distributions.
    """

    task: Task
    teacher: Mapping[Key, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.task.objective, Distributions):
            raise DataError(
                "--objective kl compares probabilities, and this task has none: leave it out to search by "
                "the score"
            )

    @property
    def metric(self) -> Metric:
        """The mean divergence over examples."""
        return Metric("kl", _per_example, mean, higher_is_better=False)

    def encode(self, split: str, tokenizer: PreTrainedTokenizerBase, reference: int) -> Encoded:
        """Features of the task, without what its own metric needs."""
        found = self.task.encode(split, tokenizer, reference)
        return Encoded(found.features, found.reference, found.origins, found.writes)

    def collate(self, tokenizer: PreTrainedTokenizerBase, pad_to: int | None) -> Collate:
        """As the task does."""
        return self.task.collate(tokenizer, pad_to)

    def answers(self, logits: Tensor, batch: Batch) -> Iterator[tuple[Key, Tensor]]:
        """Key of each row of a batch, and its logits of shape (positions, classes)."""
        assert isinstance(self.task.objective, Distributions)
        lengths = batch["attention_mask"].sum(dim=1).tolist()
        for row, (key, length) in enumerate(zip(_keys(batch), lengths, strict=True)):
            own = {name: tensor[row : row + 1] for name, tensor in batch.items()}
            outputs = logits[row : row + 1]
            if self.task.per_token:  # positions of a span head are its classes, and pads are none of them
                outputs = outputs[:, :length]
                own = {name: tensor[:, :length] for name, tensor in own.items()}
            yield key, self.task.objective.rows(outputs, own)[0]

    def read(self, logits: Tensor, batch: Batch) -> Tensor:
        """Nats summed over a row's scored positions, and their number: shape (B, 2)."""
        found = [
            torch.stack([_summed_nats(self.teacher[key].to(own.device), own), own.new_tensor(len(own))])
            for key, own in self.answers(logits, batch)
        ]
        return torch.stack(found)

    def statistics(self, outputs: Sequence[NDArray[Any]], encoded: Encoded) -> Statistics:
        """Each example's mean divergence over its positions, shape (examples,); without any it is 0."""
        return self.metric.statistics(np.stack(outputs).astype(np.float64), encoded.origins)


def _per_example(sums: NDArray[np.float64], origins: Sequence[int] | None) -> Statistics:
    """Nats per position, shape (examples,), from (nats, positions) of each feature, shape (features, 2)."""
    example = np.arange(len(sums)) if origins is None else np.unique(origins, return_inverse=True)[1]
    totals = np.zeros((example.max() + 1, 2))
    np.add.at(totals, example, sums)
    nats, positions = totals.T
    found: Statistics = np.divide(nats, positions, out=np.zeros_like(nats), where=positions > 0)
    return found


def _summed_nats(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) summed over rows of logits, shape (positions, classes)."""
    starts = range(0, len(student), _POSITIONS)
    parts = (_nats(teacher[at : at + _POSITIONS], student[at : at + _POSITIONS]).sum() for at in starts)
    return sum(parts, student.new_zeros(()))


def _nats(teacher: Tensor, student: Tensor) -> Tensor:
    """Sum over classes of q - p - p ln(q/p), which is p ln(p/q) since both sum to 1.

    No term is negative, so that in fp32 what is almost alike has a small divergence and not mere rounding.
    """
    theirs, ours = (logits.float().log_softmax(dim=-1) for logits in (teacher, student))
    p, q, difference = theirs.exp(), ours.exp(), ours - theirs
    gained = torch.where(difference > 1, q - p, p * difference.clamp(max=1).expm1())
    return (gained - p * difference).sum(dim=-1)


def _keys(batch: Batch) -> list[Key]:
    """Inputs and labels of each row, without padding."""
    arrays = {name: batch[name].cpu().numpy() for name in sorted(batch)}
    labels, real = arrays.pop("labels"), arrays["attention_mask"].astype(bool)
    found = []
    for row, mask in enumerate(real):
        own = np.atleast_1d(labels[row])
        standing = np.flatnonzero(own != -100)
        inputs = (array[row][mask].tobytes() for array in arrays.values())
        found.append((*inputs, standing.tobytes(), own[standing].tobytes()))
    return found
