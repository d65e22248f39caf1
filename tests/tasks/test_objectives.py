"""Losses of training: torch's own, closed forms over real positions, gradients that stay finite."""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, rel_entr, softmax
from torch import Tensor, nn

from ldsearch.tasks.objectives import (
    Categorical,
    Objective,
    Regression,
    independent_labels,
    labelled_tokens,
    next_tokens,
    one_label,
    span_ends,
)

Batch = dict[str, Tensor]
ROWS, LENGTHS = 3, (6, 4, 2)
REAL = torch.arange(6) < torch.tensor(LENGTHS)[:, None]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


TOKEN_LABELS = torch.tensor(
    [[-100, 2, 0, -100, 1, -100], [-100, 1, 1, -100, -100, -100], [3, -100] + [-100] * 4]
)
NEXT_LABELS = torch.tensor([[3, 2, 0, 1, 1, 0], [1, 1, 2, 0, -100, -100], [3, 2] + [-100] * 4])
CASES: dict[str, tuple[Objective, tuple[int, ...], Batch]] = {  # objective, shape of logits, batch
    "one": (Categorical(one_label), (ROWS, 4), {"labels": torch.tensor([3, 0, 2])}),
    "number": (Regression(), (ROWS, 1), {"labels": torch.tensor([3.25, 0.0, -1.5])}),
    "several": (
        Categorical(independent_labels),
        (ROWS, 2),
        {"labels": torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])},
    ),
    "tokens": (Categorical(labelled_tokens), (ROWS, 6, 4), {"labels": TOKEN_LABELS}),
    "next": (Categorical(next_tokens), (ROWS, 6, 4), {"labels": NEXT_LABELS}),
    "span": (Categorical(span_ends), (ROWS, 6, 2), {"labels": torch.tensor([[2, 5], [0, 0], [1, 1]])}),
}
every = pytest.mark.parametrize("name", CASES)


def case(name: str) -> tuple[Objective, tuple[int, ...], Batch]:
    objective, shape, batch = CASES[name]
    return objective, shape, {**batch, "attention_mask": REAL.long()}


def both(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Logits of a teacher and of a student."""
    return normal(*shape), normal(*shape, seed=1)


def test_the_loss_of_a_span_is_that_of_rows_cut_to_their_own_tokens() -> None:
    """The mean over rows of the mean of both ends, as stock heads have it; all others' with every task."""
    objective, shape, batch = case("span")
    logits, labels = normal(*shape), batch["labels"]
    ends = [
        nn.functional.cross_entropy(logits[row : row + 1, :length, end], labels[row : row + 1, end])
        for row, length in enumerate(LENGTHS)
        for end in (0, 1)
    ]
    torch.testing.assert_close(objective.loss(logits, batch), torch.stack(ends).mean())


def distributions(name: str, logits: Tensor) -> list[np.ndarray]:
    """The distributions that logits hold, one by one, from NumPy and SciPy alone."""
    values = logits.double().numpy()
    if name == "several":
        return [np.array([1 - p, p]) for p in expit(values).flatten()]
    if name == "span":
        return [softmax(values[row, :n, end]) for row, n in enumerate(LENGTHS) for end in (0, 1)]
    if name == "tokens":
        return [softmax(values[row, token]) for row, token in (TOKEN_LABELS != -100).nonzero().tolist()]
    if name == "next":
        return [softmax(values[row, i]) for row, n in enumerate(LENGTHS) for i in range(n - 1)]
    return [softmax(row) for row in values]


@every
@pytest.mark.parametrize("reverse", [False, True])
def test_a_divergence_is_the_mean_over_what_is_labelled_and_real(name: str, reverse: bool) -> None:
    objective, shape, batch = case(name)
    teacher, student = both(shape)
    if name == "number":
        expected = float((teacher - student).square().mean())
    else:
        pairs = list(zip(distributions(name, teacher), distributions(name, student), strict=True))
        assert len(pairs) == {"one": 3, "several": 6, "tokens": 6, "next": 9, "span": 6}[name]
        expected = np.mean([rel_entr(*(pair[::-1] if reverse else pair)).sum() for pair in pairs])
    assert expected > 0.1
    # What is padding or has no label does not count; a row's last token predicts nothing.
    last = torch.arange(6) >= torch.tensor(LENGTHS)[:, None] - 1
    unread = {"tokens": TOKEN_LABELS == -100, "next": last, "span": ~REAL}
    if name in unread:
        student[unread[name]] = 7.0
    found = objective.divergence(teacher, student, batch, reverse)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_smoothing_moves_its_share_to_every_label_alike(smoothing: float) -> None:
    objective, shape, batch = case("one")
    logits, labels = normal(*shape), batch["labels"]
    wanted = (1 - smoothing) * nn.functional.one_hot(labels, 4) + smoothing / 4
    expected = -(wanted.numpy() * log_softmax(logits.double().numpy(), axis=-1)).sum(axis=-1).mean()
    assert float(objective.loss(logits, batch, smoothing)) == pytest.approx(expected, rel=1e-5)
    objective, shape, batch = case("several")
    logits = normal(*shape)
    wanted = (1 - smoothing) * batch["labels"] + smoothing / 2
    expected_loss = nn.functional.binary_cross_entropy_with_logits(logits, wanted)
    torch.testing.assert_close(objective.loss(logits, batch, smoothing), expected_loss)


@every
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_stay_finite_when_a_softmax_entry_underflows_and_none_is_the_teachers(
    name: str, reverse: bool
) -> None:
    objective, shape, batch = case(name)
    teacher, student = both(shape)
    teacher[..., 0], student[..., -1] = -200.0, -200.0
    teacher[0], student[1] = -200.0, 200.0
    sides = student.requires_grad_(), teacher.requires_grad_()
    for loss in (objective.divergence(teacher, student, batch, reverse), objective.loss(student, batch)):
        gradient, none = torch.autograd.grad(loss, sides, allow_unused=True)
        assert loss.isfinite()
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0
        assert none is None


@every
def test_half_precision_logits_are_taken_in_full_precision(name: str) -> None:
    objective, shape, batch = case(name)
    teacher, student = (logits.bfloat16() for logits in both(shape))
    for half, full in (
        (objective.loss(student, batch), objective.loss(student.float(), batch)),
        (
            objective.divergence(teacher, student, batch),
            objective.divergence(teacher.float(), student.float(), batch),
        ),
    ):
        assert half.dtype == torch.float32
        assert torch.equal(half, full)


def test_rows_without_any_label_teach_nothing() -> None:
    objective, shape, batch = case("tokens")
    batch["labels"] = torch.full_like(batch["labels"], -100)
    teacher, student = both(shape)
    student.requires_grad_()
    for loss in (objective.loss(student, batch), objective.divergence(teacher, student, batch)):
        (gradient,) = torch.autograd.grad(loss, student)
        assert gradient.tolist() == torch.zeros(shape).tolist()
