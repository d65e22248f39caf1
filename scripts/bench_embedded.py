"""Does a supernet keep more of its score than plain training, when both are cut to half the cost?

Trains the embedded default plainly and with LengthDrop, at equal label updates (the same steps, batches and
learning rates), on several seeds. Cuts both to the dearest constant-ratio configuration that costs at most
half of the full model's MACs at true lengths, and scores full and cut models on the search and report
splits together; neither chose anything here. The last line is one JSON object.

    python scripts/bench_embedded.py --out results/demo --bf16
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import TrainSupernet
from ldsearch.options.binding import read_trainer
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import StrategyContext
from ldsearch.search.spaces import search_space
from ldsearch.subnet import Subnet
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Statistics, paired_bootstrap

STRATEGIES = ("plain", "lengthdrop")


def train(runs: Path, strategy: str, seed: int, trainer: dict[str, Any]) -> tuple[Path, float]:
    """The folder and the seconds its training took; a finished one is used again."""
    folder = runs / f"bench-{strategy}-{seed}"
    marker = folder / "seconds.json"
    if not (folder / "supernet.json").is_file():
        start = time.perf_counter()
        train_supernet(folder, TrainSupernet(strategy=strategy, seed=seed, trainer=trainer))
        write_json(marker, time.perf_counter() - start)
    return folder, float(json.loads(marker.read_text()))


def half_cost(bench: Bench) -> tuple[Subnet, float]:
    """The dearest constant-ratio configuration that costs at most half, and its share."""
    line = constant_ratio_line(StrategyContext(search_space(bench, "demo"), bench.macs), 60)
    shares = bench.macs(line) / bench.macs([bench.full])[0]
    within = np.flatnonzero(shares <= 0.5)
    best = within[shares[within].argmax()]
    return line[best], float(shares[best])


def score(folder: Path, subnet: Subnet) -> tuple[Statistics, Statistics]:
    """Correctness of the full and the cut model on every held-out example."""
    full, cut = [], []
    for split in ("search", "report"):
        bench = Bench.open(folder, split)
        full.append(bench.evaluator.statistics(bench.full))
        cut.append(bench.evaluator.statistics(subnet))
    return np.concatenate(full), np.concatenate(cut)


def main() -> None:
    """Train, cut, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where bench_demo.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the supernets go")
    parser.add_argument("--seeds", type=int, default=3)
    options, trainer = parser.parse_known_args()

    rows, kept = [], {strategy: [] for strategy in STRATEGIES}
    for seed in range(options.seeds):
        for strategy in STRATEGIES:
            folder, seconds = train(options.runs, strategy, seed, read_trainer(trainer))
            subnet, share = half_cost(Bench.open(folder))
            full, cut = score(folder, subnet)
            kept[strategy].append((full, cut))
            rows.append(
                {
                    "strategy": strategy,
                    "seed": seed,
                    "train_seconds": round(seconds, 1),
                    "full": round(float(full.mean()), 4),
                    "cut": round(float(cut.mean()), 4),
                    "kept": round(float(cut.mean() / full.mean()), 4),
                }
            )
            print(rows[-1], flush=True)

    # Means over seeds per example, then a bootstrap over examples: seeds are too few to resample.
    full, cut = (
        {s: np.mean([pair[which] for pair in kept[s]], axis=0) for s in STRATEGIES} for which in (0, 1)
    )
    loss = {strategy: cut[strategy] - full[strategy] for strategy in STRATEGIES}
    result = {
        "question": "score kept when cut to constant ratio at most half the MACs: lengthdrop against plain",
        "subnet": subnet.describe(),
        "macs_share": round(share, 4),
        "examples": len(full["plain"]),
        "seeds": options.seeds,
        "trainer": trainer,
        "rows": rows,
        "change_when_cut_lengthdrop_minus_plain": asdict(paired_bootstrap(loss["lengthdrop"], loss["plain"])),
        "cut_score_lengthdrop_minus_plain": asdict(paired_bootstrap(cut["lengthdrop"], cut["plain"])),
        "full_score_lengthdrop_minus_plain": asdict(paired_bootstrap(full["lengthdrop"], full["plain"])),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "bench_demo.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
