"""A cross-encoder made faster: MiniLM-L6 on SQuAD's questions against paragraphs of the same article.

Each question has its paragraph and the hardest others of the article by TF-IDF. Articles of ``devsplit_train``
train, but for the last four, whose questions choose; all of ``devsplit_eval`` score. What was stopped goes on,
what is finished is used again. The parts, in this order:

    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part train
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part search
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part half
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part measure
    python scripts/reranker.py --data path/to/squad_v1.1 --out results/reranker --part page
"""

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from bench_compress import by_length, compressed
from bench_embeddings import cut_like
from numpy.typing import NDArray
from sst2_minilm_train import minilm
from transformers import AutoTokenizer

import ldsearch as ld
from ldsearch.bench import Bench
from ldsearch.disk.files import write_json
from ldsearch.export.export import export
from ldsearch.latency.clock import Clock, device_facts
from ldsearch.options import TrainSupernet
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.tasks.metrics import METRICS
from ldsearch.training.recover import train_fixed
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Interval, Statistics, paired_bootstrap

CANDIDATES, TAUGHT = 10, 6  # documents of a question that is scored, and of one that trains
CHOOSING = 4  # articles
TOKENS, RATE = 192, 1e-4
SHARES = ("0.35", "0.5", "0.7")
HALF = (0, 2, 5)  # blocks
TIMED = 48  # questions
METRIC = METRICS["ranking"]["ndcg@10"](1)


def articles(data: Path, name: str) -> dict[str, dict[str, str]]:
    """Of each article its questions, once each, with their paragraphs."""
    found: dict[str, dict[str, str]] = {}
    with gzip.open(data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            found.setdefault(row["title"], {}).setdefault(row["question"].strip(), row["context"])
    return found


def tf_idf(queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float64]:
    """Cosines of TF-IDF vectors, shape (queries, documents): log(1 + n) · log(N / documents with the word)."""
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


def columns(path: Path, folder: Path, *, labelled: bool = True) -> Path:
    """The rows as a user would have them: no article, no TF-IDF."""
    place = folder / f"{path.stem}-rows.jsonl"
    names = ["query", "documents", *(["labels"] if labelled else [])]
    pd.read_json(path, lines=True)[names].to_json(place, orient="records", lines=True, force_ascii=False)
    return place


def bf16() -> bool:
    """A processor with AVX2 alone emulates it."""
    return torch.cuda.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX2"


def full_model(options: argparse.Namespace) -> Path:
    """The fine-tuned cross-encoder."""
    paths, folder = prepare(options), options.runs / f"full-{options.steps}"
    if not (folder / "supernet.json").is_file():
        how = TrainSupernet(
            task="ranking",
            strategy="plain",
            model=str(minilm()),
            data=str(columns(paths["train"], options.runs)),
            validation=str(columns(paths["own"], options.runs)),
            keep_overlap=True,  # whole articles stand apart
            max_length=TOKENS,
            trainer={
                "bf16": bf16(),
                "max_steps": options.steps,
                "learning_rate": RATE,
                "per_device_train_batch_size": 32,
                "disable_tqdm": "True",
                "save_strategy": "steps",
                "save_steps": max(1, options.steps // 10),
                "logging_steps": 50,
            },
        )
        train_supernet(folder, how, note=lambda text: print(text, flush=True), scored=False)
    return folder


def main() -> None:
    """One part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with SQuAD")
    parser.add_argument("--out", type=Path, required=True, help="where reranker.json and table.md go")
    parser.add_argument("--runs", type=Path, default=Path("runs/reranker"), help="where models go")
    parser.add_argument("--part", choices=["train"], required=True)
    parser.add_argument("--steps", type=int, default=2_500, help="of the fine-tuning, of 32 pairs")
    parser.add_argument("--questions", type=int, default=1_500, help="that score")
    parser.add_argument("--rows", type=int, help="questions that train and that choose (default: all)")
    options = parser.parse_args()
    if options.part == "train":
        print(json.dumps({"model": str(full_model(options))}))


if __name__ == "__main__":
    main()
