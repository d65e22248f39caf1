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
from tests.training.test_trainer import FULL, TOKENIZER, Fixed, examples, gradients, trainer_for

PART = Subnet.of_encoder([0, 2], [10, 3], 16)


def models() -> tuple[Supernet, Supernet]:
    """A student and another model as its teacher, without dropout."""
    found = []
    for seed in (0, 1):
        model = tiny_model("bert", seed=seed)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        found.append(Supernet(model))
    return found[0], found[1]


def trainer(tmp_path, student, teacher, passes, how, once=False, **arguments) -> SupernetTrainer:
    plain = trainer_for(tmp_path, Fixed(passes), student, **arguments)
    return SupernetTrainer(
        student,
        Fixed(passes),
        plain.args,
        task=plain.task,
        train=examples(),
        search=examples(8, seed=1),
        tokenizer=TOKENIZER,
        distillation=how,
        teacher=teacher,
        taught=examples() if once else None,
    )


def first_states(supernet: Supernet, batch: dict[str, torch.Tensor], blocks: list[int]) -> torch.Tensor:
    """From the stock model's own hidden states; index 0 is the embedding."""
    stock = supernet.model(**batch, output_hidden_states=True).hidden_states
    return torch.stack([stock[block + 1][:, 0] for block in blocks], dim=1)


def test_a_mixed_pass_adds_labels_divergence_and_states(tmp_path):
    student, teacher = models()
    blocks = Subnet.of_encoder([0, 1])
    passes = [Pass(FULL, "label", 0.75), Pass(blocks, "distill", 0.25)]
    training = trainer(tmp_path, student, teacher, passes, Distillation(0.3, 2.0))
    batch = training.data_collator([dict(row) for row in examples(4)])
    ours = gradients(training, batch)

    student.zero_grad()
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
    for name, parameter in student.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_without_a_share_the_full_model_learns_from_labels_alone(tmp_path):
    """And the teacher, which nobody learns from, does not run."""
    student, teacher = models()
    calls = []
    teacher.register_forward_pre_hook(lambda *inputs: calls.append(1))
    batch = None
    found = []
    for how in (Distillation(), Distillation(0.5)):
        training = trainer(tmp_path, student, teacher, [Pass(FULL, "label", 1.0)], how)
        batch = training.data_collator([dict(row) for row in examples(4)])
        training.current_gradient_accumulation_steps = 1
        found.append(float(training.training_step(student, dict(batch))))
        assert len(calls) == (how.label_share is not None)
    labels = batch.pop("labels")
    with torch.no_grad():
        wanted = float(nn.functional.cross_entropy(student(batch, FULL).logits, labels))
    assert found[0] == pytest.approx(wanted, rel=1e-5)
    assert found[1] != pytest.approx(wanted, rel=1e-3)


def test_a_teacher_that_reads_each_row_once_gives_the_same_gradient(tmp_path):
    student, teacher = models()
    passes = [Pass(PART, "distill", 1.0)]
    rows = [7, 3, 20, 0]
    found = []
    for once in (False, True):
        training = trainer(tmp_path, student, teacher, passes, Distillation(0.5, 1.0), once)
        dataset = training.train_dataset
        found.append(gradients(training, training.data_collator([dict(dataset[row]) for row in rows])))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, atol=1e-6, rtol=1e-4, msg=name)


def test_such_a_teacher_is_asked_once_and_may_read_more_than_the_student(tmp_path):
    student, teacher = models()
    calls = []
    teacher.register_forward_pre_hook(lambda *inputs: calls.append(1))
    whole = examples()
    short = replace(
        whole,
        features=tuple(
            {name: value[:4] if isinstance(value, list) else value for name, value in row.items()}
            for row in whole
        ),
    )
    plain = trainer_for(tmp_path, Fixed([Pass(FULL, "distill", 1.0)]), student, num_train_epochs=3)
    training = SupernetTrainer(
        student,
        plain.strategy,
        plain.args,
        task=plain.task,
        train=short,
        search=examples(8, seed=1),
        tokenizer=TOKENIZER,
        teacher=teacher,
        taught=whole,
    )
    start = copy.deepcopy(student.model).eval()
    batch = training.data_collator([dict(training.train_dataset[row]) for row in (5, 2)])
    assert batch["input_ids"].shape[1] == 4
    training.current_gradient_accumulation_steps = 1
    loss = float(training.training_step(student, batch))
    read = training.data_collator([dict(whole[row]) for row in (5, 2)])
    read.pop("labels")
    with torch.no_grad():
        batch = {name: batch[name] for name in read}
        wanted = kl_divergence(teacher(read, FULL).logits, start(**batch).logits)
    assert loss == pytest.approx(float(wanted), rel=1e-4)
    calls.clear()
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    training.train()
    assert calls == []  # it had been asked before
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())


def test_states_are_compared_with_evenly_spaced_blocks():
    deep = torch.arange(1.0, 7.0)[None, :, None]
    for blocks in ([0, 1, 2, 3, 4, 5], [1, 3, 5], [2, 5], [0, 1, 2, 3, 5]):
        assert float(state_distance(deep, deep[:, blocks])) == 0
    teacher = torch.tensor([[[3.0, 4.0], [0.0, 2.0]]])
    assert float(state_distance(teacher, torch.tensor([[[0.0, 1.0]]]))) == pytest.approx(0.25)


def test_a_stop_that_is_asked_for_while_the_teacher_reads_does_not_wait_for_a_step(tmp_path, monkeypatch):
    student, teacher = models()
    monkeypatch.setattr("ldsearch.training.trainer._TAUGHT_ROWS", 4)
    training = trainer(tmp_path, student, teacher, [Pass(FULL, "distill", 1.0)], Distillation(), once=True)
    calls = []

    def asks(*inputs: object) -> None:
        calls.append(1)
        ask_to_stop()

    teacher.register_forward_pre_hook(asks)
    with pytest.raises(Interrupted):
        fit(training, tmp_path)
    assert calls == [1]
    assert training.state.global_step == 0
