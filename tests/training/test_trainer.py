"""The trainer: its gradient against gradients taken by hand, its draws, its data order, its checkpoints."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoModelForSequenceClassification,
    BertTokenizer,
    TrainingArguments,
)

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.tasks.objectives import kl_divergence
from ldsearch.training import distillation
from ldsearch.training.sampler import LengthGroupedSampler
from ldsearch.training.strategies import Pass, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from tests.tiny import small_setting, tiny_model

TOKENIZER = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})


def examples(count: int = 24, seed: int = 0) -> Encoded:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 17, count).tolist()
    drawn = [(rng.integers(5, 60, n).tolist(), int(rng.integers(3))) for n in lengths]
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": own} for ids, own in drawn]
    return Encoded(tuple(rows), 16)


def trainer_for(tmp_path, strategy, supernet=None, given=None, **arguments) -> SupernetTrainer:
    """Of six steps an epoch, for two epochs; what is ``given`` is the trainer's, the rest its arguments'."""
    own = {"task": TextClassification({}, ("a", "b", "c"), {}), "train": examples()}
    own |= {"search": examples(8, seed=1), "tokenizer": TOKENIZER}
    values = {
        "output_dir": tmp_path,
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "report_to": "none",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    supernet = supernet or Supernet(tiny_model("bert"), "column")
    return SupernetTrainer(
        supernet, strategy, TrainingArguments(**{**values, **arguments}), **{**own, **(given or {})}
    )


def batch_of(trainer: SupernetTrainer, rows) -> dict[str, torch.Tensor]:
    return trainer.data_collator([dict(row) for row in rows])


class Fixed:
    """A strategy that always names these passes."""

    def __init__(self, passes: list[Pass]) -> None:
        self.named = passes

    def passes(self, draws, progress):
        return self.named


FULL, HALF = Subnet.full(4), Subnet.of_encoder([0, 1, 3], [10, 6, 3], 16)


def without_dropout(supernet: Supernet) -> Supernet:
    distillation.without_dropout(supernet.model)
    return supernet


def gradients_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients(trainer: SupernetTrainer, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of one step, not taken; the model has none afterwards."""
    trainer.current_gradient_accumulation_steps = 1
    trainer.training_step(trainer.supernet, dict(batch))
    found = gradients_of(trainer.supernet)
    trainer.supernet.zero_grad()
    return found


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    """Every weight, to the bit."""
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("count", "parts"), [(4, 1), (7, 3), (2, 3)])
def test_a_step_adds_up_weighted_passes_distilled_from_the_same_rows_of_the_first(tmp_path, count, parts):
    supernet = without_dropout(Supernet(tiny_model("bert")))
    rows = [(offset, parts) for offset in range(parts)]
    shortened = [Pass(HALF, "distill", 0.25, part) for part in rows]
    trainer = trainer_for(tmp_path, Fixed([Pass(FULL, "label", 0.75), *shortened]), supernet)
    batch = batch_of(trainer, examples(count))
    ours = gradients(trainer, batch)
    labels = batch.pop("labels")
    full = supernet(batch, FULL).logits
    half = supernet(batch, HALF).logits
    by_hand = 3 * nn.functional.cross_entropy(full, labels)
    for offset, stride in rows:
        # Of two rows there is no third part: it sees both.
        own = list(range(offset, count, stride)) or list(range(count))
        by_hand = by_hand + kl_divergence(full.detach()[own], half[own])
    (0.25 * by_hand).backward()
    torch.testing.assert_close(ours, gradients_of(supernet), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 1 / 6])
