"""The trainer with other kinds of task: its losses are the task's, its evaluation the evaluator's."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from ldsearch.costs.macs import Macs
from ldsearch.evaluation import Evaluator
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.tasks.base import score
from ldsearch.tasks.classification import MultiLabelClassification, TextRegression
from ldsearch.tasks.tokens import EncodedWords, TokenClassification
from ldsearch.training.strategies import Pass
from tests.tiny import tiny_model
from tests.training.test_trainer import (
    FULL,
    HALF,
    TOKENIZER,
    Fixed,
    batch_of,
    examples,
    gradients,
    gradients_of,
    trainer_for,
    without_dropout,
)

HEADS = {
    "regression": ("SequenceClassification", TextRegression({}, ("score",), {})),
    "multi-label": ("SequenceClassification", MultiLabelClassification({}, ("a", "b"), {})),
    "tokens": ("TokenClassification", TokenClassification({}, ("a", "b", "c"), {}, metric_name="accuracy")),
}


def labelled(kind: str, count: int, seed: int = 0) -> Encoded:
    """The examples with labels of a kind; the tokens' own where tokens are labelled."""
    label = {
        "regression": lambda ids: ids[0] / 10,
        "multi-label": lambda ids: (float(ids[0] % 2), float(ids[1] % 2)),
        "tokens": lambda ids: [token % 3 for token in ids],
    }[kind]
    rows = tuple({**row, "labels": label(row["input_ids"])} for row in examples(count, seed))
    if kind != "tokens":
        return Encoded(rows, 16)
    tags = tuple(tuple(row["labels"]) for row in rows)
    firsts = tuple(np.arange(len(row)) for row in tags)
    return EncodedWords(features=rows, reference=16, tags=tags, firsts=firsts)


def trainer_of(tmp_path, kind: str, passes: list[Pass], **arguments):
    head, task = HEADS[kind]
    supernet = without_dropout(Supernet(tiny_model("bert", head=head, labels=len(task.labels))))
    given = {"task": task, "train": labelled(kind, 24), "search": labelled(kind, 11, seed=1)}
    return trainer_for(tmp_path, Fixed(passes), supernet, given, **arguments)


@pytest.mark.parametrize("kind", HEADS)
def test_a_step_takes_its_losses_from_the_task(tmp_path, kind):
    trainer = trainer_of(tmp_path, kind, [Pass(FULL, "label", 0.75), Pass(HALF, "distill", 0.25)])
    batch = batch_of(trainer, labelled(kind, 5))
    ours = gradients(trainer, batch)
    supernet, objective = trainer.supernet, trainer.task.objective
    full, half = (supernet(supernet.inputs(batch), subnet).logits for subnet in (FULL, HALF))
    loss = 0.75 * objective.loss(full, batch) + 0.25 * objective.divergence(full.detach(), half, batch)
    loss.backward()
    torch.testing.assert_close(ours, gradients_of(supernet), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", HEADS)
def test_an_evaluation_is_the_score_of_the_full_model_in_whatever_order_it_trains(tmp_path, kind):
    arguments = {"train_sampling_strategy": "group_by_length", "per_device_eval_batch_size": 3}
    trainer = trainer_of(tmp_path, kind, [Pass(FULL, "label", 1.0)], **arguments)
    found = trainer.evaluate()
    task, search = trainer.task, labelled(kind, 11, seed=1)
    costs = (Macs(trainer.supernet.shape, search.workload),)
    evaluator = Evaluator(
        trainer.supernet, task, search, split="search", tokenizer=TOKENIZER, costs=costs, fingerprint="f"
    )
    expected = score(task.metric, evaluator.statistics(FULL)).value
    assert found[f"eval_{task.metric.name}"] == pytest.approx(expected, abs=1e-6)


def test_a_batch_is_prepared_once_a_step_from_draws_of_its_own(tmp_path):
    class Shuffles(TextClassification):
        drawn: ClassVar[list[int]] = []

        def prepare(self, batch, tokenizer, rng):
            self.drawn.append(int(rng.integers(2**31)))
            assert tokenizer is TOKENIZER
            return {**batch, "labels": torch.zeros_like(batch["labels"])}

    supernet = without_dropout(Supernet(tiny_model("bert")))
    strategy, task = Fixed([Pass(FULL, "label", 1.0)]), Shuffles({}, ("a", "b", "c"), {})
    trainer = trainer_for(tmp_path, strategy, supernet, {"task": task}, max_steps=3)
    batch = batch_of(trainer, examples(4))
    ours = gradients(trainer, batch)
    zeros = {**batch, "labels": torch.zeros_like(batch["labels"])}
    assert (batch["labels"] > 0).any()
    expected = gradients(trainer_for(tmp_path, strategy, supernet), zeros)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)
    Shuffles.drawn.clear()
    trainer.train()
    assert len(set(Shuffles.drawn)) == len(Shuffles.drawn) == 3
