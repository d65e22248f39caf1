"""Whole sub-networks timed, or stages added up: which predicts the latency of others better? MiniLM-L6 here.

    python scripts/latency_regression.py --out results/latency

For each runtime and batch size: some forty random sub-networks (depths and lengths) are timed in turn and a
regression is fitted to them; then twenty others are timed in turn, and predicted by the regression, by the
latency table of stages, and by MACs alone. The machine's speed changes within minutes: each way's errors
stand as they are, and with one common factor taken out. The last line is one JSON object.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_inference_models import subject
from bench_latency import LENGTH, space_of
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import spearmanr

from ldsearch.costs.workload import Workload
from ldsearch.disk.files import write_json
from ldsearch.latency.clock import Clock, device_facts
from ldsearch.latency.measure import FORWARD, entries_of, measure, random_cell
from ldsearch.latency.table import LatencyTable, SupernetStages, build_table, length_grid
from ldsearch.search.controls import random_search
from ldsearch.search.loop import StrategyContext
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.stages import kept_of_rows

WAYS = ("regression", "table of stages", "MACs alone")


def features(subnet: Subnet) -> list[float]:
    """What a forward's time adds up from: 1, blocks, those that drop, tokens in and out, pairs of tokens."""
    stack = subnet.encoder
    assert stack is not None
    entering, row = LENGTH, np.zeros(6)
    row[0] = 1
    for keep in kept_of_rows(stack, [LENGTH]):
        leaving = entering if keep is None else keep[0]
        row[1:] += 1, leaving < entering, entering, leaving, entering**2
        entering = leaving
    return row.tolist()


def fitted(
    rows: NDArray[np.float64], milliseconds: NDArray[np.float64], asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Least squares of relative errors, no coefficient below 0; predictions for ``asked``."""
    scale = rows.max(axis=0)
    scale[scale == 0] = 1
    coefficients, _ = nnls(rows / scale / milliseconds[:, None], np.ones(len(rows)))
    return np.asarray(asked / scale @ coefficients)


def errors(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> dict[str, float]:
    """Median and largest relative error, with the median ratio taken out too; rank correlation."""
    ratio = predicted / measured
    off, shape = np.abs(ratio - 1), np.abs(ratio / np.median(ratio) - 1)
    return {
        "median_error": float(np.median(off)),
        "common_factor": float(np.median(ratio)),
        "median_error_without_it": float(np.median(shape)),
        "largest_error_without_it": float(shape.max()),
        "rank_correlation": float(spearmanr(predicted, measured).statistic),
    }


def timed(
    supernet: Supernet, subnets: Sequence[Subnet], runtime: str, batch: int, repeats: int
) -> tuple[NDArray[np.float64], str]:
    """Median milliseconds of each, in turn, and the noise in words."""
    entries = entries_of(supernet, subnets, runtime)
    lines, noise = measure(supernet, entries, random_cell(supernet, batch, LENGTH), FORWARD, Clock(repeats))
    own = {line.subnet: line.median_ms for line in lines if line.runtime == runtime}
    return np.array([own[subnet] for subnet in subnets]), noise.describe()


def compared(
    supernet: Supernet, table: LatencyTable, runtime: str, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """All ways on one runtime and batch size."""
    macs = supernet.macs(Workload.padded(LENGTH))
    context = StrategyContext(space_of(supernet.blocks), macs, options.seed, options.fit + options.test + 1)
    drawn = [one for one in random_search(context).subnets if one != supernet.full]
    drawn = [drawn[i] for i in np.random.default_rng(options.seed).permutation(len(drawn))]
    known, unseen = drawn[: options.fit], drawn[options.fit : options.fit + options.test]
    seen, noise = timed(supernet, known, runtime, batch, options.repeats)
    truth, noise_of_test = timed(supernet, unseen, runtime, batch, options.repeats)

    def columns(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        return np.array([features(one) for one in subnets])

    def counted(subnets: Sequence[Subnet]) -> NDArray[np.float64]:
        return np.stack([np.ones(len(subnets)), np.asarray(macs(subnets))], axis=1)

    predictions = (
        fitted(columns(known), seen, columns(unseen)),
        table.predict(unseen, batch, LENGTH),
        fitted(counted(known), seen, counted(unseen)),
    )
    ways = {name: errors(one, truth) for name, one in zip(WAYS, predictions, strict=True)}
    return {"runtime": runtime, "batch": batch, "noise": [noise, noise_of_test], "ways": ways}


def page(found: Sequence[dict[str, Any]]) -> str:
    """The table for ``results/latency/README.md``."""
    lines = [
        "| runtime | batch | way | median error | common factor out | largest then | rank correlation |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    for one in found:
        for name, way in one["ways"].items():
            lines.append(
                f"| {one['runtime']} | {one['batch']} | {name} | {way['median_error']:.1%} "
                f"| {way['median_error_without_it']:.1%} | {way['largest_error_without_it']:.1%} "
                f"| {way['rank_correlation']:.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Time, fit, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="a trained supernet; else MiniLM-L6 with a new head")
    parser.add_argument("--runtime", action="append", help="default: own, eager, onnx")
    parser.add_argument("--batch", type=int, action="append", help="default: 1 and 8")
    parser.add_argument("--fit", type=int, default=40, help="sub-networks to fit the regression to")
    parser.add_argument("--test", type=int, default=20, help="sub-networks to predict")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    supernet, _ = subject(options.model)
    supernet.eval()
    device = device_facts(supernet.model.device, supernet.model.dtype)
    batches = options.batch or [1, 8]
    found = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        stages, path = SupernetStages(supernet), Path(folder) / "table.csv"
        table, _ = build_table(
            stages, device, length_grid([LENGTH]), batches, path, Clock(options.repeats, lead=0)
        )
        for runtime in options.runtime or ["own", "eager", "onnx"]:
            for batch in batches:
                found.append(compared(supernet, table, runtime, batch, options))
                print(page(found[-1:]).splitlines()[2:], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    names = ("fit", "test", "repeats", "seed")
    asked = {name: getattr(options, name) for name in names}
    write_json(options.out / "latency_regression.json", {**device, **asked, "length": LENGTH, "found": found})
    print(page(found))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
