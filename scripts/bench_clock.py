"""Does the clock lean? A graph timed against itself under another name, among two larger ones.

MiniLM-L6's shape in int8, two sessions of one file; between them the same in fp32 and twelve blocks of it.
The ratio of the two medians is to be within 3% at batch 1 and 2% at batch 8. Nothing else may run meanwhile.
The last line is one JSON object; with PYTHONPATH at another checkout that one's clock is judged.

    python scripts/bench_clock.py --out results/clock
"""

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import torch
from transformers import BertConfig, BertForSequenceClassification

from ldsearch.disk.files import write_json
from ldsearch.latency.clock import Clock, crowding, device_facts, load_average, threads
from ldsearch.latency.int8 import quantise
from ldsearch.latency.measure import random_cell
from ldsearch.latency.runtimes import in_session
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import trace

BOUNDS = {1: 0.03, 8: 0.02}  # by batch
TOKENS, BLOCKS = 15, (6, 12)


def graphs(folder: Path) -> tuple[Supernet, dict[str, Path]]:
    """The three graphs' files, and the model that they are of."""
    files = {}
    for blocks in reversed(BLOCKS):
        config = BertConfig(
            hidden_size=384, num_hidden_layers=blocks, num_attention_heads=12, intermediate_size=1536
        )
        supernet = Supernet(BertForSequenceClassification(config)).eval()
        files[f"fp32, {blocks} blocks"] = path = folder / f"{blocks}.onnx"
        trace(supernet, supernet.full, path)
    files["int8"] = folder / "int8.onnx"
    quantise(path, files["int8"])
    return supernet, files


def main() -> None:
    """Judge the clock."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where bench_clock.json goes")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    crowded = crowding(load_average(), 2, options.threads)
    print(crowded, file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory() as folder, threads(options.threads):
        supernet, files = graphs(Path(folder))
        facts = device_facts(torch.device("cpu"), torch.float32)
        for batch, bound in BOUNDS.items():
            inputs, ratios = random_cell(supernet, batch, TOKENS).batches[0], []
            for _ in range(options.tries):
                runs = []
                for name in ("int8", f"fp32, {BLOCKS[0]} blocks", f"fp32, {BLOCKS[1]} blocks", "int8"):
                    forward = in_session(open_onnxruntime(files[name], options.threads))
                    runs.append(partial(forward, inputs))
                first, *_, last = Clock(repeats=5, warmup=2, seconds=3.0)(runs).timings
                ratios.append(first.median / last.median)
            within = sum(abs(ratio - 1) <= bound for ratio in ratios)
            rows.append(
                {
                    "batch": batch,
                    "tokens": TOKENS,
                    "bound": bound,
                    "tries": options.tries,
                    "within": within,
                    "median": median(ratios),
                    "least": min(ratios),
                    "most": max(ratios),
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    result = {
        "question": "a graph timed against itself, among two larger ones",
        "busy": crowded,
        "device": facts,
        "rows": rows,
    }
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "bench_clock.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
