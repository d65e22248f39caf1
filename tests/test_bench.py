"""What a bench is opened with: fingerprints of weights, and the data of a supernet, read again."""

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


def test_weights_are_told_apart_by_value_name_shape_and_precision(tmp_path):
    base = torch.arange(6.0)
    variants = [
        {"w": base},
        {"v": base},
        {"w": base.view(2, 3)},
        {"w": base.to(torch.bfloat16)},
        {"w": base + torch.tensor([0, 0, 0, 0, 0, 1e-3])},
    ]
    prints = []
    for index, tensors in enumerate(variants):
        folder = tmp_path / str(index)
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        prints.append(weights_fingerprint(folder))
    assert len(set(prints)) == len(variants)


def test_the_layout_in_files_does_not_matter(tmp_path):
    first, second = {"a": torch.ones(2)}, {"b": torch.zeros(3)}
    for name, files in {"one": [{**first, **second}], "two": [first, second]}.items():
        (tmp_path / name).mkdir()
        for index, tensors in enumerate(files):
            save_file(tensors, tmp_path / name / f"{index}.safetensors")
    assert weights_fingerprint(tmp_path / "one") == weights_fingerprint(tmp_path / "two")
    with pytest.raises(FileNotFoundError):
        weights_fingerprint(tmp_path)
    weights = tmp_path / "one" / "0.safetensors"
    weights.write_bytes(weights.read_bytes()[:40])
    with pytest.raises(SupernetError, match=r"0.safetensors is damaged"):
        weights_fingerprint(tmp_path / "one")


def test_a_half_precision_checkpoint_is_loaded_in_fp32(tmp_path):
    tiny_model("bert").to(torch.bfloat16).save_pretrained(tmp_path)
    BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}).save_pretrained(
        tmp_path
    )
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
    asked = []
    monkeypatch.setattr(
        bench, "load_task", lambda kind, data, labels: asked.append(data) or SimpleNamespace(splits={})
    )
    bench.load_recorded_task(SimpleNamespace(source=source, labels=[], splits={}), None)
    assert asked == [DataSource(source["data"], search_rows=search_rows)]


def test_embedded_data_open_again_by_their_record():
    task = load_task("classification", DataSource(EMBEDDED), None)
    record = SimpleNamespace(source=dict(task.source), labels=list(task.labels), splits={})
    again = bench.load_recorded_task(record, None)
    assert again.splits["search"].fingerprint == task.splits["search"].fingerprint
