"""What a bench is opened with: fingerprints of weights, and the data of a supernet, read again."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertTokenizer

from ldsearch import bench
from ldsearch.disk.fingerprint import digest, weights_fingerprint
from ldsearch.errors import SupernetError
from ldsearch.supernet.folder import load_model
from ldsearch.tasks import EMBEDDED, DataSource, load_task
from tests.tiny import tiny_model


def test_a_digest_depends_on_every_part_and_their_order():
    digests = {digest(["a"], ["b"]), digest(["b"], ["a"]), digest(["a", "b"]), digest("ab"), digest([1])}
    assert len(digests) == 5


def saved(folder: Path, *files: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    for index, tensors in enumerate(files):
        save_file(tensors, folder / f"{index}.safetensors")
    return folder


def test_weights_are_told_apart_by_value_name_shape_and_precision(tmp_path):
    base = torch.arange(6.0)
    other = base + torch.tensor([0, 0, 0, 0, 0, 1e-3])
    variants = [{"w": one} for one in (base, base.view(2, 3), base.to(torch.bfloat16), other)] + [{"v": base}]
    prints = {weights_fingerprint(saved(tmp_path / str(at), own)) for at, own in enumerate(variants)}
    assert len(prints) == len(variants)


def test_the_layout_in_files_does_not_matter_and_damage_is_one_line(tmp_path):
    first, second = {"a": torch.ones(2)}, {"b": torch.zeros(3)}
    one, two = saved(tmp_path / "one", {**first, **second}), saved(tmp_path / "two", first, second)
    assert weights_fingerprint(one) == weights_fingerprint(two)
    with pytest.raises(FileNotFoundError):
        weights_fingerprint(tmp_path)
    weights = one / "0.safetensors"
    weights.write_bytes(weights.read_bytes()[:40])
    with pytest.raises(SupernetError, match=r"0.safetensors is damaged"):
        weights_fingerprint(one)


def test_a_half_precision_checkpoint_is_loaded_in_fp32(tmp_path):
    tiny_model("bert").to(torch.bfloat16).save_pretrained(tmp_path)
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    BertTokenizer(vocab={word: at for at, word in enumerate(words)}).save_pretrained(tmp_path)
    model, _ = load_model(str(tmp_path))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("source", "search_rows"),
    [
        ({"data": EMBEDDED}, "auto"),
        ({"data": "reviews.csv"}, "half"),  # before it was recorded
        ({"data": "reviews.csv", "search_rows": "train"}, "train"),
    ],
)
def test_the_split_rule_that_is_not_recorded_is_the_one_of_its_day(monkeypatch, source, search_rows):
    asked, nothing = [], SimpleNamespace(splits={})
    monkeypatch.setattr(bench, "load_task", lambda kind, data, labels: asked.append(data) or nothing)
    bench.load_recorded_task(SimpleNamespace(source=source, labels=[], splits={}), None)
    assert asked == [DataSource(source["data"], search_rows=search_rows)]


def test_embedded_data_open_again_by_their_record():
    task = load_task("classification", DataSource(EMBEDDED), None)
    record = SimpleNamespace(source=dict(task.source), labels=list(task.labels), splits={})
    again = bench.load_recorded_task(record, None)
    assert again.splits["search"].fingerprint == task.splits["search"].fingerprint
