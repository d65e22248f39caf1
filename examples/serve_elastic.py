"""One file, a time limit that changes: each batch of texts is read at the lengths that fit what it may take.

ldsearch compress ./my-finetuned-bert --data texts.csv
python examples/serve_elastic.py runs/my-finetuned-bert-compressed/model --milliseconds 40 20 10 < texts.txt
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer

import ldsearch


def lengths_within(folder: Path, milliseconds: float, batch: int) -> list[int]:
    """What blocks keep of the reference's tokens: of the dearest row that is so fast, or of the cheapest."""
    rows = json.loads((folder / "budgets.json").read_text())["rows"]  # cheapest first

    def expected(row: dict) -> float:
        nearest = min(row["latency"], key=lambda line: abs(line["batch"] - batch))
        return nearest["median_ms"] * batch / nearest["batch"]

    fitting = [row for row in rows if expected(row) <= milliseconds]
    return (fitting or rows[:1])[-1]["keep"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[50.0], help="one after the other")
    args = parser.parse_args()
    tokenizer, model = AutoTokenizer.from_pretrained(args.folder), ldsearch.load(args.folder)
    texts = [line.strip() for line in sys.stdin if line.strip()]
    for limit in args.milliseconds:
        keep = lengths_within(args.folder, limit, len(texts))
        inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
        start = time.perf_counter()
        logits = model(**inputs, keep=torch.tensor([keep])).logits
        taken = 1000 * (time.perf_counter() - start)
        labels = [model.config.id2label[best] for best in logits.argmax(-1).tolist()]
        print(f"{limit:g} ms asked, {taken:.1f} taken, blocks keep {keep}: {' '.join(labels)}")
