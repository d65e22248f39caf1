"""Checkpoints: resumed after a kill or a full disk only where complete, and averaged."""

import errno
import os
import resource

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, TrainerState

from ldsearch.disk.files import report_disk_full
from ldsearch.errors import MachineError, TrainingError
from ldsearch.supernet.saliency import WEIGHTS_FILE
from ldsearch.training.checkpoints import average_checkpoints, average_last, last_complete_checkpoint
from ldsearch.training.drop_rates import RATES_FILE
from ldsearch.training.strategies import make_strategy
from tests.tiny import small_setting
from tests.training.test_trainer import TOKENIZER, trainer_for
from tests.translators import tiny_translator

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


@pytest.mark.parametrize("torn", [*WHOLE, WEIGHTS_FILE, RATES_FILE])
def test_one_that_was_cut_short_is_removed_and_the_one_before_taken(tmp_path, torn):
    write(tmp_path / "checkpoint-4")
    for kept in (None, 0.0, 0.5, 0.9):  # None: the file is missing
        if kept is None and torn not in WHOLE:  # not every training has one
            continue
        names = dict.fromkeys((*WHOLE, torn))
        write(tmp_path / "checkpoint-8", [name for name in names if name != torn or kept is not None])
        path = tmp_path / "checkpoint-8" / torn
        if kept is not None:
            os.truncate(path, int(path.stat().st_size * kept))
        assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
        assert not (tmp_path / "checkpoint-8").exists()


def test_without_any_training_starts_anew(tmp_path):
    assert last_complete_checkpoint(tmp_path / "missing") is None
    (tmp_path / "runs").mkdir()
    assert last_complete_checkpoint(tmp_path) is None
    assert (tmp_path / "runs").exists()


def test_the_trainer_writes_its_state_last_and_only_then_removes_the_checkpoint_before(tmp_path, monkeypatch):
    save, seen = TrainerState.save_to_json, []

    def saving(self, path):
        missing = {*WHOLE} - {*os.listdir(os.path.dirname(path))}
        before = [found.name for found in tmp_path.glob("checkpoint-6/trainer_*")]
        seen.append((self.global_step, missing, before))
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


SAVES = {
    "python": lambda folder: (folder / "trainer_state.json").write_text("x" * 4000),
    "safetensors": lambda folder: save_file({"weight": torch.zeros(4000)}, folder / "model.safetensors"),
    "tokenizers": TOKENIZER.save_pretrained,
    "torch": lambda folder: torch.save({"state": torch.zeros(4000)}, folder / "optimizer.pt"),
}


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize("library", SAVES)
def test_a_lack_of_room_is_one_line_whichever_library_meets_it(tmp_path, library):
    with pytest.raises(MachineError) as refused, report_disk_full(tmp_path):
        SAVES[library](tmp_path)
    reason = "torch could not write a file to its end" if library == "torch" else "File too large"
    line = f"cannot write to {tmp_path}: {reason}; free some space and run the same command again"
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("error", "passes_as"),
    [
        (OSError(errno.ENOSPC, "full"), MachineError),
        (OSError(errno.EDQUOT, "quota"), MachineError),
        (PermissionError(errno.EACCES, "denied"), PermissionError),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), RuntimeError),
        (ValueError("No space left on device"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_full_disk_and_a_spent_quota_are_a_lack_of_room_and_nothing_else_is(tmp_path, error, passes_as):
    with pytest.raises(passes_as) as passed, report_disk_full(tmp_path):
        raise error
    assert error is (passed.value.__cause__ if passes_as is MachineError else passed.value)


def weights(folder, tensors, name="model.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / name)
    return folder


def test_the_mean_of_numbers_in_full_precision_and_the_last_of_everything_else(tmp_path):
    """Of models in several files."""
    rows = [([1.0, -2.0], 256.0, 5, [True]), ([2.0, 0.0], 256.0, 7, [False]), ([6.0, 8.0], 258.0, 9, [True])]
    for step, row in enumerate(rows):
        w, half, steps, seen = map(torch.tensor, row)
        # In bfloat16, whose neighbour of 256 is 258, the mean would be one of them.
        weights(tmp_path / str(step), {"w": w, "half": half.bfloat16()}, "model-1.safetensors")
        weights(tmp_path / str(step), {"steps": steps, "seen": seen}, "model-2.safetensors")
    mean = average_checkpoints([tmp_path / str(step) for step in range(3)])
    assert torch.equal(mean["w"], torch.tensor([3.0, 2.0]))
    torch.testing.assert_close(mean["half"], torch.tensor(770 / 3))
    assert (mean["steps"].dtype, mean["steps"].item()) == (torch.int64, 9)
    assert mean["seen"].tolist() == [True]
    # The files are as they were.
    assert load_file(tmp_path / "0/model-1.safetensors")["w"].tolist() == [1.0, -2.0]


def test_the_mean_of_two_models_loads_as_a_model_with_its_ties(tmp_path):
    models = [tiny_translator("marian", seed) for seed in (0, 1)]
    for index, model in enumerate(models):
        model.save_pretrained(tmp_path / str(index))
    mean = average_checkpoints([tmp_path / "0", tmp_path / "1"])
    save_file(mean, tmp_path / "0/model.safetensors", metadata={"format": "pt"})
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "0")
    expected = (models[0].lm_head.weight + models[1].lm_head.weight) / 2
    assert torch.equal(loaded.lm_head.weight, expected)
    assert loaded.lm_head.weight.data_ptr() == loaded.get_input_embeddings().weight.data_ptr()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"w": torch.zeros(2), "v": torch.zeros(1)}, "has a weight v"),
        ({"v": torch.zeros(2)}, "has a weight v"),
        ({"w": torch.zeros(1)}, r"w is \(2,\) in .*, \(1,\) in "),
        (None, "b holds no safetensors"),
        (b"\0" * 20, "cannot read the weights in"),
    ],
    ids=["more", "others", "smaller", "none", "damaged"],
)
def test_different_models_and_damaged_ones_are_refused(tmp_path, other, says):
    first, second = weights(tmp_path / "a", {"w": torch.zeros(2)}), tmp_path / "b"
    if isinstance(other, dict):
        weights(second, other)
    elif other is not None:
        second.mkdir()
        (second / "model.safetensors").write_bytes(other)
    with pytest.raises(TrainingError, match=says):
        average_checkpoints([first, second])


def test_the_last_ones_are_last_by_number_and_too_few_are_refused(tmp_path):
    for step, value in ((8, 100), (9, 2), (10, 4), (11, 9)):
        write(tmp_path / f"checkpoint-{step}")
        weights(tmp_path / f"checkpoint-{step}", {"weight": torch.full((2,), float(value))})
    (tmp_path / "checkpoint-best").mkdir()
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-11")
    assert average_last(tmp_path, 3)["weight"].tolist() == [5.0, 5.0]
    assert average_last(tmp_path, 1)["weight"].tolist() == [9.0, 9.0]
    with pytest.raises(TrainingError, match=r"holds 4 checkpoints of the 5 to average.*--save_total_limit"):
        average_last(tmp_path, 5)
    with pytest.raises(TrainingError, match="not 0"):
        average_last(tmp_path, 0)
    with pytest.raises(TrainingError, match="no checkpoints"):
        average_checkpoints([])
