"""A wrong export is removed and the check that found it is named; a tie is no mistake."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ldsearch.errors import ExportError
from ldsearch.export import check, reader
from ldsearch.export.agreement import ties
from ldsearch.export.card import Written
from ldsearch.export.check import Rows, random_rows, verify, verify_fresh
from ldsearch.export.folder import write_huggingface, write_onnx
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.saliency import LEARNED
from ldsearch.supernet.supernet import inference
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.tiny import learned, padded_batch, tiny_model

LENGTHS = Subnet.of_encoder([0, 1, 2], [20, 9, 4], 24)


def only(supernet: Supernet, subnet: Subnet, folder: Path) -> Written:
    """An export of which only the card is ever written."""
    return Written(folder, subnet, ("onnxruntime",), 1e-4, lambda **checked: checked["verified"])


def giving(supernet: Supernet, rows: Rows, subnet: Subnet, change: object) -> list[list[reader.Answer]]:
    """What a reader says that gives the supernet's labels, and its logits changed."""
    logits = [change(inference(supernet, batch, subnet).clone()).numpy() for batch in rows.batches]
    return [[reader.Answer(list(supernet.model.config.id2label.values()), logits)]]


def test_a_fresh_process_reads_both_formats_and_says_what_it_cannot_read(tmp_path, monkeypatch, imports_once):
    monkeypatch.setattr(check, "subprocess", imports_once)
    supernet = Supernet(tiny_model("bert", blocks=3))
    rows = Rows([padded_batch([24, 5, 1]), padded_batch([9, 9])], "rows of two batches")
    exports = [
        write(supernet, TOKENIZER, LENGTHS, tmp_path / name, PROVENANCE)
        for name, write in (("hf", write_huggingface), ("onnx", write_onnx))
    ]
    found = verify_fresh(supernet, exports, rows, None, tmp_path)
    for export, name, own in zip(exports, ("ldsearch.load", "onnxruntime"), found, strict=True):
        sentence = own.describe()
        assert f"a fresh process by {name}: 5 rows of two batches, outputs within" in sentence
        assert "5 of 5 predictions the same" in sentence
        assert sentence in (export.folder / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "onnx"]  # no inputs are left behind
    model = tmp_path / "onnx" / "onnx" / "model.onnx"
    model.write_bytes(model.read_bytes()[:1000])
    with pytest.raises(ExportError, match=r"the loading failed: .* in a fresh process: .*onnx") as error:
        verify_fresh(supernet, [exports[1]], rows, None, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spoil", [float("nan"), 1.0, 0.01])
def test_one_wrong_number_fails(tmp_path, spoil):
    supernet = Supernet(tiny_model("bert", blocks=3))
    rows = random_rows(supernet)

    def change(logits: torch.Tensor) -> torch.Tensor:
        logits[1, 0] += spoil
        return logits

    export = only(supernet, LENGTHS, tmp_path)
    with pytest.raises(
        ExportError, match=r"of the outputs failed.* on 1 of 4 rows of random tokens"
    ) as error:
        verify(supernet, [export], rows, giving(supernet, rows, LENGTHS, change))
    assert "lengths 20 9 4 of 24; nothing was written" in str(error.value)


def test_other_predictions_fail_where_the_logits_are_close_enough(tmp_path):
    supernet = Supernet(tiny_model("bert", blocks=3))
    rows = Rows([padded_batch([7])], "row")
    logits = inference(supernet, rows.batches[0], LENGTHS)
    (first, second), (best, next_best) = (found[0][:2] for found in logits.topk(2))
    margin = float(first - second)

    def change(logits: torch.Tensor) -> torch.Tensor:
        logits[0, best] -= 0.6 * margin
        logits[0, next_best] += 0.6 * margin
        return logits

    share = 0.8 * margin / max(1.0, float(logits.abs().max()))
    export = replace(only(supernet, LENGTHS, tmp_path), tolerance=share)
    with pytest.raises(ExportError, match="check of the predictions failed"):
        verify(supernet, [export], rows, giving(supernet, rows, LENGTHS, change))


def tying(head: str = "SequenceClassification", score: str = "column") -> tuple[Supernet, Rows]:
    """Positions mean nothing to this model: its last row's tokens, all alike, tie."""
    model = tiny_model("bert", blocks=3, head=head)
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
    batch = padded_batch([24, 12, 20])
    batch["input_ids"][2, :20] = 5
    return Supernet(learned(model).model, score), Rows([batch], "rows")


@pytest.mark.parametrize("score", ["column", "power", LEARNED])
def test_a_tie_is_seen(score):
    supernet, rows = tying(score=score)
    distinct = rows.batches[0]["input_ids"]
    distinct[0], distinct[1, :12] = torch.arange(1, 25), torch.arange(1, 13)
    assert ties(supernet, rows.batches[0], LENGTHS).tolist() == [False, False, True]
    assert not ties(supernet, rows.batches[0], Subnet.full(3)).any()


def test_a_row_that_ties_may_differ_and_no_other(tmp_path):
    supernet, rows = tying()
    rows.batches[0]["input_ids"][0] = torch.arange(1, 25)

    def spoiling(index: int) -> list[list[reader.Answer]]:
        def change(logits: torch.Tensor) -> torch.Tensor:
            logits[index] = -logits[index]
            return logits

        return giving(supernet, rows, LENGTHS, change)

    export = only(supernet, LENGTHS, tmp_path)
    (found,) = verify(supernet, [export], rows, spoiling(2))
    assert found.describe().endswith("1 rows left out whose token scores tie")
    with pytest.raises(ExportError, match="of the outputs"):
        verify(supernet, [export], rows, spoiling(0))
    many = Rows([{name: tensor[2:] for name, tensor in rows.batches[0].items()}], "row")
    with pytest.raises(ExportError, match="wherever token scores tie"):
        verify(supernet, [export], many, giving(supernet, many, LENGTHS, lambda logits: -logits))


def test_pads_are_not_compared_and_other_shapes_are_refused(tmp_path):
    supernet = Supernet(tiny_model("bert", blocks=3, head="TokenClassification"))
    rows = random_rows(supernet)
    pads = ~rows.batches[0]["attention_mask"].bool()
    export = only(supernet, LENGTHS, tmp_path)

    def spoil_pads(logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(pads[..., None], 99.0)

    verify(supernet, [export], rows, giving(supernet, rows, LENGTHS, spoil_pads))
    with pytest.raises(ExportError, match="check of the outputs failed: logits are"):
        verify(supernet, [export], rows, giving(supernet, rows, LENGTHS, lambda logits: logits[:, :3]))
