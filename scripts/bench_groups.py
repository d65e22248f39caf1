"""Which groups must be dropped in training for depth pruning to work (Fan et al. 2019, Table 11)?

Trains a small BERT from scratch on the embedded default with each kind of group dropped at the same rate, on
several seeds, with the same steps and batches; then keeps every other block, and scores full and pruned model
on rows that neither saw and that chose nothing (search and report splits). The paper has perplexities of a
language model; here it is accuracy, so higher is better. Finished trainings are used again. The last line is
one JSON object.

    python scripts/bench_groups.py --out results/training
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import TrainSupernet
from ldsearch.search.rules import every_other
from ldsearch.subnet import Subnet
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Statistics, paired_bootstrap

# Valid perplexities in the paper: 28.3 for none; 29.6, 28.1; 19.9, 19.8, 19.7, 19.7.
FINE, NONE = ("ffn", "head"), "none"
WHOLE = ("sublayer", "head+sublayer", "layer", "head+layer")
KINDS = (NONE, *FINE, *WHOLE)
MODEL = {
    "model_type": "bert",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def train(options: argparse.Namespace, kind: str, seed: int) -> Path:
    """The folder of a training, finished now or before."""
    folder: Path = options.runs / f"{kind.replace('+', '-')}-{seed}"
    if not (folder / "supernet.json").is_file():
        print(f"training {folder.name}", flush=True)
        config = options.runs / "config.json"
        options.runs.mkdir(parents=True, exist_ok=True)
        write_json(config, MODEL)
        train_supernet(
            folder,
            TrainSupernet(
                model=str(config),
                strategy="plain" if kind == NONE else "layerdrop",
                drop_groups="layer" if kind == NONE else kind,
                layer_drop=(options.rate,),
                seed=seed,
                trainer={
                    "max_steps": options.steps,
                    "learning_rate": 1e-3,
                    "bf16": True,
                    "disable_tqdm": "True",
                },
            ),
        )
    return folder


def scored(folder: Path, subnets: list[Subnet]) -> list[Statistics]:
    """Correctness of each sub-network on every held-out row."""
    evaluators = [Bench.open(folder, split).evaluator for split in ("search", "report")]
    return [np.concatenate([one.statistics(subnet) for one in evaluators]) for subnet in subnets]


def main() -> None:
    """Train, prune, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where bench_groups.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/groups"), help="where models go")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_200)
    parser.add_argument("--rate", type=float, default=0.3, help="drop rate of every group")
    options = parser.parse_args()

    blocks = MODEL["num_hidden_layers"]
    subnets = [Subnet.full(blocks), Subnet.of_encoder(every_other(blocks, blocks // 2))]
    full, pruned = {}, {}
    for kind in KINDS:
        runs = [scored(train(options, kind, seed), subnets) for seed in range(options.seeds)]
        full[kind], pruned[kind] = (np.mean([run[i] for run in runs], axis=0) for i in range(2))
        spread = [round(float(run[1].mean()), 4) for run in runs]
        print(f"{kind}: full {full[kind].mean():.4f}, pruned {pruned[kind].mean():.4f} {spread}", flush=True)
    worst = min(WHOLE, key=lambda kind: pruned[kind].mean())
    best = max((NONE, *FINE), key=lambda kind: pruned[kind].mean())
    result = {
        "question": "accuracy after pruning 8 blocks to 4 by every other, by what was dropped in training",
        "rows": len(full[NONE]),
        "seeds": options.seeds,
        "steps": options.steps,
        "rate": options.rate,
        "full": {kind: round(float(full[kind].mean()), 4) for kind in KINDS},
        "pruned": {kind: round(float(pruned[kind].mean()), 4) for kind in KINDS},
        "pruned_minus_none": {
            kind: asdict(paired_bootstrap(pruned[kind], pruned[NONE])) for kind in KINDS if kind != NONE
        },
        "worst_of_whole_groups_minus_best_of_others": {
            "kinds": [worst, best],
            **asdict(paired_bootstrap(pruned[worst], pruned[best])),
        },
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "bench_groups.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
