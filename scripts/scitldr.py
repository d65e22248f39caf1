"""A short summarisation run: SciTLDR with a small model from scratch, ROUGE of the full and the cut model.

It shows that training, decoding and scoring work, not how well papers can be summarised: 4 x 4 blocks, 128
wide, LayerDrop 0.2 on both stacks. Every depth configuration by the "left" assignment, which keeps evenly
spaced blocks; beam search with a length penalty, a least length and no trigram twice. Finished trainings and
decoded texts are used again. The last line is one JSON object.

    python scripts/scitldr.py --data path/to/scitldr_a --out results/scitldr
"""

import argparse
import json
from pathlib import Path

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import Evaluate, TrainSupernet
from ldsearch.search.generation import decoding_of
from ldsearch.search.grid import measure_grid
from ldsearch.training.train_supernet import train_supernet

DECODING = {"beams": 2, "min_target": 10, "max_target": 40, "no_repeat_ngram": 3}
METRICS = ("nats", "rouge1", "rouge2", "rougeL")


def main() -> None:
    """Train, decode, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with SciTLDR")
    parser.add_argument("--out", type=Path, required=True, help="where scitldr.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/scitldr"), help="where models go")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=128, help="of an abstract that are read")
    parser.add_argument("--decoded", type=int, default=60, help="report rows that are summarised")
    options = parser.parse_args()

    folder = options.runs / "layerdrop"
    if not (folder / "supernet.json").is_file():
        train_supernet(
            folder,
            TrainSupernet(
                data=options.data,
                task="summarisation",
                strategy="layerdrop",
                layer_drop=(0.2,),
                max_length=options.tokens,
                trainer={
                    "bf16": True,
                    "max_steps": options.steps,
                    "learning_rate": 1e-3,
                    "disable_tqdm": "True",
                    "per_device_train_batch_size": 16,
                    "save_strategy": "steps",
                    "save_steps": 100,
                },
            ),
        )
    bench = Bench.open(folder, "report")
    scores = {}
    for metric in METRICS:
        how = Evaluate(folder=folder, metric=metric, assignment="left", limit=options.decoded, **DECODING)
        grid = measure_grid(bench, options.runs / f"grid-{metric}", how)
        scores[metric] = {f"{m}-{n}": round(score, 4) for (m, n), score in grid.scores.items()}
        print(metric, scores[metric], flush=True)
    result = {
        "question": "every depth configuration of one LayerDrop model, on rows that chose nothing",
        "steps": options.steps,
        "summarised": options.decoded,
        "decoding": decoding_of(how).describe(),
        "scores": scores,
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "scitldr.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
