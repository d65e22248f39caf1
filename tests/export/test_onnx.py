"""ONNX: equal to torch whatever the batch, a batch equal to its rows, and no torch to run it."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from ldsearch.errors import ExportError
from ldsearch.export import reader
from ldsearch.export.check import random_rows, verify
from ldsearch.export.folder import write_onnx
from ldsearch.subnet import Lengths, Subnet
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


def arrays(batch: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in batch.items()}


def read(folder: Path, batches: list[dict[str, torch.Tensor]]) -> list[np.ndarray]:
    ((answer,),) = reader.answers([(folder, ["onnxruntime"], ())], list(map(arrays, batches)))
    return answer.logits


def real(logits: np.ndarray, batch: dict[str, torch.Tensor]) -> np.ndarray:
    return logits[batch["attention_mask"].bool().numpy()] if logits.ndim == 3 else logits


KINDS = one_of_each(3, 24)
GRAPHS = [
    *(("bert", head, "column", SUBNETS.values()) for head in HEADS),
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
def test_a_graph_is_its_subnetwork_whatever_the_batch(tmp_path, family, head, score, subnets):
    """Of the learned score and of other families the family contract tells."""
    supernet = Supernet(tiny_model(family, blocks=3, head=head), score)
    asked = [*BATCHES, *(row(batch, index) for batch in BATCHES for index in range(len(batch["input_ids"])))]
    if family == "bert":
        segments = (torch.arange(30) > 4).long().expand(4, -1).contiguous()
        asked.append({**BATCHES[0], "token_type_ids": segments})
    for place, subnet in enumerate(subnets):
        outputs = read(written(supernet, subnet, tmp_path / str(place)), asked)
        for batch, found in zip(asked, outputs, strict=True):
            expected = real(of_torch(supernet, batch, subnet), batch)
            np.testing.assert_allclose(real(found, batch), expected, atol=1e-5, rtol=1e-5)


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
    supernet = Supernet(tiny_model("bert", blocks=3))
    graph.trace(supernet, supernet.full, tmp_path / "full.onnx")
    graph.trace(supernet, SUBNETS["lengths"], tmp_path / "lengths.onnx")
    full, model = (onnx.load(tmp_path / f"{name}.onnx") for name in ("full", "lengths"))
    onnx.checker.check_model(model, full_check=True)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", graph.OPSET)]
    nodes = model.graph.node
    kinds = [node.op_type for node in nodes]
    # Half of a block's are for where its rows stand, twice over; runtimes merge what is equal.
    few = sum(node.op_type != "Constant" for node in full.graph.node) + 18 + 3 * 20
    assert sum(kind != "Constant" for kind in kinds) < few
    (probabilities,) = {
        node.output[0] for node in nodes if node.op_type == "Softmax" and "_" not in node.name
    }
    assert [node.op_type for node in nodes if probabilities in node.input] == ["MatMul", "MatMul"]
    assert not {"GatherND", "GatherElements", "Expand"} & set(kinds)


def with_norms(path: Path) -> onnxruntime.InferenceSession:
    """A session that gives what leaves each norm too, behind the outputs."""
    model = onnx.load(path)
    norms = [node.output[0] for node in model.graph.node if node.op_type == "LayerNormalization"]
    model.graph.output.extend(type(model.graph.output[0])(name=name) for name in norms)
    return onnxruntime.InferenceSession(model.SerializeToString())


def given(session: onnxruntime.InferenceSession, batch: dict[str, torch.Tensor]) -> list[np.ndarray]:
    """What a session gives for a batch of one segment."""
    known = arrays({"token_type_ids": torch.zeros_like(batch["input_ids"]), **batch})
    return session.run(None, {entry.name: known[entry.name] for entry in session.get_inputs()})


def test_fewer_tokens_are_fewer_products_in_the_graph(tmp_path):
    """The rows of the last block's norms and of those before it, asked of the graph itself."""
    subnet = Subnet.of_encoder([0, 1, 2], [24, 12, 6], 24)
    graph.trace(Supernet(tiny_model("bert", blocks=3)), subnet, tmp_path / "model.onnx")
    # Attention and feed-forward of a block end in a norm each; the head reads the first token alone.
    *_, before, _, behind = given(with_norms(tmp_path / "model.onnx"), padded_batch([24, 8]))
    assert (before.shape, behind.shape) == ((2, 12, 16), (2, 1, 16))


@pytest.mark.parametrize("places", [(), range(3)])
@pytest.mark.parametrize(
    ("family", "head"), [*(("bert", head) for head in HEADS), ("modernbert", HEADS[0]), ("mpnet", HEADS[1])]
)
def test_positions_in_whole_multiples_change_no_output(tmp_path, family, head, places):
    """Every norm runs in multiples of 8, or as wide as the model reads; the others' norms do not."""
    supernet = Supernet(tiny_model(family, blocks=3, head=head))
    ends = 2 if head == "QuestionAnswering" else 1
    widths: dict[int, set[int]] = {1: set(), 8: set()}
    for multiple, seen in widths.items():
        graph.trace(supernet, SUBNETS["lengths"], tmp_path / "model.onnx", fed=places, multiple=multiple)
        session = with_norms(tmp_path / "model.onnx")
        for batch in BATCHES:
            found = given(session, batch)
            logits = np.stack(found[:ends], axis=-1) if ends > 1 else found[0]
            expected = of_torch(supernet, batch, SUBNETS["lengths"])
            np.testing.assert_allclose(real(logits, batch), real(expected, batch), atol=1e-5, rtol=1e-5)
            assert logits.shape == expected.shape
            seen.update(state.shape[1] for state in found[ends:])
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
    verify(supernet, [write_onnx(supernet, TOKENIZER, subnet, tmp_path, PROVENANCE)], random_rows(supernet))
    card = (tmp_path / "README.md").read_text()
    assert "opset 17" in card
    code = card.split("```python\n")[1].split("```")[0].replace("this folder", str(tmp_path))
    script = WITHOUT_TORCH.format(code=code, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    logits, same, ids = json.loads(done.stdout)
    assert logits == same
    assert ids == TOKENIZER(["some text", "some more of it"], padding=True)["input_ids"]
    batch = TOKENIZER(["some text", "some more of it"], padding=True, return_tensors="pt")
    np.testing.assert_allclose(logits, of_torch(supernet, batch, subnet), atol=1e-5)


def test_the_folder_says_what_it_is(tmp_path):
    supernet = Supernet(tiny_model("bert", blocks=3, head="QuestionAnswering"))
    fields = json.loads((written(supernet, SUBNETS["both"], tmp_path) / "ldsearch_subnet.json").read_text())
    assert Subnet.from_json(json.dumps(fields["subnet"])) == SUBNETS["both"]
    assert fields["outputs"] == ["start_logits", "end_logits"]


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
