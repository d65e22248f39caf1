"""Losses of training: from labels, and from another model's logits. Tensors only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


class Objective(Protocol):
    """The losses of one kind of task; ``batch`` holds ``labels`` and ``attention_mask``."""

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor], smoothing: float = 0.0) -> Tensor:
        """Loss from the labels, a scalar."""

    def divergence(
        self, teacher: Tensor, student: Tensor, batch: Mapping[str, Tensor], reverse: bool = False
    ) -> Tensor:
        """Divergence from a teacher's logits of the same shape, without gradient into them; a scalar."""


@runtime_checkable
class Distributions(Protocol):
    """An objective whose logits hold distributions, which ``--objective kl`` compares; ``Categorical``."""

    @property
    def rows(self) -> Callable[[Tensor, Mapping[str, Tensor]], tuple[Tensor, Tensor]]:
        """From logits and batch to (logits of shape (rows, classes), targets of shape (rows,))."""


@dataclass(frozen=True)
class Categorical:
    """Cross-entropy, and KL divergence, over the distributions that the logits hold.

    Args:
        rows: From logits and batch to (logits of shape (rows, classes), targets of shape (rows,)).
    """

    rows: Callable[[Tensor, Mapping[str, Tensor]], tuple[Tensor, Tensor]]

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor], smoothing: float = 0.0) -> Tensor:
        """Mean cross-entropy in nats."""
        rows, targets = self.rows(logits, batch)
        return nn.functional.cross_entropy(rows.float(), targets, label_smoothing=smoothing)

    def divergence(
        self, teacher: Tensor, student: Tensor, batch: Mapping[str, Tensor], reverse: bool = False
    ) -> Tensor:
        """Mean KL divergence in nats."""
        rows = (self.rows(logits, batch)[0] for logits in (teacher, student))
        return kl_divergence(*rows, reverse=reverse)


class Regression:
    """Squared error; between two models it is, up to a factor, the KL divergence of unit Gaussians."""

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor], smoothing: float = 0.0) -> Tensor:
        """Mean squared error; smoothing has no meaning here."""
        return nn.functional.mse_loss(logits.float().squeeze(-1), batch["labels"].float())

    def divergence(
        self, teacher: Tensor, student: Tensor, batch: Mapping[str, Tensor], reverse: bool = False
    ) -> Tensor:
        """Mean squared difference, the same either way round."""
        return nn.functional.mse_loss(student.float(), teacher.detach().float())


class Vectors:
    """Cosine to a vector, and between two models also the similarities of a batch's rows with each other."""

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor], smoothing: float = 0.0) -> Tensor:
        """Mean of one less the cosine to the label; smoothing has no meaning here."""
        return (1 - nn.functional.cosine_similarity(logits.float(), batch["labels"].float())).mean()

    def divergence(
        self, teacher: Tensor, student: Tensor, batch: Mapping[str, Tensor], reverse: bool = False
    ) -> Tensor:
        """As the loss, to the teacher's vectors, and the mean squared difference of similarities."""
        ours, theirs = (nn.functional.normalize(side.float(), dim=-1) for side in (student, teacher.detach()))
        alike = nn.functional.mse_loss(ours @ ours.T, theirs @ theirs.T)
        return (1 - (ours * theirs).sum(dim=-1)).mean() + alike


@dataclass(frozen=True)
class Relevance:
    """Losses of a score that orders documents; ``labels`` (B, 2) are a document's and its query's number.

    Args:
        squares: Scores are trained to be the labels, by squared error; else to their log-odds, by
            cross-entropy, with labels from 0 to 1.
    """

    squares: bool = False

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor], smoothing: float = 0.0) -> Tensor:
        """Mean over documents; smoothing has no meaning here."""
        scores, labels = relevance(logits).float(), batch["labels"][:, 0].float()
        if self.squares:
            return nn.functional.mse_loss(scores, labels)
        return nn.functional.binary_cross_entropy_with_logits(scores, labels)

    def divergence(
        self, teacher: Tensor, student: Tensor, batch: Mapping[str, Tensor], reverse: bool = False
    ) -> Tensor:
        """Mean squared difference of margins between a query's documents (MarginMSE, Hofstätter et al. 2020).

        Over all pairs of a query's documents in the batch these are twice the variance of what its scores
        differ by. A document alone has no margin.
        """
        off = relevance(student).float() - relevance(teacher.detach()).float()
        alike = (batch["labels"][:, 1, None] == batch["labels"][:, 1]).to(off.dtype)
        return 2 * (off - alike @ off / alike.sum(dim=1)).square().mean()


def relevance(logits: Tensor) -> Tensor:
    """Scores (B,) of outputs: the one, or the second less the first, the log-odds of two classes."""
    return logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)


def kl_divergence(teacher: Tensor, student: Tensor, *, reverse: bool = False) -> Tensor:
    """Mean over rows of KL(teacher || student), in nats, temperature 1.

    Both sides stay in log space, so gradients are finite however far apart the logits are. The
    length-adaptive reference code minimises the reverse, KL(student || teacher) (``--parity``).

    Args:
        teacher: Logits, shape (rows, classes); no gradient flows into them.
        student: Logits, shape (rows, classes).
        reverse: Swap the two sides of the divergence.
    """
    log_teacher = teacher.detach().float().log_softmax(dim=-1)
    log_student = student.float().log_softmax(dim=-1)
    weight, difference = (
        (log_student.exp(), log_student - log_teacher)
        if reverse
        else (log_teacher.exp(), log_teacher - log_student)
    )
    return (weight * difference).sum(dim=-1).mean()


def one_label(logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """One distribution an example: logits (B, labels), labels (B,)."""
    return logits, batch["labels"]


def labelled_tokens(logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """One distribution for each token whose label is not -100: logits (B, n, labels), labels (B, n)."""
    labelled = batch["labels"] != -100
    return logits[labelled], batch["labels"][labelled]


def next_tokens(logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Each token from those before it: logits (B, n, V), labels (B, n); position i predicts label i + 1."""
    return labelled_tokens(logits[:, :-1], {"labels": batch["labels"][:, 1:]})


def summed_nats(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum the negative log-likelihood of each row of a batch, for perplexity.

    Args:
        logits: Shape (B, n, V).
        labels: Shape (B, n); -100 does not count.

    Returns:
        Shape (B, 2): negative log-likelihood in nats summed over a row's labels, and their number.
    """
    labelled = labels != -100
    nats = torch.zeros(labels.shape, device=logits.device)
    nats[labelled] = nn.functional.cross_entropy(logits[labelled].float(), labels[labelled], reduction="none")
    return torch.stack([nats.sum(dim=1), labelled.sum(dim=1).float()], dim=-1)


def span_ends(logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Two distributions over positions an example: logits (B, n, 2), labels (B, 2)."""
    # Finite, so that a divergence is 0 and not NaN where neither side can be.
    masked = logits.float().masked_fill(~batch["attention_mask"].bool()[..., None], -1e4)
    return masked.transpose(1, 2).flatten(0, 1), batch["labels"].flatten()


def independent_labels(logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """A yes-or-no distribution for each label: logits (B, labels), labels (B, labels) of 0 and 1."""
    both = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    return both.flatten(0, 1), batch["labels"].long().flatten()
