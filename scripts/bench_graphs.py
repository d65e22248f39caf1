"""How fast is a graph with a position bias beside stock? A model of random weights, whole and with lengths.

In turn: the stock class, its own export to ONNX (``torch.onnx.export`` alone, where that works), our graph
of the whole model in ONNX Runtime, in int8 and in OpenVINO, and our graphs with lengths at about half of the
MACs. Milliseconds a call, medians of shuffled rounds, and how far each whole model's logits are from stock's.
The last line is one JSON object.

    python scripts/bench_graphs.py --kind deberta-v2 --threads 1
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from ldsearch.costs.workload import Workload
from ldsearch.errors import one_line
from ldsearch.latency.clock import Clock, device_facts, load_average
from ldsearch.latency.runtimes import graph_runtime, in_session
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.space.lengths import constant_ratio_lengths
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import OPSET, trace

VOCABULARY = 1000
KINDS: Mapping[str, Mapping[str, Any]] = {
    # As in the released models.
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "mpnet": {},
    "bert": {},
}
RUNTIMES = ("onnx", "onnx-int8", "openvino")
Forward = Callable[[Mapping[str, Tensor]], Any]


def model_of(kind: str, hidden: int, blocks: int) -> PreTrainedModel:
    """Random weights, heads of 64 as in the released models."""
    torch.manual_seed(0)
    sizes = {"hidden_size": hidden, "num_hidden_layers": blocks, "intermediate_size": 4 * hidden}
    heads = {"num_attention_heads": max(2, hidden // 64)}
    config = AutoConfig.for_model(
        kind, vocab_size=VOCABULARY, pad_token_id=0, **sizes, **heads, **KINDS[kind]
    )
    return AutoModelForSequenceClassification.from_config(config).eval()


class _Logits(nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def stock_export(model: PreTrainedModel, batch: Mapping[str, Tensor], path: Path) -> Forward:
    """Stock code alone through torch's exporter, batch and length dynamic."""
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "batch", 1: "length"} for name in names} | {"logits": {0: "batch"}}
    given = tuple(batch[name] for name in names)
    with torch.no_grad():
        torch.onnx.export(
            *(_Logits(model), given, path),
            input_names=names,
            output_names=["logits"],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
    return in_session(open_onnxruntime(path, torch.get_num_threads()))


def batch_of(rows: int, length: int) -> dict[str, Tensor]:
    """Unpadded random tokens."""
    ids = torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def half(supernet: Supernet, length: int) -> tuple[Subnet, float]:
    """The constant-ratio lengths nearest to half of the MACs, and their share."""
    macs, blocks = supernet.macs(Workload.padded(length)), supernet.blocks
    ratios = [
        Subnet.of_encoder(range(blocks), constant_ratio_lengths(length, blocks, Fraction(rate, 100)), length)
        for rate in range(1, 60)
    ]
    shares = macs(ratios) / macs([supernet.full])[0]
    best = int(np.abs(shares - 0.5).argmin())
    return ratios[best], float(shares[best])


def first(output: Any) -> Tensor:
    """Logits of a model's or a graph's output."""
    return torch.as_tensor(np.asarray(output[0])) if isinstance(output, list | tuple) else output.logits


def main() -> None:
    """Write the graphs, check them, time them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="deberta-v2")
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--cells", nargs="+", default=["1x128", "8x128", "1x384"], help="rows x tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    supernet = Supernet(model_of(given.kind, given.hidden, given.blocks))
    rows: list[dict[str, Any]] = []
    runtimes = [name for name in RUNTIMES if find_spec(graph_runtime(name).library)]
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        place = Path(folder)
        trace(supernet, supernet.full, place / "full.onnx")
        forwards: dict[str, Forward] = {"stock": lambda batch: supernet.model(**batch)}
        refused = ""
        try:
            forwards["stock's export"] = stock_export(supernet.model, batch_of(2, 64), place / "stock.onnx")
        except Exception as error:  # whether it works is what is asked
            refused = f"{type(error).__name__}: {one_line(error)[:200]}"
        for name in runtimes:
            forwards[f"{name}, full"] = graph_runtime(name).of_graph(place / "full.onnx")
        for cell in given.cells:
            batch = batch_of(*map(int, cell.split("x")))
            subnet, share = half(supernet, batch["input_ids"].shape[1])
            trace(supernet, subnet, place / f"{cell}.onnx")
            timed = dict(forwards)
            for name in runtimes:
                timed[f"{name}, lengths"] = graph_runtime(name).of_graph(place / f"{cell}.onnx")
            supernet.eval()  # an export leaves what it wrote in training
            want = first(forwards["stock"](batch))
            off = {name: float((first(run(batch)) - want).abs().max()) for name, run in forwards.items()}
            calls = [lambda run=run, batch=batch: run(batch) for run in timed.values()]  # type: ignore[misc]
            rounds = Clock(given.repeats, seconds=2)(calls)
            for name, timing in zip(timed, rounds.timings, strict=True):
                ratio = timing.median / rounds.timings[0].median
                rows.append(
                    {
                        "cell": cell,
                        "what": name,
                        "ms": round(1e3 * timing.median, 2),
                        "of_stock": round(ratio, 3),
                        "macs": round(share, 3) if name.endswith("lengths") else 1.0,
                        "off": off.get(name),
                    }
                )
                print(rows[-1], flush=True)
            print(rounds.noise.describe(), flush=True)
    result = {
        "kind": given.kind,
        "hidden": given.hidden,
        "blocks": given.blocks,
        "stock_export_refused": refused,
        "rows": rows,
        "load": load_average(),
        **device_facts(torch.device("cpu"), torch.float32),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
