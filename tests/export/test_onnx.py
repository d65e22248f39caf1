"""ONNX: equal to torch whatever the batch, a batch equal to its rows, and no torch to run it."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from ldsearch.disk.staging import staged
from ldsearch.errors import ExportError
from ldsearch.export import reader
from ldsearch.export.check import random_rows, verify
from ldsearch.export.folder import write_onnx
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet, graph
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import one_of_each
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.tiny import padded_batch, row, tiny_decoder, tiny_encoder_decoder, tiny_model

HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
SUBNETS = {
    "depth": Subnet.of_encoder([0, 2]),
    "lengths": Subnet.of_encoder([0, 1, 2], [20, 9, 4], 24),
    "both": Subnet.of_encoder([0, 2], [14, 3], 24, "absolute"),
    "one drop": Subnet.of_encoder([1], [5], 24),
}
# Padded and of mixed lengths, longer than the reference, unpadded, and one token beside many.
BATCHES = [padded_batch(lengths, seed=7) for lengths in ([24, 9, 3, 30], [13, 13], [1, 21])]


def written(supernet: Supernet, subnet: Subnet, folder: Path) -> Path:
    write_onnx(supernet, TOKENIZER, subnet, folder, PROVENANCE)
    return folder


def of_torch(supernet: Supernet, batch: dict[str, torch.Tensor], subnet: Subnet) -> np.ndarray:
    return inference(supernet, batch, subnet).numpy()


def read(folder: Path, batches: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    ((answer,),) = reader.answers([(folder, ["onnxruntime"], ())], batches)
    return answer.logits


def real(logits: np.ndarray, batch: dict[str, torch.Tensor]) -> np.ndarray:
    return logits[batch["attention_mask"].bool().numpy()] if logits.ndim == 3 else logits


KINDS = one_of_each(3, 24)
GRAPHS = [
    *(("bert", head, "column", SUBNETS.values()) for head in HEADS),
    ("distilbert", HEADS[0], "column", SUBNETS.values()),
    ("modernbert", HEADS[1], "column", SUBNETS.values()),
    # Without its pinned block.
    ("modernbert", HEADS[0], "column", [Subnet.of_encoder([1, 2], [9, 4], 24)]),
    ("modernbert", HEADS[0], "power", [SUBNETS["lengths"]]),
    ("bert", HEADS[0], "power", [SUBNETS["lengths"]]),
    *(
        ("bert", HEADS[0], "column", [KINDS[kind]])
        for kind in ("nothing", "all at once", "sub-layers", "lengths that level off")
    ),
    # Of the example that is traced, rows are alike in length after this one's first block.
    ("bert", HEADS[0], "column", [Subnet.of_encoder([0, 1, 2], [4, 4, 3], 24)]),
]


@pytest.mark.parametrize(("family", "head", "score", "subnets"), GRAPHS)
def test_a_graph_is_its_subnetwork_and_a_batch_its_rows(tmp_path, family, head, score, subnets):
    """Of the learned score and of the other families the family contract tells."""
    supernet = Supernet(tiny_model(family, blocks=3, head=head), score)
    alone = [row(batch, index) for batch in BATCHES for index in range(len(batch["input_ids"]))]
    asked = [{name: t.numpy() for name, t in batch.items()} for batch in (*BATCHES, *alone)]
    for place, subnet in enumerate(subnets):
        outputs, together = read(written(supernet, subnet, tmp_path / str(place)), asked), []
        for batch, found in zip(BATCHES, outputs, strict=False):
            expected = real(of_torch(supernet, batch, subnet), batch)
            np.testing.assert_allclose(real(found, batch), expected, atol=1e-5, rtol=1e-5)
            lengths = batch["attention_mask"].sum(1).tolist()
            together += [own[:n] if found.ndim == 3 else own for own, n in zip(found, lengths, strict=True)]
        for of_batch, by_itself in zip(together, outputs[len(BATCHES) :], strict=True):
            np.testing.assert_allclose(of_batch, by_itself[0], atol=1e-5, rtol=1e-5)


def test_segments_are_read(tmp_path):
    supernet, subnet = Supernet(tiny_model("bert", blocks=3)), SUBNETS["lengths"]
    segments = (torch.arange(30) > 4).long().expand(4, -1).contiguous()
    batch = {**BATCHES[0], "token_type_ids": segments}
    asked = {name: tensor.numpy() for name, tensor in batch.items()}
    folder = written(supernet, subnet, tmp_path)
    (found,) = read(folder, [asked])
    np.testing.assert_allclose(found, of_torch(supernet, batch, subnet), atol=1e-5)
    assert not np.allclose(found, of_torch(supernet, BATCHES[0], subnet), atol=1e-2)


def test_kept_counts_are_the_exact_ceiling():
    lengths, n = torch.arange(1, 400), range(1, 400)
    for kept, reference in ((3, 7), (269, 384), (1, 384), (90, 128), (7, 7)):
        ratio, absolute = (Lengths((reference, kept), reference, mode) for mode in ("ratio", "absolute"))
        counts = graph.kept_counts(ratio, [1, 0], lengths[:, None])
        assert counts.tolist() == [[math.ceil(Fraction(own * kept, reference)), own] for own in n]
        counts = graph.kept_counts(absolute, [1, 0], lengths[:, None])
        assert counts.tolist() == [[min(kept, own), min(reference, own)] for own in n]


def test_a_graph_that_drops_reads_probabilities_three_times_and_has_few_more_operators(tmp_path):
    """In the softmax, for the scores and for the context; rows are copied whole, kept ones counted once."""
    onnx, supernet = pytest.importorskip("onnx"), Supernet(tiny_model("bert", blocks=3))
    graph.trace(supernet, supernet.full, tmp_path / "full.onnx")
    graph.trace(supernet, SUBNETS["lengths"], tmp_path / "lengths.onnx")
    full, nodes = (onnx.load(tmp_path / f"{name}.onnx").graph.node for name in ("full", "lengths"))
    kinds = [node.op_type for node in nodes]
    # Half of a block's are for where its rows stand, twice over; runtimes merge what is equal.
    few = sum(node.op_type != "Constant" for node in full) + 18 + 3 * 20
    assert sum(kind != "Constant" for kind in kinds) < few
    (probabilities,) = {
        node.output[0] for node in nodes if node.op_type == "Softmax" and "_" not in node.name
    }
    assert [node.op_type for node in nodes if probabilities in node.input] == ["MatMul", "MatMul"]
    assert not {"GatherND", "GatherElements", "Expand"} & set(kinds)


def test_a_written_graph_is_checked_and_nothing_is_warned_of(tmp_path, recwarn):
    onnx = pytest.importorskip("onnx")
    for family in ("bert", "modernbert"):
        graph.trace(Supernet(tiny_model(family, blocks=3)), SUBNETS["lengths"], tmp_path / "model.onnx")
        written = onnx.load(tmp_path / "model.onnx")
        onnx.checker.check_model(written, full_check=True)
        assert [(each.domain, each.version) for each in written.opset_import] == [("", graph.OPSET)]
    assert not recwarn.list


def test_fewer_tokens_are_fewer_products_in_the_graph(tmp_path):
    """The rows of the last block's norms and of those before it, asked of the graph itself."""
    supernet = Supernet(tiny_model("bert", blocks=3))
    path = written(supernet, Subnet.of_encoder([0, 1, 2], [24, 12, 6], 24), tmp_path) / "onnx" / "model.onnx"
    graph = pytest.importorskip("onnx").load(path)
    last = [node.output[0] for node in graph.graph.node if node.op_type == "LayerNormalization"]
    # Attention and feed-forward of a block end in a norm each; the head reads the first token alone.
    graph.graph.output.extend(type(graph.graph.output[0])(name=last[place]) for place in (-3, -1))
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    batch = {name: t.numpy() for name, t in padded_batch([24, 8]).items()}
    batch["token_type_ids"] = np.zeros_like(batch["input_ids"])
    before, behind = session.run([last[-3], last[-1]], batch)
    assert (before.shape, behind.shape) == ((2, 12, 16), (2, 1, 16))


