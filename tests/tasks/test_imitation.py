"""Imitation: divergences per example, their mean the objective's own, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from ldsearch.errors import DataError
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.tasks.base import score
from ldsearch.tasks.imitation import Imitation
from ldsearch.tasks.tokens import TokenClassification

RNG = np.random.default_rng(0)
TEACHER, STUDENT = RNG.normal(0, 2, (2, 9, 3)).astype(np.float32)
NAMES = ("a", "b", "c")


def imitating(kind: str, teacher=TEACHER) -> Imitation:
    return replace(Imitation.of(TextClassification({}, NAMES, {}, kind=kind)), teacher=tuple(teacher))


def probabilities(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_each_example_has_scipys_relative_entropy():
    found = imitating("classification").statistics(list(STUDENT), Encoded((), 8))
    expected = entropy(probabilities(TEACHER), probabilities(STUDENT), axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_several_labels_are_as_many_coins():
    found = imitating("multi-label").statistics(list(STUDENT), Encoded((), 8))
    coins = [np.stack([1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))]) for x in (TEACHER, STUDENT)]
    np.testing.assert_allclose(found, entropy(*coins, axis=0).mean(axis=1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["classification", "multi-label"])
def test_their_mean_is_the_divergence_of_training(kind):
    task = imitating(kind)
    labels = torch.zeros(9, dtype=torch.long) if kind == "classification" else torch.zeros(9, 3)
    divergence = task.objective.divergence(*map(torch.tensor, (TEACHER, STUDENT)), {"labels": labels})
    found = score(task.metric, task.statistics(list(STUDENT), Encoded((), 8)))
    assert found.value == pytest.approx(float(divergence), rel=1e-5)
    assert found.loss == found.value  # lower is better


def test_the_full_model_is_like_itself_and_certain_answers_are_finite():
    logits = np.array([[0, 200, -200], [1, 2, 3]], dtype=np.float32)
    same = imitating("classification", logits).statistics(list(logits), Encoded((), 8))
    assert same.tolist() == [0.0, 0.0]
    turned = imitating("classification", logits).statistics(list(logits[:, ::-1]), Encoded((), 8))
    assert np.isfinite(turned).all()


@pytest.mark.parametrize(
    "task",
    [TextClassification({}, ("score",), {}, kind="regression"), TokenClassification({}, NAMES, {}, "f1")],
    ids=["regression", "tokens"],
)
def test_other_answers_are_refused(task):
    with pytest.raises(DataError, match="class probabilities of whole texts"):
        Imitation.of(task)
