"""train-supernet: what it leaves, and that an interrupted training is as good as an uninterrupted one."""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, TrainerCallback

from ldsearch.bench import Bench
from ldsearch.training.trainer import SupernetTrainer
from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, read, weights


def test_a_trained_supernet_is_an_ordinary_model_with_the_names_of_its_labels(place: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained("runs/tiny")
    assert model.config.id2label == {0: "bad", 1: "good"}
    record = read(place / "runs/tiny/supernet.json")
    assert (record["blocks"], record["reference"], record["strategy"]) == (2, 16, "lengthdrop")
    assert record["splits"]["train"]["examples"] == 48
    assert record["splits"]["search"]["examples"] == 6
    assert not (place / "runs/tiny/checkpoints").exists()


@pytest.mark.parametrize("strategy", ["plain", "layerdrop"])
def test_the_other_strategies_train_too(ldsearch: Ldsearch, place: Path, strategy: str) -> None:
    outcome = ldsearch(*TRAIN, *EPOCHS, "--strategy", strategy)
    assert outcome.code == 0
    assert f"supernet runs/reviews-{strategy}:" in outcome.out
    searched = ldsearch("evolve", "--supernet", f"runs/reviews-{strategy}", "--evaluations", 2)
    assert searched.code == 0
    assert (
        searched.err
        == f"note: lengths were not trained ({strategy}): scores of shortened inputs will suffer\n"
    )


def test_the_token_score_is_the_one_that_was_asked_for(ldsearch: Ldsearch, place: Path) -> None:
    outcome = ldsearch(*TRAIN, *EPOCHS, "--token-score", "power", "--name", "powered")
    assert outcome.code == 0, outcome.err
    assert read(place / "runs/powered/supernet.json")["score"] == "power"
    assert read(place / "runs/tiny/supernet.json")["score"] == "column"
    assert Bench.open("runs/powered").supernet.score == "power"
    refused = ldsearch(*TRAIN, "--token-score", "sideways", "--name", "new")
    assert refused.code == 2
    assert "unknown token score 'sideways': use one of column, power" in refused.err
    assert not (place / "runs/new").exists()


def test_a_fine_tuned_classifier_keeps_its_head_and_its_labels(ldsearch: Ldsearch, place: Path) -> None:
    again = ("--model", "runs/tiny", "--learning_rate", "0", "--name", "again")
    assert ldsearch(*TRAIN, *EPOCHS, *again).code == 0
    before, after = weights(place / "runs/tiny"), weights(place / "runs/again")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert read(place / "runs/again/supernet.json")["labels"] == ["bad", "good"]


class StopsAfterOneEpoch(TrainerCallback):
    """Ctrl-C, right after the first checkpoint."""

    def on_save(self, *_: object, **__: object) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_training_goes_on_and_ends_at_the_weights_of_an_uninterrupted_one(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, "--num_train_epochs", "3"]
    make = SupernetTrainer.__init__

    def interrupted(self: SupernetTrainer, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)  # type: ignore[arg-type]
        self.add_callback(StopsAfterOneEpoch())

    with monkeypatch.context() as patch:
        patch.setattr(SupernetTrainer, "__init__", interrupted)
        outcome = ldsearch(*command, "--name", "a")
    assert outcome.code == 130
    assert "interrupted: run the same command again" in outcome.err
    assert os.listdir(place / "runs/a/checkpoints") == ["checkpoint-2"]  # 54 rows in batches of 32
    assert not (place / "runs/a/supernet.json").exists()
    assert "runs/tiny:" in ldsearch("evolve", "--dry-run").out.replace(" 6 search examples", "")

    steps: list[int] = []
    step = SupernetTrainer.training_step

    def counting(self: SupernetTrainer, *arguments: object, **named: object) -> torch.Tensor:
        steps.append(self.state.global_step)
        return step(self, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(SupernetTrainer, "training_step", counting)
        assert ldsearch(*command, "--name", "a").code == 0
    assert steps == [2, 3, 4, 5]
    assert ldsearch(*command, "--name", "b").code == 0
    resumed, straight = weights(place / "runs/a"), weights(place / "runs/b")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)