@pytest.mark.parametrize("places", [(), range(3)])
@pytest.mark.parametrize(
    ("family", "head"), [*(("bert", head) for head in HEADS), ("modernbert", HEADS[0]), ("mpnet", HEADS[1])]
)
def test_positions_in_whole_multiples_change_no_output(tmp_path, family, head, places):
    """Every norm runs in multiples of 8, or as wide as the model reads; the others' norms do not."""
    onnx = pytest.importorskip("onnx")
    supernet = Supernet(tiny_model(family, blocks=3, head=head))
    widths: dict[int, set[int]] = {}
    for multiple in (1, 8):
        path = tmp_path / "model.onnx"
        graph.trace(supernet, SUBNETS["lengths"], path, fed=places, multiple=multiple)
        model = onnx.load(path)
        outputs = [entry.name for entry in model.graph.output]
        norms = [node.output[0] for node in model.graph.node if node.op_type == "LayerNormalization"]
        model.graph.output.extend(type(model.graph.output[0])(name=name) for name in norms)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        names = [entry.name for entry in session.get_inputs()]
        for batch in BATCHES:
            given = {"token_type_ids": torch.zeros_like(batch["input_ids"]), **batch}
            found = session.run([*outputs, *norms], {name: given[name].numpy() for name in names})
            logits = np.stack(found[: len(outputs)], axis=-1) if len(outputs) > 1 else found[0]
            expected = of_torch(supernet, batch, SUBNETS["lengths"])
            np.testing.assert_allclose(real(logits, batch), real(expected, batch), atol=1e-5, rtol=1e-5)
            assert logits.shape == expected.shape
            widths.setdefault(multiple, set()).update(state.shape[1] for state in found[len(outputs) :])
    # A head that reads the first token alone has the last norms of it alone.
    assert {width % 8 for width in widths[8] - {1}} == {0}
    assert {width % 8 for width in widths[1] - {1}} > {0}


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
names = {{}}
exec({code!r}, names)
from ldsearch.export import reader
import json
((answer,),) = reader.answers([({folder!r}, ["onnxruntime"], ())], [dict(names["inputs"])])
same = answer.logits[0].tolist()
print(json.dumps([names["logits"].tolist(), same, names["inputs"]["input_ids"].tolist()]))
"""


def test_the_five_lines_of_the_card_run_where_there_is_no_torch(tmp_path):
    supernet, subnet = Supernet(tiny_model("bert", blocks=3)), SUBNETS["lengths"]
    with staged(tmp_path / "out") as staging:
        export = write_onnx(supernet, TOKENIZER, subnet, staging, PROVENANCE)
        verify(supernet, [export], random_rows(supernet))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "4 rows of random tokens" in card
    assert "opset 17" in card
    code = card.split("```python\n")[1].split("```")[0].replace("this folder", str(tmp_path / "out"))
    script = WITHOUT_TORCH.format(code=code, folder=str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    logits, same, ids = json.loads(done.stdout)
    assert logits == same
    assert ids == TOKENIZER(["some text", "some more of it"], padding=True)["input_ids"]
    batch = TOKENIZER(["some text", "some more of it"], padding=True, return_tensors="pt")
    np.testing.assert_allclose(logits, of_torch(supernet, batch, subnet), atol=1e-5)


def test_the_folder_says_what_it_is(tmp_path):
    subnet = Subnet(encoder=Stack((0, 2), Lengths((9, 4), 24)))
    folder = written(Supernet(tiny_model("bert", blocks=3, head="QuestionAnswering")), subnet, tmp_path)
    fields = json.loads((folder / "ldsearch_subnet.json").read_text())
    assert Subnet.from_json(json.dumps(fields["subnet"])) == subnet
    assert fields["outputs"] == ["start_logits", "end_logits"]
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 2
    assert sorted(path.name for path in (folder / "onnx").iterdir()) == ["model.onnx"]


def test_what_is_no_encoder_is_refused_in_one_line(tmp_path):
    for model in (tiny_decoder("gpt2"), tiny_encoder_decoder("bart")):
        supernet, says = Supernet(model), f"not of a {type(model).__name__}: take train-supernet"
        with pytest.raises(ExportError, match=says) as refusal:
            write_onnx(supernet, TOKENIZER, supernet.full, tmp_path / "out", PROVENANCE)
        assert "\n" not in str(refusal.value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "find_spec", lambda name: None)
        with pytest.raises(ExportError, match="pip install"):
            write_onnx(Supernet(tiny_model("bert")), TOKENIZER, SUBNETS["depth"], tmp_path, PROVENANCE)
    assert list(tmp_path.iterdir()) == []
