"""Rows of the reranker: SQuAD's questions, each with paragraphs of its article, hard ones by TF-IDF."""

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CANDIDATES, TAUGHT = 10, 6  # documents of a question that is scored, and of one that trains
CHOOSING = 4  # articles


def articles(data: Path, name: str) -> dict[str, dict[str, str]]:
    """Of each article its questions, once each, with their paragraphs."""
    found: dict[str, dict[str, str]] = {}
    with gzip.open(data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            found.setdefault(row["title"], {}).setdefault(row["question"].strip(), row["context"])
    return found


def tf_idf(queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float64]:
    """Cosines of TF-IDF vectors, shape (queries, documents): log(1 + n) · log(N / documents with it)."""
    words = [Counter(re.findall(r"\w+", text.casefold())) for text in (*documents, *queries)]
    among = Counter(word for own in words[: len(documents)] for word in own)
    place = {word: at for at, word in enumerate(among)}
    table = np.zeros((len(words), len(place)))
    for row, own in enumerate(words):
        for word in own.keys() & among.keys():
            table[row, place[word]] = np.log1p(own[word]) * np.log(len(documents) / among[word])
    table /= np.linalg.norm(table, axis=1, keepdims=True).clip(1e-9)
    cosines: NDArray[np.float64] = table[len(documents) :] @ table[: len(documents)].T
    return cosines


def candidates(found: Mapping[str, Mapping[str, str]], count: int) -> pd.DataFrame:
    """A row for each question: its own paragraph and the nearest others, and how near each is by TF-IDF."""
    rows = []
    for title, questions in found.items():
        paragraphs = list(dict.fromkeys(questions.values()))
        for question, cosines in zip(questions, tf_idf([*questions], paragraphs), strict=True):
            own = paragraphs.index(questions[question])
            hardest = [at for at in np.argsort(-cosines, kind="stable").tolist() if at != own][: count - 1]
            places = sorted([own, *hardest])  # of no meaning
            rows.append(
                {
                    "article": title,
                    "query": question,
                    "documents": [paragraphs[at] for at in places],
                    "labels": [int(at == own) for at in places],
                    "tf_idf": [round(float(cosines[at]), 6) for at in places],
                }
            )
    return pd.DataFrame(rows)


def prepare(options: argparse.Namespace) -> dict[str, Path]:
    """The files of those that train, that choose and that score."""
    paths = {role: options.runs / f"{role}.jsonl" for role in ("train", "own", "held")}
    if all(path.is_file() for path in paths.values()):
        return paths
    options.runs.mkdir(parents=True, exist_ok=True)
    train, held = (articles(options.data, f"devsplit_{name}") for name in ("train", "eval"))
    titles = list(train)
    tables = {
        "train": candidates({title: train[title] for title in titles[:-CHOOSING]}, TAUGHT),
        "own": candidates({title: train[title] for title in titles[-CHOOSING:]}, CANDIDATES),
        "held": candidates(held, CANDIDATES),
    }
    for role, table in tables.items():
        most = options.questions if role == "held" else options.rows
        # Of every article alike.
        table = table.sample(frac=1, random_state=0).head(most or len(table))
        table.to_json(paths[role], orient="records", lines=True, force_ascii=False)
    return paths


def columns(path: Path, folder: Path) -> Path:
    """The rows as a user would have them: no article, no TF-IDF."""
    place = folder / f"{path.stem}-rows.jsonl"
    rows = pd.read_json(path, lines=True)[["query", "documents", "labels"]]
    rows.to_json(place, orient="records", lines=True, force_ascii=False)
    return place
