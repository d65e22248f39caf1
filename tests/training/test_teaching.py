"""Targets of a separate teacher: the mixed loss by hand, states from the stock model, each row asked once."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks.objectives import kl_divergence
from ldsearch.training.distillation import Distillation, state_distance
from ldsearch.training.run import fit
from ldsearch.training.strategies import Pass
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.interruption import Interrupted
from tests.stops import ask_to_stop
from tests.tiny import tiny_model
from tests.training.test_trainer import (
    FULL,
    Fixed,
    assert_same,
    batch_of,
    examples,
    gradients,
    gradients_of,
    trainer_for,
    without_dropout,
)

PART = Subnet.of_encoder([0, 2], [10, 3], 16)


@pytest.fixture
def pair() -> tuple[Supernet, Supernet]:
    """A student and another model as its teacher, without dropout."""
    student, teacher = (without_dropout(Supernet(tiny_model("bert", seed=seed))) for seed in (0, 1))
    return student, teacher


def trainer(tmp_path, student, teacher, passes, how, once=False) -> SupernetTrainer:
    given = {"distillation": how, "teacher": teacher, "taught": examples() if once else None}
    return trainer_for(tmp_path, Fixed(passes), student, given)


@pytest.fixture
def asked(pair) -> list[int]:
    """One entry for each call of the teacher."""
    calls = []
    pair[1].register_forward_pre_hook(lambda *inputs: calls.append(1))
    return calls


def first_states(supernet: Supernet, batch: dict[str, torch.Tensor], blocks: list[int]) -> torch.Tensor:
    """From the stock model's own hidden states; index 0 is the embedding."""
    stock = supernet.model(**batch, output_hidden_states=True).hidden_states
    return torch.stack([stock[block + 1][:, 0] for block in blocks], dim=1)


def test_a_mixed_pass_adds_labels_divergence_and_states(tmp_path, pair):
    student, teacher = pair
    blocks = Subnet.of_encoder([0, 1])
    passes = [Pass(FULL, "label", 0.75), Pass(blocks, "distill", 0.25)]
    training = trainer(tmp_path, student, teacher, passes, Distillation(0.3, 2.0))
    batch = batch_of(training, examples(4))
    ours = gradients(training, batch)
    labels = batch.pop("labels")
    wanted = teacher(batch, FULL).logits.detach()
    states = first_states(teacher, batch, [0, 1, 2, 3]).detach()
    total = torch.zeros(())
    # Two blocks are compared with the teacher's second and last.
    for subnet, weight, run, matched in (
        (FULL, 0.75, [0, 1, 2, 3], [0, 1, 2, 3]),
        (blocks, 0.25, [0, 1], [1, 3]),
    ):
        logits = student(batch, subnet).logits
        loss = 0.3 * nn.functional.cross_entropy(logits, labels) + 0.7 * kl_divergence(wanted, logits)
        for place, block in enumerate(matched):
            own = first_states(student, batch, run)[:, place]
            apart = (own - states[:, block]).square().sum(1) / states[:, block].square().sum(1)
            loss = loss + 2.0 * apart.mean() / len(matched)
        total = total + weight * loss
    total.backward()
    torch.testing.assert_close(ours, gradients_of(student), atol=1e-6, rtol=1e-4)


def test_without_a_share_the_full_model_learns_from_labels_alone(tmp_path, pair, asked):
    """And the teacher, which nobody learns from, does not run."""
    student, teacher = pair
    for how in (Distillation(), Distillation(0.5)):
        training = trainer(tmp_path, student, teacher, [Pass(FULL, "label", 1.0)], how)
        batch = batch_of(training, examples(4))
        training.current_gradient_accumulation_steps = 1
        found = float(training.training_step(student, dict(batch)))
        labels = batch.pop("labels")
        wanted = float(nn.functional.cross_entropy(student(batch, FULL).logits.detach(), labels))
        mixed = how.label_share is not None
        assert len(asked) == mixed
        assert (found != pytest.approx(wanted, rel=1e-3)) == mixed


def test_a_teacher_that_reads_each_row_once_gives_the_same_gradient(tmp_path, pair):
    found = []
    for once in (False, True):
        training = trainer(tmp_path, *pair, [Pass(PART, "distill", 1.0)], Distillation(0.5, 1.0), once)
        rows = [training.train_dataset[row] for row in (7, 3, 20, 0)]
        found.append(gradients(training, batch_of(training, rows)))
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=1e-4)


def test_such_a_teacher_is_asked_once_and_may_read_more_than_the_student(tmp_path, pair, asked):
    (student, teacher), whole = pair, examples()
    cut = [{k: v[:4] if isinstance(v, list) else v for k, v in row.items()} for row in whole]
    given = {"train": replace(whole, features=tuple(cut)), "teacher": teacher, "taught": whole}
    passes = Fixed([Pass(FULL, "distill", 1.0)])
    training = trainer_for(tmp_path, passes, student, given, num_train_epochs=3)
    start = copy.deepcopy(student.model).eval()
    batch = batch_of(training, [training.train_dataset[row] for row in (5, 2)])
    assert batch["input_ids"].shape[1] == 4
    training.current_gradient_accumulation_steps = 1
    loss = float(training.training_step(student, batch))
    read = batch_of(training, [whole[row] for row in (5, 2)])
    read.pop("labels")
    with torch.no_grad():
        batch = {name: batch[name] for name in read}
        wanted = kl_divergence(teacher(read, FULL).logits, start(**batch).logits)
    assert loss == pytest.approx(float(wanted), rel=1e-4)
    asked.clear()
    before = copy.deepcopy(teacher)
    training.train()
    assert asked == []  # it had been asked before
    assert_same(teacher, before)


def test_states_are_compared_with_evenly_spaced_blocks():
    deep = torch.arange(1.0, 7.0)[None, :, None]
    for blocks in ([0, 1, 2, 3, 4, 5], [1, 3, 5], [2, 5], [0, 1, 2, 3, 5]):
        assert float(state_distance(deep, deep[:, blocks])) == 0
    teacher = torch.tensor([[[3.0, 4.0], [0.0, 2.0]]])
    assert float(state_distance(teacher, torch.tensor([[[0.0, 1.0]]]))) == pytest.approx(0.25)


def test_a_stop_that_is_asked_for_while_the_teacher_reads_does_not_wait_for_a_step(
    tmp_path, monkeypatch, pair, asked
):
    monkeypatch.setattr("ldsearch.training.trainer._TAUGHT_ROWS", 4)
    training = trainer(tmp_path, *pair, [Pass(FULL, "distill", 1.0)], Distillation(), once=True)
    pair[1].register_forward_pre_hook(lambda *inputs: ask_to_stop())
    with pytest.raises(Interrupted):
        fit(training, tmp_path)
    assert asked == [1]
    assert training.state.global_step == 0
