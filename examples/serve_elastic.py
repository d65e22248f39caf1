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


class Pace:
    """Chooses a row of the file in a folder for each batch, by how long batches have taken here so far."""

    def __init__(self, folder: Path) -> None:
        self.rows = json.loads((folder / "budgets.json").read_text())["rows"]  # cheapest first
        self.slower = 1.0  # than the folder says: another machine, longer texts, or other work on it

    def expected(self, row: dict, batch: int) -> float:
        """Milliseconds, as the folder has them for the nearest batch size."""
        nearest = min(row["latency"], key=lambda line: abs(line["batch"] - batch))
        return nearest["median_ms"] * batch / nearest["batch"]

    def row_within(self, milliseconds: float, batch: int) -> dict:
        """The dearest row that should take no longer, or the cheapest."""
        limit = milliseconds / self.slower
        fitting = [row for row in self.rows if self.expected(row, batch) <= limit]
        return (fitting or self.rows[:1])[-1]

    def took(self, row: dict, batch: int, milliseconds: float) -> None:
        """Learn from a batch: a mean over about the last five."""
        self.slower += 0.2 * (milliseconds / self.expected(row, batch) - self.slower)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[50.0], help="one after the other")
    args = parser.parse_args()
    tokenizer, model = AutoTokenizer.from_pretrained(args.folder), ldsearch.load(args.folder)
    texts, pace = [line.strip() for line in sys.stdin if line.strip()], Pace(args.folder)
    for limit in args.milliseconds:
        row = pace.row_within(limit, len(texts))
        inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
        start = time.perf_counter()
        logits = model(**inputs, keep=torch.tensor([row["keep"]])).logits
        taken = 1000 * (time.perf_counter() - start)
        pace.took(row, len(texts), taken)
        labels = [model.config.id2label[best] for best in logits.argmax(-1).tolist()]
        print(f"{limit:g} ms asked, {taken:.1f} taken, blocks keep {row['keep']}: {' '.join(labels)}")
