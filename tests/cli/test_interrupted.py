"""train-supernet on a bad day: a signal, a full disk, code where tensors belong."""

import errno
import os
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import typer
from transformers import PreTrainedModel

from ldsearch.commands.console import resumable
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.interruption import Interrupted
from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, Outcome
from tests.stops import ask_to_stop

Weights = dict[str, torch.Tensor]

SAVE = PreTrainedModel.save_pretrained


def last_line(outcome: Outcome) -> str:
    """What is said below the Trainer's progress bar."""
    assert outcome.err.endswith("\n")
    return outcome.err.splitlines()[-1]


def test_a_stop_after_the_last_step_lets_the_training_finish(ldsearch: Ldsearch, place: Path) -> None:
    def signalled(self: PreTrainedModel, folder: Path, state_dict: Weights) -> None:
        ask_to_stop()
        SAVE(self, folder, state_dict=state_dict)

    with mock.patch.object(PreTrainedModel, "save_pretrained", signalled):
        ldsearch.done(*TRAIN, *EPOCHS, "--save_strategy", "no", "--name", "again")
    assert (place / "runs/again/supernet.json").exists()


@pytest.mark.parametrize(
    ("stop", "code"),
    [(Interrupted(signal.SIGTERM), 143), (Interrupted(signal.SIGINT), 130), (KeyboardInterrupt(), 130)],
)
def test_a_stop_becomes_a_sentence_and_the_shells_exit_code(
    stop: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught, resumable("do it again"):
        raise stop
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == "\ninterrupted: do it again\n"


def test_a_full_disk_at_the_very_end_costs_no_training(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, *EPOCHS, "--name", "again"]

    def saves_checkpoints_only(self: PreTrainedModel, folder: Path, state_dict: Weights) -> None:
        if Path(folder).name == "again":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        SAVE(self, folder, state_dict=state_dict)

    with mock.patch.object(PreTrainedModel, "save_pretrained", saves_checkpoints_only):
        full = ldsearch(*command)
    room = "No space left on device; free some space and run the same command again"
    assert (full.code, last_line(full)) == (1, f"error: cannot write to runs/again: {room}")
    assert (place / "runs/again/checkpoints/checkpoint-2").exists()
    monkeypatch.delattr(SupernetTrainer, "training_step")  # the stock Trainer's would fail
    ldsearch.done(*command)


class Touches:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("ran"),))


def test_an_interrupted_training_goes_on_from_a_checkpoint_without_pickles(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*TRAIN, "--num_train_epochs", "3", "--name", "a")
    step, steps = SupernetTrainer.training_step, []

    def stepping(self: SupernetTrainer, *arguments: Any, **named: Any) -> torch.Tensor:
        steps.append(self.state.global_step)
        if steps == [0, 1, 2]:  # in the middle of the second epoch
            ask_to_stop()
        return step(self, *arguments, **named)

    monkeypatch.setattr(SupernetTrainer, "training_step", stepping)
    stopped = ldsearch(*command)
    assert stopped.code == 128 + signal.SIGTERM
    assert last_line(stopped) == "interrupted: run the same command again to go on from the last checkpoint"
    assert os.listdir("runs/a/checkpoints") == ["checkpoint-3"]  # 48 rows in batches of 32
    assert not Path("runs/a/supernet.json").exists()
    checkpoint = Path("runs/a/checkpoints/checkpoint-3")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        before = (checkpoint / name).read_bytes()
        torch.save(Touches(), checkpoint / name)
        refused = ldsearch(*command)
        assert refused.code == 2
        assert last_line(refused).startswith(f"error: {checkpoint} holds more than tensors")
        assert not (place / "ran").exists()
        (checkpoint / name).write_bytes(before)
    ldsearch.done(*command)
    assert steps == [0, 1, 2, 3, 4, 5]
