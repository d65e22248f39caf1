"""Distillation from a separate teacher: it stays frozen, and a damaged student comes back to it."""

import copy

import torch

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks.objectives import kl_divergence
from ldsearch.training.strategies.base import Fixed
from ldsearch.training.trainer import SupernetTrainer
from tests.tiny import padded_batch, tiny_model
from tests.training.test_trainer import TOKENIZER, trainer_for

PART = Subnet.of_encoder([0, 1, 3], [10, 6, 3], 16)


def trainer_with(tmp_path, student, teacher, loss, **arguments) -> SupernetTrainer:
    plain = trainer_for(tmp_path, Fixed(PART, loss), student, **arguments)
    return SupernetTrainer(
        student,
        Fixed(PART, loss),
        plain.args,
        task=plain.task,
        train=plain.train_dataset,
        search=plain.eval_dataset,
        tokenizer=TOKENIZER,
        teacher=teacher,
    )


def damaged(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    broken = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return broken


def test_a_damaged_sub_network_comes_back_to_its_teacher_and_the_teacher_stays(tmp_path):
    model = tiny_model("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    teacher, student = Supernet(model), Supernet(damaged(model))
    batch = padded_batch([16, 12, 9, 7], seed=3)

    def distance() -> float:
        with torch.no_grad():
            wanted = teacher(batch, Subnet.full(4)).logits
            return float(kl_divergence(wanted, student.eval()(batch, PART).logits))

    start = distance()
    trainer_with(tmp_path, student, teacher, "distill", learning_rate=5e-3, num_train_epochs=15).train()
    assert distance() < start / 2
    for name, tensor in teacher.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_loss_of_a_distillation_step_is_the_divergence_from_the_teachers_full_model(tmp_path):
    model = tiny_model("bert")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    teacher, student = Supernet(copy.deepcopy(model)), Supernet(model)
    trainer = trainer_with(tmp_path, student, teacher, "distill", max_steps=1)
    batch = padded_batch([16, 12], seed=3)
    with torch.no_grad():
        wanted = kl_divergence(teacher(batch, Subnet.full(4)).logits, student(batch, PART).logits)
    trainer.create_optimizer_and_scheduler(1)
    trainer.current_gradient_accumulation_steps = 1
    found = trainer.training_step(student, {**batch, "labels": torch.tensor([0, 1])})
    torch.testing.assert_close(found, wanted)
    assert float(found) > 0


def test_weights_that_the_sub_network_does_not_use_stay_as_they_are(tmp_path):
    model = tiny_model("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    student = Supernet(model)
    trainer_with(tmp_path, student, None, "label", learning_rate=1e-2, max_steps=3).train()
    after = student.model.state_dict()
    unused = [name for name in after if ".layer.2." in name]
    assert unused
    assert all(torch.equal(after[name], before[name]) for name in unused)
    assert not torch.equal(after["classifier.weight"], before["classifier.weight"])
