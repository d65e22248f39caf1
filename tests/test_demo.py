"""The demo: its texts are long and in one file each; an answer is the compressed model's; its table."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

ROOT = Path(__file__).parent.parent


def script(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / name)))


def test_what_chooses_and_reports_was_in_no_training_and_is_long(tmp_path: Path) -> None:
    counts = script("demo.py").texts(tmp_path)
    lines = {name: (tmp_path / name).read_text().splitlines() for name in counts}
    rows = {name: [*map(json.loads, own)] for name, own in lines.items()}
    assert {name: len(own) for name, own in rows.items()} == counts
    train, chosen, report = ({row["text"] for row in own} for own in rows.values())
    assert len(train) > 4_500  # an epoch is more than the demo's steps
    assert min(len(chosen), len(report)) >= 750  # as many as compress reports on
    assert not train & chosen | train & report | chosen & report
    assert min(map(len, train | chosen | report)) >= 300
    assert len({frozenset(row["label"] for row in own) for own in rows.values()}) == 1


def test_the_answer_names_the_likeliest_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = script("demo.py")

    class Served:
        config = SimpleNamespace(id2label={0: "numpy", 1: "scipy", 2: "sympy", 3: "torch"})

        def __call__(self, **inputs: object) -> SimpleNamespace:
            assert inputs == {"input_ids": "hello"}
            return SimpleNamespace(logits=torch.tensor([[0.1, 0.7, 0.05, 0.15]]).log())

    tokenizer = SimpleNamespace(from_pretrained=lambda folder: lambda text, **how: {"input_ids": text})
    monkeypatch.setitem(demo.answer.__globals__, "ldsearch", SimpleNamespace(load=lambda folder: Served()))
    monkeypatch.setitem(demo.answer.__globals__, "AutoTokenizer", tokenizer)
    assert demo.answer(Path("model"), "hello") == "scipy 0.70, torch 0.15, numpy 0.10"


def test_the_table_over_seeds_has_each_and_the_mean() -> None:
    def run(seed: int, loss: float, ms: float) -> dict[str, object]:
        gap = {"mean": -loss, "low": -loss - 0.01, "high": -loss + 0.01}
        full = {"name": "full model, onnx-int8", "macs": 1.0, "score": 0.8, "ms": {"1x9": 4.0, "8x9": 20.0}}
        chosen = {"macs": 0.4, "score": 0.8 - loss, "difference": gap, "ms": {"1x9": 2.0, "8x9": ms}}
        return {"seed": seed, "minutes": 9.0 + seed, "points": [full, chosen]}

    lines = script("bench_demo.py").page([run(0, 0.01, 10.0), run(1, 0.02, 5.0)]).splitlines()
    assert lines[2:] == [
        "| 0 | onnx-int8 | 80.00 | 0.40 | -1.00 (-2.00 to +0.00) | 2.00 | 2.00 | 9.0 |",
        "| 1 | onnx-int8 | 80.00 | 0.40 | -2.00 (-3.00 to -1.00) | 2.00 | 4.00 | 10.0 |",
        "| mean |  |  |  | -1.50 | 2.00 | 3.00 | 9.5 |",
    ]
