"""Every choice of blocks of a 12-block encoder: the executor against one by one, score by score.

The model is that of scripts/bench_search_train.py. The last line is one JSON object.

    OMP_NUM_THREADS=1 python scripts/bench_depth_search.py --data path/to/data --out results/search
"""

import argparse
import json
import time
from itertools import combinations
from pathlib import Path

import torch
from bench_search_subject import Part, Subject
from bench_search_train import arguments

from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.subnet import Subnet


def choices(blocks: int) -> list[Subnet]:
    """All 2^blocks - 1 of them."""
    counts = range(1, blocks + 1)
    return [Subnet.of_encoder(kept) for count in counts for kept in combinations(range(blocks), count)]


def depth_of(subnet: Subnet) -> int:
    """Its number of blocks."""
    return len(subnet.stacks()["encoder"].blocks)


def main() -> None:
    """Measure all both ways, compare, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where depth_search.json goes")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--cache", type=float, default=0, help="GiB for states of earlier generations")
    options: argparse.Namespace = parser.parse_args()

    subject = Subject(options, Part((), rows=options.rows, training="deep"))
    subnets = choices(subject.bench.supernet.blocks)
    together = subject.evaluator(options)
    start = time.perf_counter()
    trials = together(subnets)
    seconds = time.perf_counter() - start

    alone = subject.evaluator(options)
    differing, start = 0, time.perf_counter()
    best: dict[int, float] = {}
    for trial in trials:
        score = float(alone.statistics(trial.subnet).mean())
        differing += score != trial.score.value
        depth = depth_of(trial.subnet)
        best[depth] = max(best.get(depth, 0.0), score)
    seconds_alone = time.perf_counter() - start
    found = {
        depth: max(trial.score.value for trial in trials if depth_of(trial.subnet) == depth) for depth in best
    }
    assert together.executor is not None
    one, counts = subject.full * len(subject.encoded), together.counts
    result = {
        "choices": len(subnets),
        "rows": len(subject.encoded),
        "differing_scores": differing,
        "best_by_depth_equal": found == best,
        "best_by_depth": found,
        "block_evaluations_per_choice": counts.evaluations / together.executor.work.heads,
        "block_evaluations_per_choice_one_by_one": sum(map(depth_of, subnets)) / len(subnets),
        "full_passes": counts.executed_macs / one,
        "one_by_one_full_passes": counts.alone_macs / one,
        "seconds": seconds,
        "seconds_one_by_one": seconds_alone,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "depth_search.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
