"""The demo's last table: full model and chosen sub-network, in fp32 and in int8, and what the last answers.

Reads what the exports said of themselves (``ldsearch --json export ...``); every time is from one measurement
in which the four took turns.

    python scripts/demo_table.py runs/demo-evolve exported/demo exported/demo-full "a text of yours"
"""

import json
import sys
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

import ldsearch
from ldsearch.runs import read_json

MB = 1e6
FLOAT = 4  # bytes
BATCHES = (1, 8)
COLUMNS = "{:25}{:>9}  {:23}{:>8}{:>8}{:>5}"  # 80 wide


def said(export: Path) -> dict[str, Any]:
    """The JSON that ``ldsearch --json export`` printed, kept beside the export's folder."""
    (found,) = read_json(export.with_name(f"{export.name}.json"))["exports"]
    return dict(found)


def size(export: Path) -> float:
    """Megabytes of its graph."""
    return (export / "onnx" / "model.onnx").stat().st_size / MB


def table(run: Path, chosen: Path, whole: Path) -> list[tuple[str, ...]]:
    """Rows of the printed table, the head first."""
    best, own, full = read_json(run / "best.json"), said(chosen), said(whole)
    cells = {cell["batch"]: cell for cell in own["latency"]}
    share = best["costs"]["macs"] / best["full_costs"]["macs"]
    held = best["held_out"]
    megabytes = {name: FLOAT * best[name]["parameters"] / MB for name in ("costs", "full_costs")}
    found = [
        ("full", held["full_score"], None, "fp32_full_ms", megabytes["full_costs"]),
        (f"chosen, {share:.2f} of the MACs", held["score"], held, "fp32_ms", megabytes["costs"]),
        ("full, int8", full["held_out"]["score"], full["held_out"], "full_ms", size(whole)),
        ("chosen, int8", own["held_out"]["score"], own["held_out"], "median_ms", size(chosen)),
    ]
    rows = [("", best["metric"], "less full in fp32, 95%", *(f"ms, {each}" for each in BATCHES), "MB")]
    for name, score, against, key, mega in found:
        gap = ""
        if against is not None:
            points = [100 * against["difference"][each] for each in ("mean", "low", "high")]
            gap = "{:+.2f} ({:+.2f} to {:+.2f})".format(*points)
        times = [f"{cells[batch][key]:.1f}" for batch in BATCHES]
        rows.append((name, f"{100 * score:.2f}", gap, *times, f"{mega:.0f}"))
    return rows


def answer(export: Path, text: str) -> str:
    """The three likeliest labels."""
    model, tokenizer = ldsearch.load(str(export)), AutoTokenizer.from_pretrained(export)
    probabilities = model(**tokenizer(text, return_tensors="pt", truncation=True)).logits[0].softmax(-1)
    names = json.loads((export / "config.json").read_text(encoding="utf-8"))["id2label"]
    best = probabilities.topk(3)
    likeliest = [f"{names[str(int(i))]} {p:.2f}" for p, i in zip(best.values, best.indices, strict=True)]
    return ", ".join(likeliest)


def main() -> None:
    """Print table, ratio and answer."""
    run, chosen, whole = map(Path, sys.argv[1:4])
    own = said(chosen)
    examples, split = own["held_out"]["difference"]["examples"], own["held_out"]["split"]
    print()
    for row in table(run, chosen, whole):
        print(COLUMNS.format(*row).rstrip())
    cells = {cell["batch"]: cell for cell in own["latency"]}
    length = own["latency"][0]["length"]
    print(f"on {examples} {split} rows, which chose nothing; ONNX Runtime, {length} tokens,")
    print(f"  {own['machine']}")
    for batch in BATCHES:
        cell = cells[batch]
        int8, fp32 = (cell[key] / cell["median_ms"] for key in ("full_ms", "fp32_full_ms"))
        print(f"chosen, int8, batch {batch}: {int8:.2f} times as fast as full in int8, {fp32:.2f} as in fp32")
    print(f"{sys.argv[4]!r}: {answer(chosen, sys.argv[4])}")


if __name__ == "__main__":
    main()
