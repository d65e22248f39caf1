"""Going on after a kill: only from a checkpoint that was written to its end."""

import pytest

from ldsearch.workflows.train import last_complete_checkpoint

WHOLE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


def write(folder, names=WHOLE):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("x")


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


def test_without_any_training_starts_anew(tmp_path):
    assert last_complete_checkpoint(tmp_path / "missing") is None
    (tmp_path / "runs").mkdir()
    assert last_complete_checkpoint(tmp_path) is None
    assert (tmp_path / "runs").exists()
