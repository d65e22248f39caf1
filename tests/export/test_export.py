"""Exports: nothing half-written, and cards that say what was measured and run as they say."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertTokenizer

from ldsearch.errors import ExportError, SupernetError
from ldsearch.export.card import Alone, Provenance
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


def runs(model: torch.nn.Module, supernet: Supernet, subnet: Subnet) -> bool:
    """Whether a model gives what the sub-network gives, of the real tokens where there is a row for each."""
    with torch.inference_mode():
        sides = logits_of(model.eval()(**BATCH)), inference(supernet, BATCH, subnet)
    found, wanted = (side[BATCH["attention_mask"].bool()] if side.ndim == 3 else side for side in sides)
    return torch.allclose(found, wanted, atol=1e-5, rtol=0)


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
    ("modernbert", DEPTH, Alone.OTHER),  # stock classes cannot leave its first block out
    ("modernbert", NO_ATTENTION, Alone.SLOWER),
]


@pytest.mark.parametrize(("family", "subnet", "alone"), CASES)
def test_what_stock_classes_make_of_a_folder_is_what_the_card_says(tmp_path, family, subnet, alone):
    supernet = Supernet(tiny_model(family))
    folder = exported(supernet, subnet, tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert {other for other in Alone if other.value in card} == {Alone.SAME, alone}
    for text in (subnet.describe(), "budget 0.4", "accuracy 0.7 on 100", "| macs | 400 | 1,000 | 0.400 |"):
        assert text in card
    assert (folder / "ldsearch_subnet.json").exists() == (alone is not Alone.SAME)
    assert runs(load_exported(folder), supernet, subnet)
    stock = AutoModelForSequenceClassification.from_pretrained(folder)
    assert runs(stock, supernet, subnet) == (alone in (Alone.SAME, Alone.SLOWER))
    if alone is Alone.LONGER:
        assert runs(stock, supernet, Subnet.of_encoder(subnet.encoder.blocks))
    if alone is Alone.SAME:
        width = stock.config.hidden_dim if family == "distilbert" else stock.config.intermediate_size
        assert (stock.config.num_hidden_layers, width) == (2, 8 if subnet is NARROW else 32)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("head", "subnet"),
    [
        *((head, DEPTH) for head in HEADED),
        ("SequenceClassification", LENGTHS),
        ("SentenceEmbedding", LENGTHS),
    ],
)
def test_the_code_on_the_card_runs(tmp_path, head, subnet):
    folder = exported(Supernet(tiny_model("bert", head=head)), subnet, tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert ("pipeline_tag: token-classification" in card) == (head == "TokenClassification")
    code = card.split("```python\n")[1].split("```")[0]
    embeds = head == "SentenceEmbedding"
    assert ("trust_remote_code" in code) == (subnet is LENGTHS and not embeds)
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
