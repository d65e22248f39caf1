"""How well does a latency table predict sub-networks that it never saw? MiniLM-L6 on this device.

The table is built anew, then random sub-networks (depths and lengths) are timed in turn beside the full
model, and compared with what it predicts: error, rank correlation, and the correlation of latency with MACs.
Weights do not change the time. The last line is one JSON object.

    python scripts/bench_latency.py --out results/latency --batch 1 --batch 8
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_inference_models import subject
from matplotlib.figure import Figure

from ldsearch.costs.workload import Workload
from ldsearch.disk.files import write_json
from ldsearch.latency.clock import Clock, crowding, device_facts, load_average
from ldsearch.latency.measure import FORWARD, entries_of, measure, random_cell
from ldsearch.latency.table import SupernetStages, build_table, length_grid
from ldsearch.reports.latency import Accuracy
from ldsearch.reports.style import save_figure
from ldsearch.search.controls import random_search
from ldsearch.search.loop import StrategyContext
from ldsearch.space import DepthGenes, LengthGenes, Space
from ldsearch.supernet import Supernet

LENGTH = 128


def space_of(blocks: int) -> Space:
    """A third of the blocks and more, lengths at the bound that keeps about 7% of the tokens."""
    depth = DepthGenes("encoder", blocks, tuple(range(-(-blocks // 3), blocks + 1)))
    lengths = LengthGenes.build(blocks, LENGTH, 0.36).widened()
    return Space("depth+lengths", "latency", (depth,), lengths)


def compared(supernet: Supernet, batch: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Predictions and measurements of one batch size."""
    load = load_average()
    clock = Clock(options.repeats)
    device = device_facts(supernet.model.device, supernet.model.dtype)
    grid = length_grid([LENGTH])
    table, noises = build_table(SupernetStages(supernet), device, grid, [batch], folder / "t.csv", clock)
    space, macs = space_of(supernet.blocks), supernet.macs(Workload.padded(LENGTH))
    subnets = random_search(StrategyContext(space, macs, 0, 1 + options.count)).subnets
    entries = entries_of(supernet, subnets, "own")
    lines, noise = measure(supernet, entries, random_cell(supernet, batch, LENGTH), FORWARD, clock)
    unseen = [one for one in lines if one.runtime == "own" and one.subnet != supernet.full]
    measured = np.array([line.median_ms for line in unseen])
    asked = [line.subnet for line in unseen]
    predicted = table.predict(asked, batch, LENGTH)
    accuracy = Accuracy.of(predicted, measured)
    return {
        "batch": batch,
        "subnets": len(unseen),
        "measured_ms": measured.tolist(),
        "predicted_ms": predicted.tolist(),
        "macs": [line.macs for line in unseen],
        "mean_absolute_error": accuracy.mean_error,
        "bias": accuracy.bias,
        "rank_correlation": accuracy.rank_correlation,
        "macs_correlation": float(np.corrcoef([line.macs for line in unseen], measured)[0, 1]),
        "noisy_groups": f"{sum(one.noisy for one in noises)} of {len(noises)}",
        "noise": noise.describe(),
        "crowding": crowding(load, os.cpu_count() or 1, torch.get_num_threads()),
    }


def draw(found: list[dict[str, Any]]) -> Figure:
    """Predicted against measured, and measured against MACs, a row for each batch size."""
    figure = Figure(figsize=(9, 3.8 * len(found)), layout="constrained")
    for row, one in enumerate(found):
        left, right = (figure.add_subplot(len(found), 2, 2 * row + column) for column in (1, 2))
        left.scatter(one["measured_ms"], one["predicted_ms"], s=16)
        top = 1.05 * max(*one["measured_ms"], *one["predicted_ms"])
        left.plot([0, top], [0, top], color="0.6", lw=1)
        left.set_xlabel(f"measured, ms (batch {one['batch']} x {LENGTH})")
        left.set_ylabel("predicted, ms")
        right.scatter(np.array(one["macs"]) / 1e9, one["measured_ms"], s=16)
        right.set_xlabel("GMACs per example")
        right.set_ylabel(f"measured, ms (r = {one['macs_correlation']:.3f})")
        right.set_xlim(left=0)
        right.set_ylim(bottom=0)
    return figure


def main() -> None:
    """Measure, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="a trained supernet; else MiniLM-L6 with a new head")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--count", type=int, default=24, help="sub-networks to predict")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()

    supernet, _ = subject(options.model)
    supernet.eval()
    with tempfile.TemporaryDirectory() as folder:
        found = [compared(supernet, batch, options, Path(folder)) for batch in options.batch or [8]]
    options.out.mkdir(parents=True, exist_ok=True)
    facts = device_facts(supernet.model.device, supernet.model.dtype)
    write_json(options.out / "latency_table.json", {**facts, "length": LENGTH, "batches": found})
    save_figure(draw(found), options.out / "latency_table.png")
    kept = ("batch", "mean_absolute_error", "bias", "rank_correlation", "macs_correlation", "noisy_groups")
    print(json.dumps([{name: one[name] for name in kept} for one in found]))


if __name__ == "__main__":
    main()
