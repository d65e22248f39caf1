"""Names in lower-cased text: token labels made from WikiText-2, in which every name is capitalised.

Windows of up to 96 words are lower-cased; a tag says where a name begins and goes on. A word at the start of
a sentence is a name where the same word is capitalised elsewhere more often than not. Speech recognisers
give such text (results/names). The last line is one JSON object.

    python scripts/names.py --data path/to/wikitext2 --out data/names
"""

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WORDS = 96
ROWS = {"train": 8_000, "heldout": 2_000}
FILES = {"train": ["train"], "heldout": ["validation", "test"]}
ENDS = {".", "!", "?", '"', ":", ";"}  # what may be capitalised behind these says little


def paragraphs(path: Path) -> list[list[str]]:
    """Words of every paragraph; headings and words that the data hides are left out."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.split() for line in lines if not line.startswith(" =")]
    return [[word for word in row if word != "<unk>"] for row in rows if len(row) > 20]


def starts(words: list[str]) -> list[bool]:
    """Where a sentence may begin."""
    return [at == 0 or words[at - 1] in ENDS for at in range(len(words))]


def capitalised(word: str) -> bool:
    """Not "I"."""
    return len(word) > 1 and word[0].isupper()


def names(rows: list[list[str]]) -> set[str]:
    """Words that are capitalised inside sentences more often than not."""
    inside = Counter(
        (word.lower(), capitalised(word))
        for row in rows
        for word, first in zip(row, starts(row), strict=True)
        if not first
    )
    return {word for word, capital in inside if inside[word, True] > inside[word, False]}


def tagged(words: list[str], known: set[str]) -> Iterator[dict[str, list[str]]]:
    """Windows of a paragraph, lower-cased, with tags."""
    own = [
        capitalised(word) and (not first or word.lower() in known)
        for word, first in zip(words, starts(words), strict=True)
    ]
    tags = ["O" if not name else "I-NAME" if at and own[at - 1] else "B-NAME" for at, name in enumerate(own)]
    for at in range(0, len(words), WORDS):
        if len(words[at : at + WORDS]) > WORDS // 4:
            first, *rest = tags[at : at + WORDS]
            yield {
                "tokens": [word.lower() for word in words[at : at + WORDS]],
                "ner_tags": [first.replace("I-", "B-"), *rest],
            }


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with WikiText-2")
    parser.add_argument("--out", type=Path, required=True, help="where the rows go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    known = names(paragraphs(options.data / "train.txt.gz"))
    told: dict[str, dict[str, float]] = {}
    for role, most in ROWS.items():
        found = [words for name in FILES[role] for words in paragraphs(options.data / f"{name}.txt.gz")]
        rows = [row for words in found for row in tagged(words, known)]
        random.Random(0).shuffle(rows)
        text = "".join(json.dumps(row) + "\n" for row in rows[:most])
        (options.out / f"{role}.jsonl").write_text(text, encoding="utf-8")
        words = [tag for row in rows[:most] for tag in row["ner_tags"]]
        told[role] = {
            "rows": len(rows[:most]),
            "words a row": round(len(words) / len(rows[:most]), 1),
            "names a row": round(words.count("B-NAME") / len(rows[:most]), 1),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
