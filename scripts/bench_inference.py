"""Is length-adaptive inference as fast as its MACs say? MiniLM-L6 on a CPU, batches of 1, 8 and 32.

Two configurations, at 128 and at 384 tokens, unpadded; with ``--data`` also at SST-2's own lengths. Timed in
turn in one process, medians: the stock model with sdpa, the supernet's own full path, three of six blocks,
the configuration in ldsearch (a ``FixedSubnet``), the same the length-adaptive reference's way (all attention
probabilities at once, tokens dropped after the attention sub-layer; our own lines) and its bare matrix
products; then, in a block of their own, the exported graphs in ONNX Runtime. Fine-tuned or not: weights do
not change the time. The last line is one JSON object.

    python scripts/bench_inference.py --data path/to/sst2 --out results/inference
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from bench_inference_models import Call, Products, Reference, session, subject
from bench_inference_page import write_page

from ldsearch.disk.files import write_json
from ldsearch.latency.clock import Clock, Timing, crowding, device_facts, load_average, threads
from ldsearch.latency.measure import Cell, data_cell, random_cell
from ldsearch.subnet import Subnet

CONFIGURATIONS = {128: (90, 63, 45, 32, 23, 17), 384: (269, 189, 133, 94, 66, 47)}
DEPTH = Subnet.of_encoder([0, 2, 4])
Parts = dict[str, Any]


class Bench:
    """The model with everything that is made of it once."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.supernet, self.tokenizer = subject(options.model)
        self.supernet.model.set_attn_implementation("sdpa")
        self.clock = Clock(repeats=options.repeats)
        self.subnets = {n: Subnet.of_encoder(range(6), CONFIGURATIONS[n], n) for n in options.lengths}
        exported = {"full": self.supernet.full, "depth 3": DEPTH, **self.subnets}
        self.sessions = {
            name: session(self.supernet, self.tokenizer, subnet, folder / str(name))
            for name, subnet in exported.items()
        }

    def cell(self, cell: Cell, width: int) -> Parts:
        """One batch size at one length, in which the configuration of ``width`` runs."""
        load = load_average()
        subnet, model = self.subnets[width], self.supernet.model
        fixed, depth = (self.supernet.materialise(one).eval() for one in (subnet, DEPTH))
        reference = Reference(model, CONFIGURATIONS[width], width)
        torch_runs = {
            "stock sdpa": over(cell, lambda inputs: model(**inputs)),
            "own full path": over(cell, lambda inputs: self.supernet(inputs, self.supernet.full)),
            "depth 3": over(cell, lambda inputs: depth(**inputs)),
            "torch": over(cell, lambda inputs: fixed(**inputs)),
            "reference": over(cell, reference),
            "matrix products": self.products(cell, width),
        }
        names = {"onnx full": "full", "onnx depth 3": "depth 3", "onnx": width}
        onnx_runs = {name: over(cell, self.sessions[key]) for name, key in names.items()}
        found: Parts = {"length": cell.length, "batch": cell.batch, "configuration": width, "load": load}
        found["crowding"] = crowding(load, os.cpu_count() or 1, torch.get_num_threads())
        for group, runs in (("torch", torch_runs), ("onnx", onnx_runs)):
            rounds = self.clock(list(runs.values()))
            noise = rounds.noise
            found[f"{group}_noise"] = {"noisy": noise.noisy, "words": noise.describe()}
            found[f"{group}_ms"] = {
                name: milliseconds(each, len(cell.batches))
                for name, each in zip(runs, rounds.timings, strict=True)
            }
        return {**found, **self.ratios(found, cell, subnet)}

    def products(self, cell: Cell, width: int) -> Call:
        """The configuration's, batch by batch at the batch's own width."""
        lengths = (width, *CONFIGURATIONS[width])
        made = []
        for inputs in cell.batches:
            rows, n = inputs["input_ids"].shape
            enters = [-(-n * tokens // width) for tokens in lengths]
            made.append(Products(self.supernet.model, rows, enters))
        return lambda: [run() for run in made]

    def ratios(self, found: Parts, cell: Cell, subnet: Subnet) -> Parts:
        """Of medians: torch over the faster of stock sdpa and own full path, ONNX over its own full graph."""
        torch_ms, onnx_ms = (
            {name: one["median"] for name, one in found[f"{group}_ms"].items()} for group in ("torch", "onnx")
        )
        best = min(torch_ms["stock sdpa"], torch_ms["own full path"])
        ratios = {name: ms / best for name, ms in torch_ms.items()}
        ratios |= {name: ms / onnx_ms["onnx full"] for name, ms in onnx_ms.items()}
        workload = cell.workload(0, causal=False)
        shares = {}
        for name, paper in (("macs", False), ("padded_macs", True)):
            cost = self.supernet.macs(workload, torchprofile=paper)
            full, own, cut = cost([self.supernet.full, subnet, DEPTH])
            shares[name] = {"configuration": float(own / full), "depth 3": float(cut / full)}
        return {"ratios": ratios, "macs_ratios": shares}


def milliseconds(timing: Timing, batches: int = 1) -> dict[str, float]:
    """Median and quartiles, of one of so many batches."""
    return {part: 1000 * getattr(timing, part) / batches for part in ("median", "low", "high")}


def over(cell: Cell, forward: Any) -> Call:
    """One call runs every batch of a cell."""
    return lambda: [forward(inputs) for inputs in cell.batches]


def sentences(folder: Path, tokenizer: Any) -> list[dict[str, Any]]:
    """SST-2's validation sentences as tokens."""
    with gzip.open(folder / "validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["sentence"] for line in lines]
    return [{"input_ids": ids} for ids in tokenizer(texts, truncation=True, max_length=128)["input_ids"]]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a trained supernet of MiniLM-L6 (default: a new head)")
    parser.add_argument("--data", type=Path, help="SST-2's folder (validation.jsonl.gz)")
    parser.add_argument("--lengths", type=int, nargs="+", choices=CONFIGURATIONS, default=[*CONFIGURATIONS])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="in an operation (default: torch's)")
    parser.add_argument("--out", type=Path, help="where inference.json and README.md go")
    options = parser.parse_args()
    if options.repeats < 5:
        parser.error("a median needs 5 repeats or more")
    with tempfile.TemporaryDirectory() as folder, threads(options.threads), torch.inference_mode():
        load = load_average()
        result = run(options, Bench(options, Path(folder)))
    result |= {
        "command": " ".join(["python", *sys.argv]),
        "repeats": options.repeats,
        "load_before": load,
        "model": str(options.model or "new head"),
    }
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "inference.json", result)
        write_page(result, options.out)
    print(json.dumps(result))


def run(options: argparse.Namespace, bench: Bench) -> Parts:
    """Every cell."""
    plan = [(n, batch, n) for n in options.lengths for batch in options.batches]
    made = [(random_cell(bench.supernet, batch, n), width) for n, batch, width in plan]
    if options.data is not None and 128 in options.lengths:
        features = sentences(options.data, bench.tokenizer)

        def collate(rows: Any) -> dict[str, Any]:
            return dict(bench.tokenizer.pad(rows, return_tensors="pt"))

        made += [(data_cell(bench.supernet, features, collate, batch), 128) for batch in options.batches]
    cells = []
    for cell, width in made:
        cells.append(bench.cell(cell, width))
        print(json.dumps({key: cells[-1][key] for key in ("length", "batch", "ratios")}), flush=True)
    facts = device_facts(bench.supernet.model.device, bench.supernet.model.dtype)
    return {"device": facts, "cells": cells}


if __name__ == "__main__":
    main()
