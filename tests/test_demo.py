"""The demo's last table says what the exports and the run said."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent


def gap(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01, "examples": 50}


def held(score: float) -> dict[str, object]:
    return {"split": "report", "score": score, "full_score": 0.8, "difference": gap(score - 0.8)}


@pytest.mark.parametrize("rounds", [True, False])
def test_the_table_has_both_models_with_their_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rounds: bool
) -> None:
    demo = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "demo_table.py")))
    export, run = tmp_path / "chosen", tmp_path / "run"
    run.mkdir()
    runtimes = {"runtime": "onnx-int8", "full_runtime": "openvino-f32"}
    cells = [{"batch": b, "length": 47, "median_ms": 2.0 * b, "full_ms": 5.0 * b, **runtimes} for b in (1, 8)]
    found = {"held_out": held(0.77) if rounds else None, "latency": cells, "machine": "a machine"}
    (tmp_path / "chosen.json").write_text(json.dumps({"exports": [found]}))
    costs = {"costs": {"macs": 40.0}, "full_costs": {"macs": 100.0}}
    (run / "best.json").write_text(json.dumps({"metric": "accuracy", "held_out": held(0.78), **costs}))
    score, gap = ("77.00", "-3.00 (-4.00 to -2.00)") if rounds else ("78.00", "-2.00 (-3.00 to -1.00)")
    assert demo.table(run, export)[1:] == [
        ("full, where it is fastest", "80.00", "", "5.0", "40.0"),
        ("chosen, 0.40 of the MACs", score, gap, "2.0", "16.0"),
    ]
    monkeypatch.setitem(demo.main.__globals__, "answer", lambda export, text: f"{export.name} says {text}")
    monkeypatch.setattr("sys.argv", ["demo_table.py", str(run), str(export), "hello"])
    demo.main()
    said = capsys.readouterr().out
    assert "on 50 report rows, which chose nothing; batches of 47 tokens,\n  a machine\n" in said
    assert (
        "chosen (ONNX Runtime in int8), batch 8: 2.50 times as fast as the fastest full model "
        "(OpenVINO in fp32)" in said
    )
    assert "'hello': chosen says hello" in said
