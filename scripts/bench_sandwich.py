"""Is a cheaper sandwich as good? Trains MiniLM-L6 on SST-2 with each and cuts all of them alike.

Every sandwich gets the same steps, batches and learning rate. The area is the mean accuracy over a
constant-ratio line whose costs are evenly spread from the smallest configuration to the full model, on rows
that neither trained nor chose anything: the search and report splits that are cut from SST-2's training rows.
Differences are paired over these rows after a mean over seeds. Finished trainings are used again. The last
line is one JSON object.

    python scripts/bench_sandwich.py --data path/to/sst2/train.jsonl.gz --out results/training
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sst2_minilm_train import PLAIN_SHARE, minilm

from ldsearch import Bench
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.spaces import search_space
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.intervals import Statistics, paired_bootstrap
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import StrategyContext
from ldsearch.subnet import Subnet

SANDWICHES = ("paper", "shares")
POINTS = 6
RATE = 1e-4


def train(options: argparse.Namespace, sandwich: str, seed: int) -> Path:
    """The folder of a training, finished now or before; its seconds lie beside it."""
    folder: Path = options.runs / f"{sandwich}-{seed}"
    if not (folder / "supernet.json").is_file():
        print(f"training {folder.name}", flush=True)
        start = time.perf_counter()
        train_supernet(
            folder,
            TrainSupernet(
                data=options.data,
                model=str(minilm()),
                sandwich=sandwich,
                seed=seed,
                plain_share=PLAIN_SHARE,
                trainer={
                    "bf16": True,
                    "max_steps": options.steps,
                    "learning_rate": RATE,
                    "save_strategy": "steps",
                    "save_steps": 300,
                    "disable_tqdm": "True",
                    "logging_steps": 100,
                },
            ),
        )
        write_json(folder / "seconds.json", time.perf_counter() - start)
    return folder


def measured(folder: Path, line: list[Subnet]) -> Statistics:
    """Correctness on every held-out row, shape (sub-networks, rows)."""
    evaluators = [Bench.open(folder, split).evaluator for split in ("search", "report")]
    return np.stack([np.concatenate([one.statistics(subnet) for one in evaluators]) for subnet in line])


def main() -> None:
    """Train, cut, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="SST-2's training rows")
    parser.add_argument("--out", type=Path, required=True, help="where bench_sandwich.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/sandwich"), help="where models go")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_200)
    options = parser.parse_args()

    folders = {s: [train(options, s, seed) for seed in range(options.seeds)] for s in SANDWICHES}
    bench = Bench.open(folders["paper"][0])
    line = [
        *constant_ratio_line(StrategyContext(search_space(bench, genes="lengths"), bench.macs), POINTS),
        bench.full,
    ]
    found = {s: np.mean([measured(folder, line) for folder in folders[s]], axis=0) for s in SANDWICHES}
    areas = {s: found[s].mean(axis=0) for s in SANDWICHES}
    result = {
        "question": "area under constant ratio: parts of the batch for shortened sub-networks, or all of it",
        "rows": len(areas["paper"]),
        "seeds": options.seeds,
        "steps": options.steps,
        "macs_shares": [round(float(m), 4) for m in bench.macs(line) / bench.macs([bench.full])[0]],
        "accuracy": {s: [round(float(a), 4) for a in found[s].mean(axis=1)] for s in SANDWICHES},
        "area": {s: round(float(areas[s].mean()), 4) for s in SANDWICHES},
        "area_shares_minus_paper": asdict(paired_bootstrap(areas["shares"], areas["paper"])),
        "full_shares_minus_paper": asdict(paired_bootstrap(found["shares"][-1], found["paper"][-1])),
        "smallest_shares_minus_paper": asdict(paired_bootstrap(found["shares"][0], found["paper"][0])),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "bench_sandwich.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
