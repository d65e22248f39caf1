"""Is a cheaper training as good? Trains MiniLM-L6 on SST-2 in two ways and cuts the models alike.

Both get the same steps, batches and learning rate. The area is the mean accuracy over a
constant-ratio line whose costs are evenly spread from the smallest configuration to the full model, on rows
that neither trained nor chose anything: the search and report splits that are cut from SST-2's training rows.
Differences are paired over these rows after a mean over seeds. Finished trainings are used again. The last
line is one JSON object.

    python scripts/bench_sandwich.py --data path/to/sst2/train.jsonl.gz --out results/training
    python scripts/bench_sandwich.py --question attention-dropout --data ... --out results/training
"""

import argparse
import json
import time
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sst2_minilm_train import PLAIN_SHARE, minilm

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import TrainSupernet
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import StrategyContext
from ldsearch.search.spaces import search_space
from ldsearch.subnet import Subnet
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Statistics, paired_bootstrap

# Names of two ways to train, and the options that make them; the second is compared with the first.
QUESTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "sandwich": {"paper": {}, "shares": {"sandwich": "shares"}},
    "attention-dropout": {"dropped": {"attention_dropout": 0.1}, "kept": {}},
}
POINTS = 6
RATE = 1e-4


def train(options: argparse.Namespace, way: str, seed: int) -> Path:
    """The folder of a training, finished now or before; its seconds lie beside it."""
    folder: Path = options.runs / f"{way}-{seed}"
    if not (folder / "supernet.json").is_file():
        print(f"training {folder.name}", flush=True)
        start = time.perf_counter()
        train_supernet(
            folder,
            TrainSupernet(
                data=options.data,
                model=str(minilm()),
                seed=seed,
                plain_share=PLAIN_SHARE,
                trainer={
                    "max_steps": options.steps,
                    "learning_rate": RATE,
                    "save_strategy": "steps",
                    "save_steps": 300,
                    "disable_tqdm": "True",
                    "logging_steps": 100,
                },
                **QUESTIONS[options.question][way],
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
    parser.add_argument("--out", type=Path, required=True, help="where the results go")
    parser.add_argument("--question", choices=QUESTIONS, default="sandwich")
    parser.add_argument("--runs", type=Path, default=Path("runs/sandwich"), help="where models go")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_200)
    options = parser.parse_args()

    ways = first, second = tuple(QUESTIONS[options.question])
    for seed, way in product(range(options.seeds), ways):  # in turn, for their seconds
        train(options, way, seed)
    folders = {way: [train(options, way, seed) for seed in range(options.seeds)] for way in ways}
    bench = Bench.open(folders[first][0])
    line = [
        *constant_ratio_line(StrategyContext(search_space(bench, genes="lengths"), bench.macs), POINTS),
        bench.full,
    ]
    found = {way: np.mean([measured(folder, line) for folder in folders[way]], axis=0) for way in ways}
    areas = {way: found[way].mean(axis=0) for way in ways}
    seconds = {way: [json.loads((one / "seconds.json").read_text()) for one in folders[way]] for way in ways}
    result = {
        "question": options.question,
        "compared": f"{second} minus {first}",
        "rows": len(areas[first]),
        "seeds": options.seeds,
        "steps": options.steps,
        "seconds": seconds,
        "macs_shares": [round(float(m), 4) for m in bench.macs(line) / bench.macs([bench.full])[0]],
        "accuracy": {way: [round(float(a), 4) for a in found[way].mean(axis=1)] for way in ways},
        "area": {way: round(float(areas[way].mean()), 4) for way in ways},
        "area_difference": asdict(paired_bootstrap(areas[second], areas[first])),
        "full_difference": asdict(paired_bootstrap(found[second][-1], found[first][-1])),
        "smallest_difference": asdict(paired_bootstrap(found[second][0], found[first][0])),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / f"bench_{options.question}.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
