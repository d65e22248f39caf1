"""The demo over seeds: its minutes, how much faster the chosen sub-network is, and what it loses.

Runs ``scripts/demo.sh`` once for each seed, where nothing of it is there yet, and writes ``demo.json`` and
``table.md``. Time is only meant where nothing else runs. The last line is one JSON object.

    python scripts/bench_demo.py --out results/demo
"""

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ldsearch.disk.files import write_atomic, write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.latency.clock import device_facts

ROOT = Path(__file__).parent.parent


def demo(seed: int) -> dict[str, Any]:
    """One run of the demo: minutes, what it printed last, and the record of ``ldsearch compress``."""
    name = f"demo-minilm-{seed}"
    folder = ROOT / "runs" / f"{name}-compressed"
    for own in (folder, folder.with_name(name)):
        if own.exists():
            raise SystemExit(f"{own} is there from before, and would be gone on with: remove it")
    start = time.perf_counter()
    environment = {**os.environ, "MODEL": "minilm", "SEED": str(seed)}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/demo.sh")],
        check=True,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    minutes = (time.perf_counter() - start) / 60
    record = json.loads((folder / "compress.json").read_text(encoding="utf-8"))
    kept = {key: record[key] for key in ("points", "metric", "runtime", "seconds", "words")}
    return {"seed": seed, "minutes": minutes, "answer": done.stdout.splitlines()[-1], **kept}


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The runs as a table, their mean below them."""
    cells = list(runs[0]["points"][1]["ms"])
    head = ["seed", "full model", "its accuracy", "MACs", "points less full in fp32, 95%"]
    head += [*(f"times faster, {cell}" for cell in cells), "minutes"]
    lines, means = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"], []
    for run in runs:
        full, chosen, *_ = run["points"]
        gap = {end: 100 * chosen["difference"][end] for end in ("mean", "low", "high")}
        faster = [full["ms"][cell] / chosen["ms"][cell] for cell in chosen["ms"]]
        means.append([gap["mean"], *faster, run["minutes"]])
        own = [str(run["seed"]), full["name"].partition(", ")[2], f"{100 * full['score']:.2f}"]
        own += [f"{chosen['macs']:.2f}", "{mean:+.2f} ({low:+.2f} to {high:+.2f})".format(**gap)]
        own += [*(f"{ratio:.2f}" for ratio in faster), f"{run['minutes']:.1f}"]
        lines.append(f"| {' | '.join(own)} |")
    gap, *faster, minutes = np.mean(means, axis=0)
    own = ["mean", "", "", "", f"{gap:+.2f}", *(f"{ratio:.2f}" for ratio in faster), f"{minutes:.1f}"]
    return "\n".join([*lines, f"| {' | '.join(own)} |"]) + "\n"


def main() -> None:
    """Run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where demo.json and table.md go")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    runs = []
    for seed in options.seeds:
        runs.append(demo(seed))
        print(page(runs), flush=True)
    machine = device_facts(torch.device("cpu"), torch.float32)
    result = {"machine": machine, "versions": versions(), "runs": runs}
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "demo.json", result)
    write_atomic(options.out / "table.md", page(runs))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
