"""The embedded default: which of ten libraries does a docstring belong to?

Real text that comes with ldsearch, split by file, near-duplicates removed; ``scripts/docstrings.py`` made it
of the libraries as they were installed.
"""

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import TypedDict

from ldsearch.errors import DataError
from ldsearch.tasks.classification import TextClassification, TextExamples

NAME = "docstrings"
LIBRARIES = (
    "matplotlib",
    "networkx",
    "numpy",
    "pandas",
    "python",
    "scipy",
    "sqlalchemy",
    "sympy",
    "torch",
    "transformers",
)
SNAPSHOT = Path(__file__).with_name("docstrings.jsonl.gz")
LICENCES = Path(__file__).with_name("docstrings.LICENSES.txt")
SHA256 = "79b425882cc15615bd83ecb7cc2736e1a247042e279198b7293ea757d57c7dba"  # of the lines


class Row(TypedDict):
    """One docstring."""

    text: str
    label: int
    split: str


def load_docstrings() -> TextClassification:
    """The embedded task.

    Raises:
        DataError: If its file is missing or not the one that this version comes with.
    """
    try:
        lines = gzip.decompress(SNAPSHOT.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{SNAPSHOT} cannot be read: install ldsearch again") from error
    if hashlib.sha256(lines).hexdigest() != SHA256:
        raise DataError(f"{SNAPSHOT} is not what this version comes with: install ldsearch again")
    rows: list[Row] = [json.loads(line) for line in lines.splitlines()]
    splits = {}
    for split in ("train", "search", "report"):
        own = [row for row in rows if row["split"] == split]
        splits[split] = TextExamples(
            tuple(row["text"] for row in own), None, tuple(row["label"] for row in own)
        )
    return TextClassification({"data": NAME}, LIBRARIES, splits, "split by file, near-duplicates removed")
