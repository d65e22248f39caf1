"""Exports: nothing half-written, block 0 removable, cards that say what was measured and run as they say."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, BertTokenizer, dynamic_module_utils

from ldsearch.errors import ExportError, RunError, SupernetError
from ldsearch.export.card import Alone, Provenance, model_card
from ldsearch.export.check import export_subnet
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from tests.tiny import HEADED, padded_batch, tiny_model

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


BATCH = padded_batch([24, 9, 3])


def exported(supernet: Supernet, subnet: Subnet, folder: Path) -> Path:
    return export_subnet(supernet, TOKENIZER, subnet, folder, PROVENANCE)


def logits(model: torch.nn.Module) -> torch.Tensor:
    """Of the real tokens, where there is one row for each."""
    with torch.inference_mode():
        found = logits_of(model.eval()(**BATCH))
    return found[BATCH["attention_mask"].bool()] if found.ndim == 3 else found


def alone_in(folder: Path) -> torch.Tensor:
    """What stock AutoModel makes of the folder, ldsearch's file or not."""
    return logits(AutoModelForSequenceClassification.from_pretrained(folder))


def wanted(supernet: Supernet, subnet: Subnet) -> torch.Tensor:
    found = inference(supernet, BATCH, subnet)
    return found[BATCH["attention_mask"].bool()] if found.ndim == 3 else found


HEADS_OFF = Subnet(encoder=Stack((0, 2), heads_off=((0, 1), (2, 0)), ffn_share=((2, 0.5),)))
NARROW = Subnet(encoder=Stack((0, 2), ffn_share=((0, 0.25), (2, 0.25))))
NO_ATTENTION = Subnet(encoder=Stack((0, 2), sublayers_off=((2, "attention"),)))
CASES = [
    ("bert", DEPTH, Alone.SAME),
    ("bert", LENGTHS, Alone.LONGER),
    ("bert", HEADS_OFF, Alone.SLOWER),
    ("bert", NARROW, Alone.SAME),
    ("bert", NO_ATTENTION, Alone.OTHER),  # its norm stays in stock classes
    ("distilbert", NARROW, Alone.SAME),
    ("distilbert", HEADS_OFF, Alone.SLOWER),
    ("modernbert", DEPTH, Alone.OTHER),  # stock classes cannot leave its first block out
    ("modernbert", HEADS_OFF, Alone.SLOWER),
    ("modernbert", NO_ATTENTION, Alone.SLOWER),
]


@pytest.mark.parametrize(("family", "subnet", "alone"), CASES)
def test_what_stock_classes_make_of_a_folder_is_what_the_card_says(tmp_path, family, subnet, alone):
    supernet = Supernet(tiny_model(family))
    folder = exported(supernet, subnet, tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert alone.value in card
    assert not any(other.value in card for other in Alone if other.value and other is not alone)
    assert (folder / "ldsearch_subnet.json").exists() == (alone is not Alone.SAME)
    expected = wanted(supernet, subnet)
    torch.testing.assert_close(logits(load_exported(folder)), expected, atol=1e-5, rtol=0)
    same = alone in (Alone.SAME, Alone.SLOWER)
    assert torch.allclose(alone_in(folder), expected, atol=1e-5, rtol=0) == same
    if alone is Alone.LONGER:
        blocks = Subnet.of_encoder(subnet.encoder.blocks)
        torch.testing.assert_close(alone_in(folder), wanted(supernet, blocks), atol=1e-5, rtol=0)
    if alone is Alone.SAME:
        stock = AutoConfig.from_pretrained(folder)
        assert stock.num_hidden_layers == 2
        width = stock.hidden_dim if family == "distilbert" else stock.intermediate_size
        assert width == (8 if subnet is NARROW else 32)


@pytest.mark.parametrize(
    ("head", "subnet"),
    [
        *((head, DEPTH) for head in HEADED),
        ("SequenceClassification", LENGTHS),
        ("SentenceEmbedding", LENGTHS),
    ],
)
def test_the_code_on_the_card_runs(tmp_path, monkeypatch, head, subnet):
    folder = exported(Supernet(tiny_model("bert", head=head)), subnet, tmp_path / "out")
    card = (folder / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    embeds = head == "SentenceEmbedding"
    assert ("trust_remote_code" in code) == (subnet is LENGTHS and not embeds)
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    names: dict[str, object] = {}
    if embeds:
        pytest.importorskip("sentence_transformers")
    exec(code.replace("this folder", str(folder)), names)
    if embeds:  # of two texts, the other one longer
        found = torch.as_tensor(names["vectors"])[:1]
    else:
        found = logits_of(names["output"]) if head == "QuestionAnswering" else names["logits"]
    tokens = TOKENIZER("some text", return_tensors="pt")
    with torch.inference_mode():
        expected = logits_of(load_exported(folder)(**tokens))
    torch.testing.assert_close(found.detach().cpu(), expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_few_positions_passes_its_own_check(tmp_path):
    supernet = Supernet(tiny_model("roberta", positions=30))
    assert exported(supernet, DEPTH, tmp_path / "out").is_dir()


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(RunError, match="not empty"):
        exported(Supernet(tiny_model("bert")), DEPTH, tmp_path / "out")
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_a_failed_check_removes_what_was_written(tmp_path, monkeypatch):
    supernet = Supernet(tiny_model("bert"))
    stranger = Supernet(tiny_model("bert", seed=1)).materialise(DEPTH)
    monkeypatch.setattr(supernet, "materialise", lambda subnet: stranger)
    with pytest.raises(ExportError, match="outputs failed: stock AutoModel in this process differs"):
        exported(supernet, DEPTH, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_subnet_file_is_refused(tmp_path):
    folder = exported(Supernet(tiny_model("bert")), LENGTHS, tmp_path / "out")
    (folder / "ldsearch_subnet.json").write_text("{}")
    with pytest.raises(SupernetError, match="damaged"):
        load_exported(folder)


def test_the_card_says_how_it_was_made_measured_and_loaded():
    head, tag = "TokenClassification", "token-classification"
    card = model_card(LENGTHS, PROVENANCE, head, Alone.LONGER, verified="4 rows agree")
    for text in ("budget 0.4", "accuracy 0.7 on 100", "| macs | 400 | 1,000 | 0.400 |"):
        assert text in card
    assert "Verified: 4 rows agree" in card
    assert "ldsearch.load" in card
    assert card.startswith(f"---\nlibrary_name: transformers\npipeline_tag: {tag}\n")
    assert "encoder blocks 0-2, lengths 20 9 4 of 24" in card
    stock = model_card(DEPTH, PROVENANCE, head, verified="")
    assert f"AutoModelFor{head}.from_pretrained" in stock
    assert "import ldsearch" not in stock
