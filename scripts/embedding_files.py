"""Files of one embedding model, compared: Spearman's correlation on STS-B, and milliseconds in turn.

The first file is what times are shares of; scores are compared with the model in fp32, by paired draws of the
validation pairs. Meant where nothing else runs. The last line is one JSON object.

    python scripts/embedding_files.py --data ../data exported/full runs/four-blocks/model exported/settled
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_embeddings import DRAWS, Pairs, embedder
from scipy.stats import spearmanr
from sst2_minilm_train import minilm

import ldsearch as ld
from ldsearch.latency.clock import Clock, device_facts
from ldsearch.supernet.folder import load_model

TOKENS, BATCHES = 14, (1, 8, 32)  # tokens of every text that is timed: STS-B's mean
CALLS, ROUNDS = 8, 60


def calls(model: Any, tokenizer: Any, texts: list[str], size: int) -> Callable[[], object]:
    """Answers to some batches of drawn texts."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(texts, size).tolist() for _ in range(CALLS)]
    batches = [tokenizer(own, padding=True, return_tensors="pt") for own in drawn]

    def run() -> None:
        for inputs in batches:
            model(**inputs)

    return run


def main() -> None:
    """Score, time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with stsb")
    parser.add_argument("files", type=Path, nargs="+", help="folders that ldsearch.load reads")
    options = parser.parse_args()
    pairs = Pairs(options.data)
    model, tokenizer = load_model(str(minilm()))
    whole = pairs.vectors(embedder(model.eval(), tokenizer, pairs.tokens))
    served = {str(folder): ld.load(folder) for folder in options.files}
    labels = pairs.pairs["score"].to_numpy()
    draws = [np.random.default_rng(seed).integers(len(labels), size=len(labels)) for seed in range(DRAWS)]

    def drawn(similar: Any) -> Any:
        return np.array([spearmanr(similar[rows], labels[rows]).statistic for rows in draws])

    before = drawn((whole[0] * whole[1]).sum(axis=1))
    result: dict[str, Any] = {"full, fp32": pairs.score(whole, whole)}
    for name, file in served.items():
        found = pairs.vectors(embedder(file, tokenizer, pairs.tokens))
        gaps = drawn((found[0] * found[1]).sum(axis=1)) - before
        low, high = np.percentile(gaps, [2.5, 97.5]).tolist()
        result[name] = {**pairs.score(found, whole), "less_full": [low, high], "ms": {}}
    texts = [text for text in pairs.pairs["sentence1"] if len(tokenizer(text)["input_ids"]) == TOKENS]
    noise = {}
    for size in BATCHES:
        rounds = Clock(repeats=ROUNDS)([calls(file, tokenizer, texts, size) for file in served.values()])
        noise[size] = rounds.noise.to_dict()
        for name, timing in zip(served, rounds.timings, strict=True):
            quartiles = [1e3 * second / CALLS for second in (timing.median, timing.low, timing.high)]
            result[name]["ms"][size] = quartiles
    machine = device_facts(torch.device("cpu"), torch.float32)
    print(json.dumps({"files": result, "noise": noise, "machine": machine}))


if __name__ == "__main__":
    main()
