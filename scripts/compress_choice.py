"""How often what ``ldsearch compress`` takes by default loses more than the point that it may.

Scores each constant ratio of a fine-tuned model on thousands of labelled rows, in the runtime that would
serve, then draws the rows that choose again and again: which ratio is taken, and what it loses on all rows;
beside it by the rule of before, the cheapest that passes by itself. The last line is one JSON object.

    python scripts/compress_choice.py --model MODEL --data rows.csv --out results/compress/choice
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ldsearch.bench import Bench
from ldsearch.compression.search import MARGIN, MOST_SHARE, RATIOS, SureInTurn
from ldsearch.disk.files import write_json
from ldsearch.latency.clock import device_facts
from ldsearch.options import Evolve, TrainSupernet
from ldsearch.search.controls import regular_line
from ldsearch.search.run import plan_search
from ldsearch.subnet import Subnet
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.trial import Score, Trial

FITTED, HELD, DRAWS = 260, 60, 2_000
COUNTS = (64, 128, 250, 450, 1_000)  # rows that choose
ONE_SIDED = 1.645


def losses(options: argparse.Namespace) -> tuple[list[Subnet], NDArray[np.float64], NDArray[np.float64]]:
    """Constant ratios, their shares of the MACs, and of each row the full model's score less theirs."""
    folder = options.runs / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(options.data).sample(frac=1, random_state=1)
    ends = {"train": (0, FITTED), "test": (FITTED, FITTED + HELD), "validation": (FITTED + HELD, len(rows))}
    for name, (start, end) in ends.items():
        rows.iloc[start:end].to_csv(folder / f"{name}.csv", index=False)
    fitted = options.runs / "fitted"
    if not (fitted / "supernet.json").is_file():
        how = TrainSupernet(
            task="classification",
            model=str(options.model),
            data=str(folder),
            genes="lengths",
            max_length=options.max_length,
            keep_overlap=True,
            trainer={"max_steps": "0"},
        )
        train_supernet(fitted, how, scored=False)
    bench = replace(Bench.open(fitted), runtime=options.runtime)
    context = plan_search(bench, Evolve(genes="lengths", widen=True, evaluations=RATIOS + 1)).context
    subnets = regular_line(context, RATIOS)
    shares = bench.macs([*subnets, bench.full])
    shares = shares[:-1] / shares[-1]
    kept = [(subnet, share) for subnet, share in zip(subnets, shares, strict=True) if share <= MOST_SHARE]
    full = bench.evaluator.statistics(bench.full)
    gaps = np.stack([full - bench.evaluator.statistics(subnet) for subnet, _ in kept])
    return [subnet for subnet, _ in kept], np.array([share for _, share in kept]), gaps


def by_itself(bounds: NDArray[np.float64]) -> int:
    """The cheapest that is surely within the margin, else the cheapest of about the nearest."""
    sure = np.flatnonzero(bounds < MARGIN)  # cheapest first
    return int(sure[0] if len(sure) else np.flatnonzero(bounds <= bounds.min() + MARGIN)[0])


def in_turn(subnets: list[Subnet], shares: NDArray[np.float64]) -> Callable[[NDArray[np.float64]], int]:
    """The rule of the command."""
    trials = [
        Trial(subnet, "accuracy", Score(0.0), {"macs": share}, 1, "search", 0.0, "")
        for subnet, share in zip(subnets, shares, strict=True)
    ]
    take, place = SureInTurn(MARGIN, sequence=subnets), {subnet: at for at, subnet in enumerate(subnets)}

    def rule(bounds: NDArray[np.float64]) -> int:
        return place[take.choose(trials, trials[-1], lambda subnet: bounds[place[subnet]]).subnet]

    return rule


def main() -> None:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of a fine-tuned classifier")
    parser.add_argument(
        "--data", type=Path, required=True, help="csv with text and label, that trained nothing"
    )
    parser.add_argument("--out", type=Path, required=True, help="where choice.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/choice"), help="where the fitted model goes")
    parser.add_argument("--runtime", default="openvino")
    parser.add_argument("--max-length", type=int, default=192)
    options = parser.parse_args()
    subnets, shares, gaps = losses(options)
    lost, rng = gaps.mean(axis=1), np.random.default_rng(0)
    rules = {"each by itself": by_itself, "in turn": in_turn(subnets, shares)}
    found = []
    for count in COUNTS:
        taken: dict[str, list[int]] = {name: [] for name in rules}
        for _ in range(DRAWS):
            drawn = gaps[:, rng.integers(gaps.shape[1], size=count)]
            bounds = drawn.mean(axis=1) + ONE_SIDED * drawn.std(axis=1) / np.sqrt(count)
            for name, rule in rules.items():
                taken[name].append(rule(bounds))
        for name, places in taken.items():
            line = {
                "rows": count,
                "rule": name,
                "macs": float(shares[places].mean()),
                "lost": float(lost[places].mean()),
            }
            found.append({**line, "beyond": float(np.mean(lost[places] > MARGIN))})
            print(json.dumps(found[-1]), flush=True)
    result = {
        "machine": device_facts(torch.device("cpu"), torch.float32),
        "runtime": options.runtime,
        "rows": gaps.shape[1],
        "draws": DRAWS,
        "ratios": [{"macs": share, "lost": loss} for share, loss in zip(shares, lost, strict=True)],
        "rules": found,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "choice.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
