"""Mean weights: closed forms, a model that is the mean of two, and what cannot be averaged."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from ldsearch.errors import TrainingError
from ldsearch.training.checkpoints import average_checkpoints, average_last
from tests.translators import tiny_translator


def write(folder, tensors, name="model.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / name)
    return folder


def checkpoint(folder, step, value, whole=True):
    """What ``last_complete_checkpoint`` takes for a checkpoint."""
    path = write(folder / f"checkpoint-{step}", {"weight": torch.full((2,), float(value))})
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({}, path / name)
    if whole:
        (path / "trainer_state.json").write_text("{}")
    return path


def test_the_mean_of_numbers_and_the_last_of_everything_else(tmp_path):
    rows = [([1.0, -2.0], 5, True), ([2.0, 0.0], 7, False), ([6.0, 8.0], 9, True)]
    folders = [
        write(
            tmp_path / str(step),
            {"w": torch.tensor(weight), "steps": torch.tensor(count), "seen": torch.tensor([seen])},
        )
        for step, (weight, count, seen) in enumerate(rows)
    ]
    mean = average_checkpoints(folders)
    assert torch.equal(mean["w"], torch.tensor([3.0, 2.0]))
    assert (mean["steps"].dtype, mean["steps"].item()) == (torch.int64, 9)
    assert mean["seen"].tolist() == [True]
    # The files are as they were.
    assert load_file(folders[0] / "model.safetensors")["w"].tolist() == [1.0, -2.0]


def test_half_precision_is_averaged_in_full(tmp_path):
    # In bfloat16, whose neighbour of 256 is 258, the mean would be 256 or 258.
    values = [torch.tensor([256.0], dtype=torch.bfloat16), torch.tensor([258.0], dtype=torch.bfloat16)]
    folders = [write(tmp_path / str(i), {"w": value}) for i, value in enumerate(values)]
    mean = average_checkpoints(folders)
    assert mean["w"].dtype == torch.float32
    assert mean["w"].item() == 257.0


def test_many_are_averaged_as_double_precision_has_it(tmp_path):
    draws = torch.randn(10, 50, generator=torch.Generator().manual_seed(0))
    folders = [write(tmp_path / str(i), {"w": draw.clone()}) for i, draw in enumerate(draws)]
    torch.testing.assert_close(
        average_checkpoints(folders)["w"], draws.double().mean(dim=0).float(), rtol=1e-6, atol=1e-7
    )


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


def test_a_model_in_several_files_is_one_model(tmp_path):
    for index, value in enumerate((1.0, 3.0)):
        for part in ("a", "b"):
            write(tmp_path / str(index), {part: torch.tensor([value])}, f"model-{part}.safetensors")
    mean = average_checkpoints([tmp_path / "0", tmp_path / "1"])
    assert {name: tensor.item() for name, tensor in mean.items()} == {"a": 2.0, "b": 2.0}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"w": torch.zeros(2), "v": torch.zeros(1)}, "has a weight v"),
        ({"v": torch.zeros(2)}, "has a weight v"),
        ({"w": torch.zeros(1)}, r"w is \(2,\) in .*, \(1,\) in "),
    ],
    ids=["more", "others", "smaller"],
)
def test_different_models_are_refused(tmp_path, other, says):
    folders = [write(tmp_path / "a", {"w": torch.zeros(2)}), write(tmp_path / "b", other)]
    with pytest.raises(TrainingError, match=says):
        average_checkpoints(folders)


def test_nothing_and_damaged_weights_are_refused(tmp_path):
    with pytest.raises(TrainingError, match="no checkpoints"):
        average_checkpoints([])
    with pytest.raises(TrainingError, match="missing holds no safetensors"):
        average_checkpoints([tmp_path / "missing"])
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(TrainingError, match="cannot read the weights in"):
        average_checkpoints([tmp_path])


def test_the_last_ones_are_last_by_number(tmp_path):
    for step, value in ((8, 100), (9, 2), (10, 4), (11, 9)):
        checkpoint(tmp_path, step, value)
    (tmp_path / "checkpoint-best").mkdir()
    assert average_last(tmp_path, 3)["weight"].tolist() == [5.0, 5.0]
    assert average_last(tmp_path, 1)["weight"].tolist() == [9.0, 9.0]


def test_one_that_was_cut_short_does_not_count(tmp_path):
    for step, value in ((1, 1), (2, 3)):
        checkpoint(tmp_path, step, value)
    checkpoint(tmp_path, 3, 100, whole=False)
    assert average_last(tmp_path, 2)["weight"].tolist() == [2.0, 2.0]


def test_too_few_are_refused_and_said(tmp_path):
    checkpoint(tmp_path, 1, 1)
    with pytest.raises(TrainingError, match=r"holds 1 checkpoints of the 2 to average.*--save_total_limit"):
        average_last(tmp_path, 2)
    with pytest.raises(TrainingError, match="not 0"):
        average_last(tmp_path, 0)
