"""train-supernet on a bad day: a signal, a full disk, code where tensors belong."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
import typer
from transformers import PreTrainedModel, TrainerCallback, TrainerState

from ldsearch.commands.console import resumable
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.interruption import Interrupted
from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, Outcome, weights
from tests.stops import ask_to_stop

Weights = dict[str, torch.Tensor]

ROOM = "free some space and run the same command again"


def last_line(outcome: Outcome) -> str:
    """What is said below the Trainer's progress bar."""
    assert outcome.err.endswith("\n")
    return outcome.err.splitlines()[-1]


def test_a_stop_after_the_last_step_lets_the_training_finish(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PreTrainedModel.save_pretrained

    def signalled(self: PreTrainedModel, folder: Path, state_dict: Weights) -> None:
        ask_to_stop()
        save(self, folder, state_dict=state_dict)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", signalled)
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


def test_a_lack_of_room_for_a_checkpoint_is_one_line_and_training_goes_on_later(
    ldsearch: Ldsearch, place: Path
) -> None:
    command = [*TRAIN, *EPOCHS, "--name", "again"]
    size = (place / "runs/tiny/model.safetensors").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for share in (0.5, 1.5):  # of the weights: room for half of them; for them, but not for the optimizer
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * size), hard))
        try:
            full = ldsearch(*command)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert full.code == 1
        assert last_line(full).startswith("error: cannot write to runs/again: ")
        assert last_line(full).endswith(ROOM)
        assert "Traceback" not in full.err
        assert not (place / "runs/again/supernet.json").exists()
    ldsearch.done(*command)


def test_a_full_disk_at_the_very_end_costs_no_training(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, *EPOCHS, "--name", "again"]
    save = PreTrainedModel.save_pretrained

    def saves_checkpoints_only(self: PreTrainedModel, folder: Path, state_dict: Weights) -> None:
        if Path(folder).name == "again":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, folder, state_dict=state_dict)

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", saves_checkpoints_only)
        full = ldsearch(*command)
    assert (full.code, last_line(full)) == (
        1,
        f"error: cannot write to runs/again: No space left on device; {ROOM}",
    )
    assert (place / "runs/again/checkpoints/checkpoint-2").exists()
    with monkeypatch.context() as patch:
        patch.delattr(SupernetTrainer, "training_step")  # the stock Trainer's would fail
        ldsearch.done(*command)


class Touches:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("ran"),))


class Stops(TrainerCallback):
    """A signal in the middle of the second epoch."""

    def on_step_begin(self, args: object, state: TrainerState, *_: object, **__: object) -> None:
        if state.global_step == 2:
            ask_to_stop()


def interrupt(ldsearch: Ldsearch, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> Outcome:
    make = SupernetTrainer.__init__

    def interrupted(self: SupernetTrainer, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)  # type: ignore[arg-type]
        self.add_callback(Stops())

    with monkeypatch.context() as patch:
        patch.setattr(SupernetTrainer, "__init__", interrupted)
        return ldsearch(*command)


def test_an_interrupted_training_goes_on_and_ends_at_the_weights_of_an_uninterrupted_one(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, "--num_train_epochs", "3"]
    stopped = interrupt(ldsearch, monkeypatch, [*command, "--name", "a"])
    assert stopped.code == 128 + signal.SIGTERM
    assert stopped.err.endswith(
        "\ninterrupted: run the same command again to go on from the last checkpoint\n"
    )
    assert os.listdir(place / "runs/a/checkpoints") == ["checkpoint-3"]  # 48 rows in batches of 32
    assert not (place / "runs/a/supernet.json").exists()
    assert "runs/tiny:" in ldsearch("evolve", "--dry-run").out.replace(" 6 search examples", "")

    steps: list[int] = []
    step = SupernetTrainer.training_step

    def counting(self: SupernetTrainer, *arguments: object, **named: object) -> torch.Tensor:
        steps.append(self.state.global_step)
        return step(self, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(SupernetTrainer, "training_step", counting)
        ldsearch.done(*command, "--name", "a")
    assert steps == [3, 4, 5]
    ldsearch.done(*command, "--name", "b")
    resumed, straight = weights(place / "runs/a"), weights(place / "runs/b")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


def test_a_pickle_in_a_checkpoint_is_refused_in_one_line_and_not_run(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, "--num_train_epochs", "3", "--name", "again"]
    assert interrupt(ldsearch, monkeypatch, command).code == 128 + signal.SIGTERM
    checkpoint = Path("runs/again/checkpoints/checkpoint-3")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        before = (checkpoint / name).read_bytes()
        torch.save(Touches(), checkpoint / name)
        refused = ldsearch(*command)
        assert refused.code == 2
        assert last_line(refused).startswith(f"error: {checkpoint} holds more than tensors")
        assert not (place / "ran").exists()
        (checkpoint / name).write_bytes(before)
