"""Exports: nothing half-written, block 0 removable, cards that say what was measured."""

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer, BertTokenizer, pipeline

from ldsearch.errors import RunError, SupernetError
from ldsearch.export import export_subnet, load_exported
from ldsearch.export.card import Provenance, model_card
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from tests.tiny import FAMILIES, tiny_model

TOKENIZER = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
PROVENANCE = Provenance(
    supernet="demo",
    training="strategy lengthdrop",
    data="docstrings",
    search="run x, budget 0.4",
    score="accuracy 0.7 on 100 search examples",
    costs={"macs": (400.0, 1000.0)},
    fingerprint="abc",
    versions={"torch": "2"},
)
DEPTH, LENGTHS = Subnet.of_encoder([1, 3]), Subnet.of_encoder([0, 1, 2], [20, 9, 4], 24)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_depth_export_is_an_ordinary_folder(tmp_path, family):
    folder = export_subnet(Supernet(tiny_model(family)), TOKENIZER, DEPTH, tmp_path / "a" / "out", PROVENANCE)
    assert AutoConfig.from_pretrained(folder).num_hidden_layers == 2
    assert AutoTokenizer.from_pretrained(folder).cls_token == "[CLS]"
    assert not (folder / "ldsearch_subnet.json").exists()
    assert not isinstance(load_exported(folder), FixedSubnet)
    assert sorted(p.name for p in folder.parent.iterdir()) == ["out"]


def test_a_model_of_few_positions_passes_its_own_check(tmp_path):
    supernet = Supernet(tiny_model("roberta", positions=30))
    assert export_subnet(supernet, TOKENIZER, DEPTH, tmp_path / "out", PROVENANCE).is_dir()


def test_a_length_export_runs_at_its_lengths(tmp_path):
    folder = export_subnet(Supernet(tiny_model("bert")), TOKENIZER, LENGTHS, tmp_path / "out", PROVENANCE)
    loaded = load_exported(folder)
    assert isinstance(loaded, FixedSubnet)
    assert loaded.subnet == LENGTHS
    assert not loaded.training
    assert loaded.config.num_labels == 3
    classify = pipeline("text-classification", model=loaded, tokenizer=TOKENIZER)
    inputs = TOKENIZER("[UNK] [SEP] [UNK] [UNK]", return_tensors="pt")
    with torch.inference_mode():
        expected = loaded(**inputs).logits.softmax(-1).max()
    assert classify("[UNK] [SEP] [UNK] [UNK]")[0]["score"] == pytest.approx(float(expected), abs=1e-5)


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(RunError, match="not empty"):
        export_subnet(Supernet(tiny_model("bert")), TOKENIZER, DEPTH, tmp_path / "out", PROVENANCE)
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_a_failed_check_removes_what_was_written(tmp_path, monkeypatch):
    supernet = Supernet(tiny_model("bert"))
    stranger = Supernet(tiny_model("bert", seed=1)).materialise(DEPTH)
    monkeypatch.setattr(supernet, "materialise", lambda subnet: stranger)
    with pytest.raises(RunError, match="differs from the supernet"):
        export_subnet(supernet, TOKENIZER, DEPTH, tmp_path / "out", PROVENANCE)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_subnet_file_is_refused(tmp_path):
    folder = export_subnet(Supernet(tiny_model("bert")), TOKENIZER, LENGTHS, tmp_path / "out", PROVENANCE)
    (folder / "ldsearch_subnet.json").write_text("{}")
    with pytest.raises(SupernetError, match="damaged"):
        load_exported(folder)


def test_the_card_says_how_it_was_made_measured_and_loaded():
    card = model_card(LENGTHS, PROVENANCE)
    for text in ("budget 0.4", "accuracy 0.7 on 100", "| macs | 400 | 1,000 | 0.400 |", "ldsearch.load"):
        assert text in card
    assert "AutoModelForSequenceClassification" in model_card(DEPTH, PROVENANCE)
