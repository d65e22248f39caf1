"""What does int8 cost in score? Trained encoders of every family, each graph in fp32 and in int8.

A small model of each family is trained here, from scratch, on the embedded docstrings; ``--supernets`` adds
models that ``train-supernet`` wrote, with their own data. Scored are the full model and a length
configuration, as ``export --format onnx`` and ``--int8`` write them, on the search and the report rows, in
batches of like length. Finished trainings are used again. The last line is one JSON object.

    python scripts/int8_scores.py --out results/int8/scores --supernets runs/recipe/rung-1/plain-0.0001

That one is MiniLM-L6 on SST-2, which ``scripts/recipe.py`` fine-tunes.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from imdb import predictions
from imdb_train import constant_ratio
from int8_graphs import versions as graph_versions
from int8_graphs import write_graphs

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError
from ldsearch.latency.clock import device_facts
from ldsearch.latency.int8 import int8_instructions
from ldsearch.options import TrainSupernet
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Statistics, paired_bootstrap

TOKENS, WIDTH, BLOCKS, HEADS = 64, 128, 4, 4
EPOCHS = 3
SHARE = 0.5  # of the MACs of the length configuration
BAR = 0.3  # points
BERT = {
    "hidden_size": WIDTH,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
}
# RoBERTa's positions begin behind that of padding.
ROBERTA = {**BERT, "max_position_embeddings": 514, "type_vocab_size": 1}
FAMILIES: Mapping[str, Mapping[str, int]] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "electra": {**BERT, "embedding_size": WIDTH},
    "distilbert": {"dim": WIDTH, "n_layers": BLOCKS, "n_heads": HEADS, "hidden_dim": 4 * WIDTH},
    "modernbert": {**BERT, "intermediate_size": 2 * WIDTH},
}


def train(family: str, runs: Path) -> Path:
    """A small model of a family, trained plainly on the embedded docstrings; or the finished one."""
    folder = runs / family
    if not (folder / "supernet.json").is_file():
        config = runs / f"{family}.json"
        write_json(config, {"model_type": family, **FAMILIES[family]})
        trainer = {"num_train_epochs": EPOCHS, "disable_tqdm": "True"}
        how = TrainSupernet(model=str(config), max_length=TOKENS, strategy="plain", trainer=trainer)
        train_supernet(folder, how)
    return folder


def right(path: Path, bench: Bench, limit: int) -> Statistics:
    """Which of the split's first rows a graph labels right, shape (rows,)."""
    encoded = bench.task.encode(bench.split, bench.tokenizer, bench.record.reference)
    rows = encoded.take(range(min(limit, len(encoded))))
    labels = np.array([row["labels"] for row in rows])
    return (predictions(path, rows, bench) == labels).astype(np.float64)


def scored(folder: Path, graphs: Path, limit: int) -> list[dict[str, Any]]:
    """Both graphs of the full model and of the lengths, on the rows of both splits together."""
    benches = [Bench.open(folder, split) for split in ("search", "report")]
    first, found = benches[0], []
    for name, subnet in {"full": first.full, "lengths": constant_ratio(SHARE, first)}.items():
        paths = write_graphs(first.supernet, subnet, graphs / f"{folder.name}-{name}")
        fp32, int8 = (np.concatenate([right(path, one, limit) for one in benches]) for path in paths)
        found.append(
            {
                "model": folder.name,
                "type": first.supernet.model.config.model_type,
                "subnet": name,
                "macs": float(np.divide(*first.macs([subnet, first.full]))),
                "fp32": 100 * float(fp32.mean()),
                "int8": 100 * float(int8.mean()),
                "other": 100 * float((fp32 != int8).mean()),
                "difference": asdict(paired_bootstrap(100 * int8, 100 * fp32)),
            }
        )
        print(found[-1], flush=True)
    return found


def write_page(result: Mapping[str, Any], out: Path) -> None:
    """``README.md`` in the folder."""
    worst = min(result["rows"], key=lambda row: float(row["difference"]["mean"]))
    named = "".join(f" --supernets {name}" for name in result["supernets"])
    instructions = ", ".join(result["instructions"] or ()) or "none (no VNNI)"
    lines = [
        "# What int8 costs in score",
        "",
        "```",
        f"python scripts/int8_scores.py --runs runs/int8 --out {out}{named}",
        "```",
        "",
        f"Small models of each family ({BLOCKS} blocks, {WIDTH} wide, from scratch) that `train-supernet`",
        "trained plainly on the embedded docstrings, and what `--supernets` named. Each is exported whole",
        f"and at lengths of {SHARE:g} of the MACs, in fp32 and in int8: weights of seven bits, a scale per",
        "channel. Scored on search and report rows; int8 less fp32 in points of accuracy, 95% paired",
        "intervals; `other`: rows that only one of the two labels right. Instructions for products of int8",
        f"on this processor: {instructions}. What lies in `runs/recipe` is MiniLM-L6 on SST-2, fine-tuned by",
        "`scripts/recipe.py` and never shown dropped tokens.",
        "",
        "| model | sub-network | rows | fp32 | int8 | int8 less fp32 | other |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        gap = row["difference"]
        name = row["model"] if row["model"] == row["type"] else f"{row['model']} ({row['type']})"
        kind = "full" if row["subnet"] == "full" else f"lengths, {row['macs']:.2f} of the MACs"
        lines.append(
            f"| {name} | {kind} | {gap['examples']:,} | {row['fp32']:.2f} | "
            f"{row['int8']:.2f} | {gap['mean']:+.2f} ({gap['low']:+.2f} to {gap['high']:+.2f}) | "
            f"{row['other']:.2f}% |"
        )
    lines += [
        "",
        f"Asked for: within {BAR} points. The largest loss is that of {worst['model']}, {worst['subnet']}: "
        f"{worst['difference']['mean']:+.2f}.",
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Train, export, score, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/int8"), help="where models and graphs go")
    parser.add_argument("--out", type=Path, required=True, help="where scores.json and README.md go")
    parser.add_argument("--supernets", type=Path, nargs="*", default=[], help="trained folders beside them")
    parser.add_argument("--limit", type=int, default=5_000, help="rows of a split at most")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    folders = [*(train(family, options.runs) for family in FAMILIES), *options.supernets]
    rows = [row for folder in folders for row in scored(folder, options.runs / "graphs", options.limit)]
    result = {
        "rows": rows,
        "supernets": [str(folder) for folder in options.supernets],
        "instructions": int8_instructions(),
        "device": device_facts(torch.device("cpu"), torch.float32),
        "versions": {**versions(), **graph_versions()},
    }
    write_json(options.out / "scores.json", result)
    write_page(result, options.out)
    print(json.dumps(rows))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
