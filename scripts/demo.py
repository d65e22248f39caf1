"""What the demo does beside ldsearch's own commands: its texts, and an answer of the model that it wrote.

    python scripts/demo.py texts runs/demo-texts
    python scripts/demo.py answer runs/demo-compressed/model "a text of yours"

The texts are the docstrings that come with ldsearch, those that are long enough to have something to drop:
a folder of splits, each of other source files.
"""

import sys
from pathlib import Path

import pandas as pd
from transformers import AutoTokenizer

import ldsearch
from ldsearch.disk.files import write_together
from ldsearch.tasks.corpus import load_docstrings

LEAST = 300  # characters: 44 tokens and more, 158 in the mean
FILES = {"train": "train.jsonl", "search": "validation.jsonl", "report": "test.jsonl"}


def texts(folder: Path) -> dict[str, int]:
    """Write the files; how many rows each has."""
    task = load_docstrings()
    tables = {
        split: pd.DataFrame({"text": rows.texts, "label": [task.labels[label] for label in rows.labels]})
        for split, rows in task.splits.items()
    }
    found = {FILES[split]: table[table["text"].str.len() >= LEAST] for split, table in tables.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_together(
        {folder / name: table.to_json(orient="records", lines=True) for name, table in found.items()}
    )
    return {name: len(table) for name, table in found.items()}


def answer(model: Path, text: str) -> str:
    """The three likeliest labels."""
    served, tokenizer = ldsearch.load(str(model)), AutoTokenizer.from_pretrained(model)
    probabilities = served(**tokenizer(text, return_tensors="pt", truncation=True)).logits[0].softmax(-1)
    best = probabilities.topk(min(3, len(probabilities)))
    likeliest = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return ", ".join(f"{served.config.id2label[place]} {share:.2f}" for share, place in likeliest)


if __name__ == "__main__":
    verb, place, *words = sys.argv[1:]
    if verb == "texts":
        print(", ".join(f"{place}/{name}: {count:,} texts" for name, count in texts(Path(place)).items()))
    else:
        print(f"{words[0]!r}: {answer(Path(place), words[0])}")
