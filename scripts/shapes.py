"""Which shape of regular lengths keeps most, at equal MACs: early, even, late, or all at once.

Of each run of ``ldsearch compress`` the dearest lengths of every shape within some shares of the full model's
MACs are scored on the rows that chose nothing, in fp32, nothing trained. The last line is one JSON object.

    python scripts/shapes.py runs/my-model-compressed --out results/shapes
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ldsearch.bench import Bench
from ldsearch.disk.files import write_json
from ldsearch.latency.clock import device_facts
from ldsearch.options import Evolve
from ldsearch.search.controls import dearest
from ldsearch.search.run import plan_search
from ldsearch.space.lengths import Shape


def scored(run: Path, shares: list[float]) -> Iterator[dict[str, Any]]:
    """A row for each shape at each share: its score, and the difference to the shape of the model's head."""
    bench = Bench.open(run / "supernet")
    context, rows = plan_search(bench, Evolve(genes="lengths", widen=True)).context, bench.held_out
    assert rows is not None
    full = float(bench.macs([bench.full])[0])
    for share in shares:
        every = {shape: dearest(replace(context, shape=shape), share * full)[0] for shape in Shape}
        own = rows.statistics(every[context.shape])
        for shape, subnet in every.items():
            statistics = rows.statistics(subnet)
            yield {
                "run": run.name,
                "metric": bench.task.metric.name,
                "share": share,
                "shape": shape.name.lower(),
                "suits the head": shape is context.shape,
                "lengths": subnet.encoder.lengths.tokens if subnet.encoder and subnet.encoder.lengths else (),
                "macs": float(bench.macs([subnet])[0]) / full,
                "score": bench.score(statistics).value,
                "difference": asdict(bench.difference(statistics, own)),
            }


def table(found: list[dict[str, Any]]) -> str:
    """A line for each shape at each share."""
    lines = ["| run | at most | shape | MACs | score | less the shape of the head |", f"|{'---|' * 6}"]
    for row in found:
        gap = row["difference"]
        told = (
            "" if row["suits the head"] else f"{gap['mean']:+.4f} ({gap['low']:+.4f} to {gap['high']:+.4f})"
        )
        lines.append(
            f"| {row['run']}, {row['metric']} | {row['share']:g} | {row['shape']} | {row['macs']:.2f} "
            f"| {row['score']:.4f} | {told} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Score and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of ldsearch compress")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.35, 0.5], help="of the MACs")
    parser.add_argument("--out", type=Path, required=True, help="where shapes.json and table.md go")
    options = parser.parse_args()
    found = []
    for run in options.runs:
        for row in scored(run, options.shares):
            found.append(row)
            print(row, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": device_facts(torch.device("cpu"), torch.float32), "rows": found}
    write_json(options.out / "shapes.json", result)
    (options.out / "table.md").write_text(table(found), encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
