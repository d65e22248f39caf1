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


def export(folder: Path, score: float, megabytes: int) -> None:
    """What ``ldsearch --json export`` leaves: a graph, and its JSON beside the folder."""
    graph = folder / "onnx" / "model.onnx"
    graph.parent.mkdir(parents=True)
    graph.write_bytes(b"0" * (megabytes * 10**6))
    cells = [
        {"batch": b, "length": 47, "median_ms": 2.0 * b, "full_ms": 5.0 * b, "fp32_ms": 4.0 * b}
        | {"fp32_full_ms": 10.0 * b}
        for b in (1, 8)
    ]
    found = {"held_out": held(score), "latency": cells, "machine": "a machine"}
    folder.with_name(f"{folder.name}.json").write_text(json.dumps({"exports": [found]}))


def test_the_table_has_the_four_graphs_each_with_its_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "demo_table.py")))
    chosen, whole, run = tmp_path / "chosen", tmp_path / "whole", tmp_path / "run"
    export(chosen, 0.77, 2)
    export(whole, 0.83, 3)
    run.mkdir()
    costs = {"macs": 40.0, "parameters": 1_000_000.0}
    full = {"macs": 100.0, "parameters": 2_000_000.0}
    best = {"metric": "accuracy", "held_out": held(0.78), "costs": costs, "full_costs": full}
    (run / "best.json").write_text(json.dumps(best))
    assert demo.table(run, chosen, whole)[1:] == [
        ("full", "80.00", "", "10.0", "80.0", "8"),
        ("chosen, 0.40 of the MACs", "78.00", "-2.00 (-3.00 to -1.00)", "4.0", "32.0", "4"),
        ("full, int8", "83.00", "+3.00 (+2.00 to +4.00)", "5.0", "40.0", "3"),
        ("chosen, int8", "77.00", "-3.00 (-4.00 to -2.00)", "2.0", "16.0", "2"),
    ]
    monkeypatch.setitem(demo.main.__globals__, "answer", lambda export, text: f"{export.name} says {text}")
    monkeypatch.setattr("sys.argv", ["demo_table.py", str(run), str(chosen), str(whole), "hello"])
    demo.main()
    said = capsys.readouterr().out
    assert "on 50 report rows, which chose nothing; ONNX Runtime, 47 tokens,\n  a machine\n" in said
    assert "chosen, int8, batch 8: 2.50 times as fast as full in int8, 5.00 as in fp32" in said
    assert "'hello': chosen says hello" in said
