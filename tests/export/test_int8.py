"""int8 files: close to fp32, refused where predictions change, scored on rows that chose nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from ldsearch.errors import ExportError
from ldsearch.export.check import Rows, verify
from ldsearch.export.folder import write_onnx
from ldsearch.latency.int8 import int8_instructions
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.trials.intervals import Interval
from tests.cli.conftest import Ldsearch
from tests.export.test_export import PROVENANCE, TOKENIZER
from tests.export.test_onnx import BATCHES, SUBNETS, read
from tests.tiny import tiny_model

INT8 = 3  # of onnx.TensorProto
ROWS = Rows(BATCHES, "rows of random tokens")


def int8(supernet: Supernet, name: str, folder: Path):
    return write_onnx(supernet, TOKENIZER, SUBNETS[name], folder, PROVENANCE, "onnx-int8")


def test_weights_are_int8_with_a_scale_for_each_output(tmp_path):
    supernet = Supernet(tiny_model("bert", blocks=3))
    small = onnx.load(int8(supernet, "lengths", tmp_path / "int8").folder / "onnx" / "model.onnx")
    onnx.checker.check_model(small)
    kinds = [node.op_type for node in small.graph.node]
    # Six products with weights in a block; those of two activations, for attention, stay in float.
    assert kinds.count("MatMulInteger") + kinds.count("DynamicQuantizeMatMul") >= 3 * 6
    scales = [one for one in small.graph.initializer if one.name.endswith("_scale")]
    assert {one.dims[0] for one in scales if len(one.dims)} >= {16}
    # Without VNNI x86 adds the products of two uint8 activations with two weights in 16 bits.
    whole = [onnx.numpy_helper.to_array(one) for one in small.graph.initializer if one.data_type == INT8]
    assert len(whole) >= 3 * 6
    largest = max(int(np.abs(one.astype(int)).max()) for one in whole if one.ndim == 2)
    assert 2 * 255 * largest <= np.iinfo(np.int16).max
    assert largest > 60  # what bits are left are used


def test_norms_stay_apart_from_their_residuals(tmp_path):
    """Asked of ONNX Runtime itself: its fusion of the two is slower than they are."""
    supernet = Supernet(tiny_model("bert", blocks=3))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # that what is optimised is for this machine is meant
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(int8(supernet, "lengths", tmp_path).folder / "onnx" / "model.onnx", options)
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert "LayerNormalization" in kinds
    assert "SkipLayerNormalization" not in kinds


def test_too_few_equal_predictions_are_refused(tmp_path, monkeypatch):
    supernet = Supernet(tiny_model("bert", blocks=3))
    written = int8(supernet, "depth", tmp_path / "out")
    (found,) = verify(supernet, [written], ROWS, least_agreement=0.1)
    assert found.tolerance is None
    assert "predictions" in found.describe()
    assert "int8" in (tmp_path / "out" / "README.md").read_text()
    with torch.no_grad():  # a supernet that says the opposite
        supernet.model.classifier.weight.neg_()
        supernet.model.classifier.bias.neg_()
    with pytest.raises(ExportError, match=r"--least-agreement asks for 0.98; nothing was written"):
        verify(supernet, [written], ROWS)
    scored = replace(
        ROWS,
        metric="accuracy",
        score=lambda logits: float(torch.cat([*logits]).argmax(-1).eq(0).float().mean()),
        difference=lambda first, second: Interval(0.25, 0.125, 0.5, 8),
    )
    with pytest.raises(ExportError, match=r"accuracy 0\.\d+, the supernet's 0\.\d+ .*\+0\.1250 to \+0\.5000"):
        verify(supernet, [written], scored)


def test_a_regression_is_compared_by_correlation(tmp_path):
    model = tiny_model("bert", blocks=3, labels=1)
    model.config.problem_type = "regression"
    supernet = Supernet(model)
    written = int8(supernet, "depth", tmp_path / "out")
    (found,) = verify(supernet, [written], ROWS, least_agreement=0.5)
    want = np.concatenate([inference(supernet, batch, SUBNETS["depth"]).numpy()[:, 0] for batch in BATCHES])
    got = np.concatenate(read(tmp_path / "out", BATCHES))[:, 0]
    assert found.agreement.share == pytest.approx(np.corrcoef(want, got)[0, 1], abs=1e-6)
    assert "correlate" in found.describe()


def test_instructions_are_read_off_the_processor(tmp_path):
    for text, found in (
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_vnni amx_int8\n", ("amx_int8", "avx512_vnni")),
        ("flags : fpu avx2\n", ()),
        ("Features\t: fp asimd asimddp\n", ("asimddp",)),
        ("nothing of the kind\n", None),
    ):
        (tmp_path / "cpuinfo").write_text(text)
        assert int8_instructions(tmp_path / "cpuinfo") == found
    assert int8_instructions(tmp_path / "none") is None


@pytest.mark.usefixtures("timing_jobs")
def test_any_fine_tuned_model_is_exported_whole(ldsearch: Ldsearch, wild_place: Path, mine: Path):
    least = ("--format", "onnx", "--runtime", "onnx-int8", "--least-agreement", "0.5")
    scored = ldsearch.done("export", mine, "scored", *least, "--data", wild_place / "reviews.csv")
    supernet = ldsearch.done("export", "runs/tiny", "same", *least, "--subnet", "full")
    files = [(wild_place / name / "onnx" / "model.onnx").read_bytes() for name in ("scored", "same")]
    assert files[0] == files[1]
    said = [outcome.out.split("predictions")[1].splitlines()[0] for outcome in (scored, supernet)]
    assert said[0] == said[1].replace("the run's", "the supernet's")
    assert "report rows, which chose nothing" in said[0]
    blind = ldsearch.done("export", mine, "blind", *least)
    assert "on 200 rows of random tokens" in blind.out
    assert "no score was taken" in blind.err
    assert "accuracy" not in blind.out
