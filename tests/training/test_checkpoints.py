"""Going on after a kill or a full disk: only from a checkpoint that was written to its end."""

import errno
import os
import resource

import pytest
import torch
from safetensors.torch import save_file
from transformers import TrainerState

from ldsearch.errors import RunError
from ldsearch.training.checkpoints import last_complete_checkpoint, report_disk_full
from ldsearch.training.strategies import make_strategy
from tests.tiny import small_setting
from tests.training.test_trainer import TOKENIZER, trainer_for

WHOLE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


def write(folder, names=WHOLE):
    folder.mkdir(parents=True)
    for name in names:
        if name.endswith(".json"):
            (folder / name).write_text('{\n  "global_step": 4\n}\n')
        elif name.endswith(".safetensors"):
            save_file({"weight": torch.zeros(64)}, folder / name)
        else:
            torch.save({"state": torch.zeros(64)}, folder / name)


def test_the_newest_complete_checkpoint_is_taken_by_number_not_by_name(tmp_path):
    for step in (8, 9, 10):
        write(tmp_path / f"checkpoint-{step}")
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("missing", WHOLE)
def test_one_that_was_cut_short_is_removed_and_the_one_before_taken(tmp_path, missing):
    write(tmp_path / "checkpoint-4")
    write(tmp_path / "checkpoint-8", [name for name in WHOLE if name != missing])
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
    assert not (tmp_path / "checkpoint-8").exists()


@pytest.mark.parametrize("torn", WHOLE)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9], ids=["nothing", "half", "most"])
def test_one_with_a_torn_file_is_not_gone_on_from(tmp_path, torn, kept):
    write(tmp_path / "checkpoint-4")
    write(tmp_path / "checkpoint-8")
    path = tmp_path / "checkpoint-8" / torn
    os.truncate(path, int(path.stat().st_size * kept))
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")


def test_without_any_training_starts_anew(tmp_path):
    assert last_complete_checkpoint(tmp_path / "missing") is None
    (tmp_path / "runs").mkdir()
    assert last_complete_checkpoint(tmp_path) is None
    assert (tmp_path / "runs").exists()


def test_the_trainer_writes_its_state_last_and_only_then_removes_the_checkpoint_before(tmp_path, monkeypatch):
    save, seen = TrainerState.save_to_json, []

    def saving(self, path):
        missing = {*WHOLE} - {*os.listdir(os.path.dirname(path))}
        seen.append(
            (self.global_step, missing, [found.name for found in tmp_path.glob("checkpoint-6/trainer_*")])
        )
        save(self, path)

    strategy = make_strategy("plain", small_setting(0.0))
    trainer = trainer_for(tmp_path, strategy, save_strategy="epoch", save_total_limit=1)
    monkeypatch.setattr(TrainerState, "save_to_json", saving)
    trainer.train()
    assert seen == [(6, {"trainer_state.json"}, []), (12, {"trainer_state.json"}, ["trainer_state.json"])]
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-12"]


@pytest.fixture
def no_room():
    """No file may grow beyond a thousand bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def by_python(folder):
    (folder / "trainer_state.json").write_text("x" * 4000)


def by_safetensors(folder):
    save_file({"weight": torch.zeros(4000)}, folder / "model.safetensors")


def by_tokenizers(folder):
    TOKENIZER.save_pretrained(folder)


def by_torch(folder):
    torch.save({"state": torch.zeros(4000)}, folder / "optimizer.pt")


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize("save", [by_python, by_safetensors, by_tokenizers, by_torch])
def test_a_lack_of_room_is_one_line_whichever_library_meets_it(tmp_path, save):
    with pytest.raises(RunError) as refused, report_disk_full(tmp_path):
        save(tmp_path)
    reason = "torch could not write a file to its end" if save is by_torch else "File too large"
    line = f"cannot write to {tmp_path}: {reason}; free some space and run the same command again"
    assert str(refused.value) == line


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_spent_quota_are_a_lack_of_room(tmp_path, number):
    with pytest.raises(RunError, match=os.strerror(number)), report_disk_full(tmp_path):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "denied"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("No space left on device"),
        KeyboardInterrupt(),
    ],
)
def test_what_is_no_full_disk_passes_as_it_is(tmp_path, error):
    with pytest.raises(type(error)) as passed, report_disk_full(tmp_path):
        raise error
    assert passed.value is error