def test_the_clipping_bound_counts_the_losses_that_are_summed(tmp_path, monkeypatch, weight):
    """Each of six gradients has the planted norm: an update moves by their sum, or by six times the bound."""
    planted = [0.5, 3.0, 0.9, 2.0]

    def prepared(folder):
        trainer = trainer_for(
            tmp_path / folder,
            Fixed([Pass(FULL, "label", weight)] * 6),
            max_steps=len(planted),
            optim="sgd",
            learning_rate=1.0,
            lr_scheduler_type="constant",
            save_strategy="steps",
            save_steps=2,
            logging_strategy="steps",
            logging_steps=1,
        )
        slope = trainer.supernet.model.classifier.bias
        monkeypatch.setattr(trainer, "_loss", lambda *_: -planted[trainer.state.global_step] * slope[0])
        return trainer, slope

    trainer, slope = prepared("whole")
    before = float(slope.detach()[0])
    trainer.train()
    moved = float(slope.detach()[0]) - before
    assert moved == pytest.approx(6 * weight * sum(min(norm, 1.0) for norm in planted), rel=1e-4)
    shares = [entry["clipped_share"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert shares == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert trainer.clipped_share == 0.5

    resumed, _ = prepared("resumed")
    resumed.train(resume_from_checkpoint=tmp_path / "whole" / "checkpoint-2")
    assert resumed.state.global_step == 4
    assert resumed.clipped_share == 0.5


def test_draws_differ_by_step_micro_step_and_pass_and_repeat_with_the_seed(tmp_path):
    runs: list[list[tuple[float, int, int]]] = []

    class Recorder(Fixed):
        def passes(self, draws, progress):
            runs[-1].append((progress, *(int(draws(i).integers(2**31)) for i in range(2))))
            return self.named

    for seed in (5, 5, 6):
        runs.append([])
        recorder, folder = Recorder([Pass(FULL, "label", 1.0)]), tmp_path / str(len(runs))
        trainer_for(folder, recorder, seed=seed, gradient_accumulation_steps=2).train()
    # 24 examples, batches of 4, two epochs.
    assert [progress for progress, *_ in runs[0]] == [step / 6 for step in range(6) for _ in range(2)]
    assert len({value for _, *pair in runs[0] for value in pair}) == 24
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("name", ["activation_checkpointing", "gradient_checkpointing"])
@pytest.mark.filterwarnings("ignore:.*deprecated and will be removed in v6:FutureWarning")
def test_the_trainers_flag_recomputes_blocks(tmp_path, name, monkeypatch):
    """That gradients are the same is a law of every family."""
    recomputed = []

    def counting(*arguments, **options):
        recomputed.append(1)
        return checkpoint(*arguments, **options)

    monkeypatch.setattr("ldsearch.supernet.stages.checkpoint", counting)
    for asked in ({}, {name: True}):
        trainer_for(tmp_path, Fixed([Pass(HALF, "label", 1.0)]), max_steps=1, **asked).train()
        assert bool(recomputed) == bool(asked)


def test_checkpoints_load_with_stock_transformers_and_hold_no_pickled_arguments(tmp_path):
    strategy = make_strategy("layerdrop", small_setting(0.5))
    trainer = trainer_for(tmp_path, strategy, save_strategy="epoch")
    trainer.train()
    last = tmp_path / "checkpoint-12"
    assert not (last / "training_args.bin").exists()
    reloaded = AutoModelForSequenceClassification.from_pretrained(last)
    assert_same(reloaded, trainer.supernet.model)


def test_the_trained_weights_are_measured_in_fp32_after_bf16_training(tmp_path):
    trainer = trainer_for(tmp_path, Fixed([Pass(FULL, "label", 1.0)]), bf16=True, max_steps=1)
    trainer.train()
    model = trainer.supernet.model.eval()
    batch = batch_of(trainer, examples(4))
    batch.pop("labels")
    with torch.inference_mode():
        stock = model(**batch).logits
        # The Trainer's own wrapper stays in bf16, which is why train_supernet measures a new one.
        assert not torch.equal(trainer.supernet.eval()(batch, FULL).logits, stock)
        assert torch.equal(Supernet(model)(batch, FULL).logits, stock)


def test_weights_that_the_sub_network_does_not_use_stay_as_they_are(tmp_path):
    supernet = Supernet(tiny_model("bert"))
    before = {name: tensor.clone() for name, tensor in supernet.model.state_dict().items()}
    passes = Fixed([Pass(HALF, "label", 1.0)])
    trainer_for(tmp_path, passes, supernet, learning_rate=1e-2, max_steps=3).train()
    after = supernet.model.state_dict()
    unused = [name for name in after if ".layer.2." in name]
    assert unused
    assert all(torch.equal(after[name], before[name]) for name in unused)
    assert not torch.equal(after["classifier.weight"], before["classifier.weight"])


LENGTHS = np.random.default_rng(0).integers(5, 65, 1_003).tolist()


def order(seed: int, epoch: int, batch_size: int = 16) -> list[int]:
    sampler = LengthGroupedSampler(LENGTHS, batch_size, seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_every_example_comes_once_in_an_order_of_its_seed_and_epoch():
    orders = {(seed, epoch): order(seed, epoch) for seed in range(3) for epoch in range(3)}
    assert all(sorted(found) == list(range(len(LENGTHS))) for found in orders.values())
    assert order(0, 1) == orders[0, 1]
    assert len({tuple(found) for found in orders.values()}) == 9
    assert sorted(LengthGroupedSampler([3, 1, 2], 16, 0)) == [0, 1, 2]


def test_batches_hold_examples_of_like_length_the_longest_first_and_the_short_one_last():
    def lengths(indices: Sequence[int]) -> list[list[int]]:
        return [[LENGTHS[i] for i in indices[start : start + 16]] for start in range(0, len(indices), 16)]

    def padding(batches: list[list[int]]) -> int:
        return sum(max(batch) * len(batch) - sum(batch) for batch in batches)

    found = lengths(order(3, 0))
    assert padding(found) < padding(lengths(np.random.default_rng(1).permutation(len(LENGTHS)))) / 10
    assert max(found[0]) == max(LENGTHS)
    assert len(found[-1]) == 11
    assert max(found[-1]) - min(found[-1]) < 20
