"""One graph for every budget: what is fed as lengths is the sub-network that torch runs."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from ldsearch import Bench, load
from ldsearch.errors import BudgetError, SubnetError, SupernetError
from ldsearch.export.elastic import keep_within, rows_beside
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.runs.run import Run
from ldsearch.subnet import Subnet, drop_places, keep_of
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from tests.cli.conftest import Ldsearch
from tests.tiny import learned, padded_batch, row, tiny_model

RUN, REFERENCE = "runs/tiny-evolve", 24
CHOSEN = (20, 9, 9, 4)
ROWS = (CHOSEN, (24, 24, 24, 24), (24, 12, 6, 1), (7, 7, 2, 2))
BATCH = padded_batch([24, 9, 3, 30], seed=7)


def subnet(keep: tuple[int, ...]) -> Subnet:
    return Subnet.of_encoder(range(4), keep, REFERENCE)


def opened(supernet: Supernet, folder: Path, runtime: str, places: Sequence[int] = range(4)):
    serves = graph_runtime(runtime)
    serves.write(supernet, subnet(CHOSEN), folder / "model.onnx", fed=places)
    return serves.open(folder / "model.onnx", 1)


def fed(session, **more: np.ndarray) -> list[np.ndarray]:
    blank = torch.zeros_like(BATCH["input_ids"])
    arrays = {name: BATCH.get(name, blank).numpy() for name in session.inputs}
    return list(session.run({**arrays, **more}))


@pytest.mark.parametrize("runtime", ["onnx", "openvino-f32"])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
def test_a_batch_mixes_sub_networks_and_who_feeds_none_runs_its_own(tmp_path, family, runtime, head):
    """That each of them is its sub-network the family contract tells."""
    supernet = learned(tiny_model(family, head=head))
    session = opened(supernet.eval(), tmp_path, runtime)
    assert session.optional == ("keep",)
    for keeps, given in (((CHOSEN,) * 4, {}), (ROWS, {"keep": np.array(ROWS)})):
        together = fed(session, **given)[0]
        for place, keep in enumerate(keeps):
            want = inference(supernet, row(BATCH, place), subnet(keep)).numpy()[0]
            own = together[place][: len(want)] if together.ndim == 3 else together[place]
            np.testing.assert_allclose(own, want, atol=1e-4)


@pytest.mark.parametrize("runtime", ["onnx", "onnx-int8", "openvino", "openvino-f32", "openvino-int8"])
def test_at_its_own_lengths_it_is_the_fixed_graph(tmp_path, runtime):
    supernet = learned(tiny_model("bert")).eval()
    for name in ("elastic", "fixed"):
        (tmp_path / name).mkdir()
    elastic, fixed = (
        fed(opened(supernet, tmp_path / name, runtime, places))[0]
        for name, places in (("elastic", range(4)), ("fixed", ()))
    )
    np.testing.assert_allclose(elastic, fixed, atol=1e-6)


@pytest.mark.parametrize("runtime", ["onnx", "openvino-f32"])
def test_a_graph_drops_only_where_a_row_does(tmp_path, runtime):
    """Two blocks that drop: so often tokens are ranked, and two lengths are fed."""
    onnx = pytest.importorskip("onnx")
    rows = [subnet(keep) for keep in ((20, 20, 4, 4), (9, 9, 9, 9), (24, 24, 2, 2))]
    assert drop_places(rows) == (0, 2)
    supernet = learned(tiny_model("bert")).eval()
    session = opened(supernet, tmp_path, runtime, (0, 2))
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert sum(node.op_type == "TopK" for node in nodes) == 2
    for one in rows:
        found = fed(session, keep=np.array([keep_of(one, REFERENCE, (0, 2))]))[0]
        np.testing.assert_allclose(found, inference(supernet, BATCH, one).numpy(), atol=1e-4)


def test_where_nothing_is_dropped_every_length_can_be_fed():
    assert drop_places([subnet((24,) * 4), Subnet.full(4)]) == (0, 1, 2, 3)
    assert drop_places([Subnet.full(4), subnet((24, 24, 24, 23))]) == (3,)


def test_what_one_graph_can_run():
    whole = Subnet.full(3)
    assert keep_of(whole, REFERENCE) == (REFERENCE,) * 3
    others = [Subnet.of_encoder([0, 2]), Subnet.of_encoder(range(3), [9, 5, 1], REFERENCE), Subnet.full(3)]
    assert rows_beside(whole, others) == [1, 2]
    with pytest.raises(SubnetError, match="in ratio"):
        keep_of(Subnet.of_encoder([0], [4], REFERENCE, "absolute"), REFERENCE)


def budgets(folder: Path, full: float, macs: Sequence[float]) -> None:
    """Rows of so many MACs keep 1, 2, ... tokens, and take so many fifths of a millisecond."""
    rows = [
        {
            "keep": [keep],
            "costs": {"macs": own, "parameters": 5.0},
            "full_costs": {"macs": full, "parameters": 5.0},
            "latency": [{"batch": 8, "length": 16, "median_ms": own / 5, "full_ms": full / 5}],
        }
        for keep, own in enumerate(macs, 1)
    ]
    (folder / "budgets.json").write_text(json.dumps({"reference": 16, "rows": rows}))


def test_a_budget_takes_the_dearest_row_within_it(tmp_path):
    with pytest.raises(SupernetError, match=r"only an export with --elastic has budgets"):
        keep_within(tmp_path, "0.5")
    budgets(tmp_path, 100.0, (30, 50, 80))
    asked = ("0.5", 2), ("0.79", 2), ("1", 3), ("10ms@batch=8,length=16", 2), ("60macs", 2), ("3x", 1)
    for budget, keep in asked:
        assert keep_within(tmp_path, budget) == (keep,)
    with pytest.raises(BudgetError, match=r"the cheapest takes 1\.50 times that"):
        keep_within(tmp_path, "0.2")
    with pytest.raises(BudgetError, match=r"batch=1,length=16: it has batch=8,length=16"):
        keep_within(tmp_path, "5ms@batch=1,length=16")
    # The whole model is within a share of one, whatever its MACs are rounded to.
    budgets(tmp_path, 3.0, (1.5, 3.0 * (1 + 1.4e-10)))
    assert keep_within(tmp_path, 1) == keep_within(tmp_path, "1.0") == (2,)
    assert keep_within(tmp_path, 0.5) == (1,)
    # A share with two digits names its row: 0.504 is 0.50 in tables, 0.507 is 0.51.
    budgets(tmp_path, 3.0, (0.7, 1.512, 1.521))
    assert [keep_within(tmp_path, share) for share in (0.5, 0.51, "1.511macs")] == [(2,), (3,), (1,)]


@pytest.mark.usefixtures("timing_jobs")
def test_a_frontier_is_one_file(ldsearch: Ldsearch, wild_place: Path):
    ldsearch.done("export", RUN, "out", "--format", "onnx", "--runtime", "onnx", "--elastic")
    assert [path.name for path in (wild_place / "out").rglob("*.onnx")] == ["model.onnx"]
    run = Run.open(wild_place / RUN)
    points = {point.subnet: point for point in run.points()}
    rows = json.loads((wild_place / "out/budgets.json").read_text())["rows"]
    same = {own for own in points if own.encoder.blocks == run.best.subnet.encoder.blocks}
    assert len(rows) == len(same) > 1
    assert [each["costs"]["macs"] for each in rows] == sorted(each["costs"]["macs"] for each in rows)
    for each in rows:
        own = points[Subnet.from_json(json.dumps(each["subnet"]))]
        assert (each["score"], each["measured_score"]["value"]) == (own.score, own.score)
        if own.subnet.encoder.lengths:
            assert tuple(each["keep"]) == own.subnet.encoder.lengths.tokens
    batch = padded_batch([9, 5], seed=3)
    supernet = Bench.open(wild_place / "runs/tiny", "search").supernet.eval()
    cheap = rows[0]
    share = cheap["costs"]["macs"] / cheap["full_costs"]["macs"]
    with torch.inference_mode():
        found = load(wild_place / "out", budget=f"{share + 1e-6:.6f}")(**batch).logits
        fed_now = load(wild_place / "out")(**batch, keep=torch.tensor([cheap["keep"]])).logits
    want = inference(supernet, batch, Subnet.from_json(json.dumps(cheap["subnet"])))
    torch.testing.assert_close(found, want, atol=1e-4, rtol=0)
    torch.testing.assert_close(fed_now, want, atol=1e-4, rtol=0)
