"""A training that is asked to stop saves, stops, and ends where an uninterrupted one ends, bit for bit."""

from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

from ldsearch.supernet import Supernet
from ldsearch.training.checkpoints import StopAfterSaving, last_complete_checkpoint
from ldsearch.training.distillation import Distillation
from ldsearch.training.strategies import Setting, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.interruption import Interrupted, interruptible
from tests.stops import ask_to_stop
from tests.tiny import small_setting, tiny_model
from tests.training.test_trainer import assert_same, examples, trainer_for

# 24 examples in batches of 4: six steps an epoch.
LAST = 18
BEST = {
    "save_strategy": "epoch",
    "eval_strategy": "epoch",
    "load_best_model_at_end": True,
    "metric_for_best_model": "accuracy",
    "save_total_limit": 1,
}
# Checkpoints when the epoch's last step is done, evaluations after: what lies between must not be lost.
APART = {"save_strategy": "steps", "save_steps": 6, "eval_strategy": "epoch"}


class SignalAt(TrainerCallback):
    """SIGTERM while a step runs."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_optimizer_step(self, args, state, control, **_):
        if state.global_step == self.step - 1:  # counted after the optimizer's step
            ask_to_stop()


def make(
    folder: Path, score: str = "column", taught: bool = False, learns: bool = False, **arguments
) -> SupernetTrainer:
    """If ``taught``, distilled from another model, which reads every row before the first step.

    If it ``learns``, drop rates are learned beside the weights.
    """
    torch.manual_seed(0)
    strategy, supernet = make_strategy("lengthdrop", small_setting(0.2)), Supernet(tiny_model("bert"), score)
    if learns:
        setting = Setting.of(supernet, 16, layer_drop=(0.4,), schedule="learned")
        strategy = make_strategy("layerdrop", setting)
    given = {"distillation": Distillation(0.5, 1.0), "teacher": Supernet(tiny_model("bert", seed=1))}
    given = {**given, "taught": examples()} if taught else None
    return trainer_for(folder, strategy, supernet, given, num_train_epochs=3, **arguments)


def train(trainer: SupernetTrainer, folder: Path) -> None:
    with interruptible() as stop:
        trainer.add_callback(StopAfterSaving(stop))
        trainer.train(resume_from_checkpoint=last_complete_checkpoint(folder))


@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        ({}, 8),
        (BEST, 12),
        (APART, 12),
        ({"score": "learned"}, 8),
        ({"taught": True}, 8),
        ({"learns": True}, 8),
    ],
    ids=["never saves, mid-epoch", "keeps the best", "apart", "token score", "targets once", "drop rates"],
)
def test_it_stops_after_the_step_with_a_checkpoint_and_ends_where_an_uninterrupted_one_ends(
    tmp_path, arguments, step
):
    whole = make(tmp_path / "whole", **arguments)
    train(whole, tmp_path / "whole")
    broken = make(tmp_path / "broken", **arguments)
    broken.add_callback(SignalAt(step))
    with pytest.raises(Interrupted):
        train(broken, tmp_path / "broken")
    assert broken.state.global_step == step
    assert last_complete_checkpoint(tmp_path / "broken") == str(tmp_path / f"broken/checkpoint-{step}")
    resumed = make(tmp_path / "broken", **arguments)
    train(resumed, tmp_path / "broken")
    assert resumed.state.best_metric == whole.state.best_metric
    assert resumed.strategy.setting.now.stacks == whole.strategy.setting.now.stacks
    assert whole.supernet.model.config.hidden_dropout_prob > 0
    assert_same(resumed.supernet.model, whole.supernet.model)


def test_a_stop_at_the_last_step_simply_finishes(tmp_path):
    trainer = make(tmp_path)
    trainer.add_callback(SignalAt(LAST))
    train(trainer, tmp_path)
    assert trainer.state.global_step == LAST
    assert last_complete_checkpoint(tmp_path) is None  # none was asked for
