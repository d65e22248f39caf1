"""train-supernet on a bad day: a signal, a full disk, code where tensors belong."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import typer
from transformers import PreTrainedModel, TrainerCallback

from ldsearch.commands.console import resumable
from ldsearch.interruption import Interrupted
from ldsearch.training.trainer import SupernetTrainer
from tests.cli.conftest import CONFIG, EPOCHS, TRAIN, Ldsearch, Outcome, weights

ROOM = "free some space and run the same command again"


def last_line(outcome: Outcome) -> str:
    """What is said below the Trainer's progress bar."""
    assert outcome.err.endswith("\n")
    return outcome.err.splitlines()[-1]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


# A tiny training is over before a signal finds it.
SLOWLY = """
import time
from ldsearch.cli import main
from ldsearch.training.trainer import SupernetTrainer

step = SupernetTrainer.training_step

def slow(*arguments):
    time.sleep(0.2)
    return step(*arguments)

SupernetTrainer.training_step = slow
main()
"""


def test_sigterm_ends_a_training_with_a_sentence_and_the_same_command_ends_at_the_same_weights(
    ldsearch: Ldsearch, place: Path
) -> None:
    command = [*TRAIN, "--num_train_epochs", "40"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *command, "--name", "a"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as in this process
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(place / "runs/a/checkpoints/checkpoint-2/trainer_state.json", process)  # the first epoch's end
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "finishing the current step; once more to stop at once\n" in err
    assert err.endswith("\ninterrupted: run the same command again to go on from the last checkpoint\n")
    assert "Traceback" not in err
    assert not (place / "runs/a/supernet.json").exists()

    assert ldsearch(*command, "--name", "a").code == 0
    assert ldsearch(*command, "--name", "b").code == 0
    resumed, straight = weights(place / "runs/a"), weights(place / "runs/b")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


def test_a_stop_after_the_last_step_lets_the_training_finish(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PreTrainedModel.save_pretrained

    def signalled(self: PreTrainedModel, folder: str) -> None:
        signal.raise_signal(signal.SIGTERM)
        save(self, folder)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", signalled)
    assert ldsearch(*TRAIN, *EPOCHS, "--save_strategy", "no", "--name", "again").code == 0
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


@pytest.mark.parametrize("share", [0.5, 1.5], ids=["of the weights", "of the optimizer"])
def test_a_lack_of_room_for_a_checkpoint_is_one_line_and_training_goes_on_later(
    ldsearch: Ldsearch, place: Path, share: float
) -> None:
    command = [*TRAIN, *EPOCHS, "--name", "again"]
    size = (place / "runs/tiny/model.safetensors").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * size), hard))
    try:
        full = ldsearch(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert full.code == 2
    assert last_line(full).startswith("error: cannot write to runs/again: ")
    assert last_line(full).endswith(ROOM)
    assert "Traceback" not in full.err
    assert not (place / "runs/again/supernet.json").exists()
    assert ldsearch(*command).code == 0


def test_a_full_disk_at_the_very_end_costs_no_training(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, *EPOCHS, "--name", "again"]
    save = PreTrainedModel.save_pretrained

    def saves_checkpoints_only(self: PreTrainedModel, folder: str) -> None:
        if Path(folder).name == "again":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", saves_checkpoints_only)
        full = ldsearch(*command)
    assert (full.code, last_line(full)) == (
        2,
        f"error: cannot write to runs/again: No space left on device; {ROOM}",
    )
    assert (place / "runs/again/checkpoints/checkpoint-2").exists()
    with monkeypatch.context() as patch:
        patch.delattr(SupernetTrainer, "training_step")  # the stock Trainer's would fail
        assert ldsearch(*command).code == 0


class Touches:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("ran"),))


class StopsAfterACheckpoint(TrainerCallback):
    def on_save(self, *_: object, **__: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_pickle_in_a_checkpoint_is_refused_in_one_line_and_not_run(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    command = [*TRAIN, "--num_train_epochs", "2", "--name", "again"]
    make = SupernetTrainer.__init__

    def interrupted(self: SupernetTrainer, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)  # type: ignore[arg-type]
        self.add_callback(StopsAfterACheckpoint())

    with monkeypatch.context() as patch:
        patch.setattr(SupernetTrainer, "__init__", interrupted)
        assert ldsearch(*command).code == 130
    checkpoint = Path("runs/again/checkpoints/checkpoint-2")
    torch.save(Touches(), checkpoint / name)
    refused = ldsearch(*command)
    assert refused.code == 2
    assert last_line(refused) == (
        f"error: {checkpoint} holds more than tensors and is not read: move it away and start again"
    )
    assert not (place / "ran").exists()


def test_a_configuration_with_code_of_its_own_is_refused_before_anything_is_written(
    ldsearch: Ldsearch, place: Path
) -> None:
    own = {"AutoModelForSequenceClassification": "own.OwnModel"}
    (place / "config.json").write_text(json.dumps({**CONFIG, "auto_map": own}))
    refused = ldsearch(*TRAIN, *EPOCHS, "--name", "own")
    assert (refused.code, refused.err) == (
        2,
        "error: the model 'config.json' brings code of its own (auto_map), which ldsearch never runs\n",
    )
    assert not (place / "runs/own").exists()
