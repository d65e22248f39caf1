"""The demo's last table: the full model where it is fastest, the chosen sub-network, and its answer.

Reads what the export said of itself (``ldsearch --json export ...``); both were timed in turn.

    python scripts/demo_table.py runs/demo-evolve exported/demo "a text of yours"
"""

import json
import sys
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

import ldsearch
from ldsearch.latency.runtimes import title_of
from ldsearch.runs.run import read_json

BATCHES = (1, 8)
COLUMNS = "{:26}{:>9}  {:23}{:>8}{:>8}"  # 80 wide


def said(export: Path) -> dict[str, Any]:
    """The JSON that ``ldsearch --json export`` printed, kept beside the export's folder."""
    (found,) = read_json(export.with_name(f"{export.name}.json"))["exports"]
    return dict(found)


def table(run: Path, export: Path) -> list[tuple[str, ...]]:
    """Rows of the printed table, the head first."""
    best, own = read_json(run / "best.json"), said(export)
    cells = {cell["batch"]: cell for cell in own["latency"]}
    share = best["costs"]["macs"] / best["full_costs"]["macs"]
    held = own["held_out"] or best["held_out"]
    gap = "{:+.2f} ({:+.2f} to {:+.2f})".format(
        *(100 * held["difference"][each] for each in ("mean", "low", "high"))
    )
    rows = [("", best["metric"], "less full, 95%", *(f"ms, {each}" for each in BATCHES))]
    for name, score, less, key in (
        ("full, where it is fastest", held["full_score"], "", "full_ms"),
        (f"chosen, {share:.2f} of the MACs", held["score"], gap, "median_ms"),
    ):
        rows.append((name, f"{100 * score:.2f}", less, *(f"{cells[each][key]:.1f}" for each in BATCHES)))
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
    """Print table, ratios and answer."""
    run, export = map(Path, sys.argv[1:3])
    own = said(export)
    held = own["held_out"] or read_json(run / "best.json")["held_out"]
    print()
    for row in table(run, export):
        print(COLUMNS.format(*row).rstrip())
    cells = {cell["batch"]: cell for cell in own["latency"]}
    print(
        f"on {held['difference']['examples']} {held['split']} rows, which chose nothing; batches of "
        f"{own['latency'][0]['length']} tokens,\n  {own['machine']}"
    )
    for batch in BATCHES:
        cell = cells[batch]
        print(
            f"chosen ({title_of(cell['runtime'])}), batch {batch}: {cell['full_ms'] / cell['median_ms']:.2f} "
            f"times as fast as the fastest full model ({title_of(cell['full_runtime'])})"
        )
    print(f"{sys.argv[3]!r}: {answer(export, sys.argv[3])}")


if __name__ == "__main__":
    main()
