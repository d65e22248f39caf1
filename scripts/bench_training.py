"""What a training step costs, and how much of it is matrix products, on this processor or GPU.

Steps of the real trainer, optimizer step included, on random tokens without padding. The floor of a step is
the time that its matrix products take alone: those of every pass that the strategy drew, each sub-network
whole, forward and backward, in the precision of the training. Every setting runs in a process of its own;
with ``--against`` another checkout's steps are timed in turn with this one's, in shuffled order. The draws of
a step are the same in both. The last line is one JSON object.

    python scripts/bench_training.py --out results/training/xeon --against ../ldsearch-before
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

HERE = Path(__file__).resolve().parents[1]
VOCABULARY = 30_522
MODELS = {"minilm": (384, 12, 6), "bert-base": (768, 12, 12)}  # width, heads, blocks
STRATEGIES = ("plain", "lengthdrop", "layerdrop", "flexible-depth")
SHAPES = ("32x64", "32x192", "16x384")
PRECISIONS = ("fp32", "bf16")
WARM_UP = 2
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


class Steps:
    """One setting: its trainer and model.

    Args:
        strategy: Name of the training strategy.
        model: One of ``MODELS``.
        batch: Rows.
        tokens: Of each row.
        bf16: Whether under autocast.
    """

    def __init__(self, strategy: str, model: str, batch: int, tokens: int, bf16: bool) -> None:
        # Of the checkout that PYTHONPATH names.
        from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

        from ldsearch.supernet import Supernet
        from ldsearch.tasks import Encoded, TextClassification
        from ldsearch.training.run import training_arguments
        from ldsearch.training.strategies import Setting, make_strategy
        from ldsearch.training.trainer import SupernetTrainer

        torch.manual_seed(0)
        self.width, self.heads, self.blocks = MODELS[model]
        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=self.width,
            num_hidden_layers=self.blocks,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.width,
            num_labels=2,
        )
        supernet = Supernet(BertForSequenceClassification(config), "learned")
        rng = np.random.default_rng(0)
        features = tuple(
            {
                "input_ids": rng.integers(5, VOCABULARY, tokens).tolist(),
                "attention_mask": [1] * tokens,
                "labels": row % 2,
            }
            for row in range(batch)
        )
        encoded = Encoded(features, tokens)
        flags = {"bf16": str(bf16), "per_device_train_batch_size": batch, "save_strategy": "no"}
        arguments = training_arguments(Path(tempfile.mkdtemp()), flags, seed=0)
        self.trainer = SupernetTrainer(
            supernet,
            make_strategy(strategy, Setting.of(supernet, tokens, layer_drop=(0.2,))),
            arguments,
            task=TextClassification({}, ("a", "b"), {}),
            train=encoded,
            search=encoded,
            tokenizer=BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}),
        )
        self.trainer.create_optimizer()
        self.trainer.current_gradient_accumulation_steps = 1
        # As training does it: this is what puts the forward passes under autocast.
        self.trainer.accelerator.prepare(supernet.to(arguments.device))
        self.trainer.fit_saliency()
        self.batch, self.tokens, self.bf16 = batch, tokens, bf16
        self.device = arguments.device

    def step(self, count: int) -> float:
        """Seconds of one optimizer step."""
        trainer = self.trainer
        trainer.state.global_step = count
        batch = trainer.data_collator([trainer.train_dataset[row] for row in range(self.batch)])
        wait(self.device)
        start = time.perf_counter()
        trainer.training_step(trainer.supernet, batch)
        torch.nn.utils.clip_grad_norm_(trainer.supernet.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        wait(self.device)
        return time.perf_counter() - start

    def floor(self, count: int) -> float:
        """Seconds of the matrix products of that step's passes alone."""
        from ldsearch.supernet.stages import kept_of_rows

        def draws(index: int) -> np.random.Generator:
            return np.random.default_rng([0, count, 0, index])

        dtype = torch.bfloat16 if self.bf16 else torch.float32
        products: dict[tuple[int, ...], int] = {}
        for one in self.trainer.strategy.passes(draws, 0.0):
            stack = one.subnet.encoder
            assert stack is not None
            rows = len(range(one.rows[0], self.batch, one.rows[1]))
            entering = self.tokens
            for keep in kept_of_rows(stack, [self.tokens]):
                leaving = entering if keep is None else keep[0]
                width, head = self.width, self.width // self.heads
                here, there = rows * entering, rows * leaving
                for key, times in (
                    ((here, width, width), 3),  # queries, keys, values
                    ((there, width, width), 1),
                    ((there, width, 4 * width), 1),
                    ((there, 4 * width, width), 1),
                    ((rows * self.heads, entering, head, entering), 1),
                ):
                    products[key] = products.get(key, 0) + times
                entering = leaving
        return sum(times * seconds(self._product(key, dtype), self.device) for key, times in products.items())

    def _product(self, shape: Sequence[int], dtype: torch.dtype) -> Callable[[], object]:
        """A layer's product and both of its gradients; four numbers: attention's two and their gradients."""

        def made(*size: int) -> torch.Tensor:
            return torch.randn(*size, dtype=dtype, device=self.device)

        if len(shape) == 3:
            rows, enter, leave = shape
            hidden, weights, gradient = made(rows, enter), made(leave, enter), made(rows, leave)
            return lambda: (hidden @ weights.T, gradient @ weights, gradient.T @ hidden)
        heads, queries, width, keys = shape
        narrow, also, wide = made(heads, queries, width), made(heads, keys, width), made(heads, queries, keys)
        made_wide = torch.empty_like(wide)  # memory is no part of a product
        return lambda: (
            torch.bmm(narrow, also.mT, out=made_wide),
            wide @ also,
            wide.mT @ narrow,
            torch.bmm(narrow, also.mT, out=made_wide),
            wide @ also,
            wide.mT @ narrow,
        )

    def share(self, count: int) -> float:
        """Share of a step's time that is spent in matrix products, by the profiler."""
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            took = self.step(count)
        spent = sum(e.self_cpu_time_total for e in profiled.key_averages() if e.key in PRODUCTS)
        return float(spent / 1e6 / took)


def wait(device: torch.device) -> None:
    """Until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Median of five, after a warm-up."""
    run()
    times = []
    for _ in range(5):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        times.append(time.perf_counter() - start)
    return median(times)


def work(words: Sequence[str]) -> None:
    """Answer each line of standard input with one line: a step's seconds, its floor, or its share."""
    strategy, model, shape, precision = words
    batch, tokens = map(int, shape.split("x"))
    steps = Steps(strategy, model, batch, tokens, precision == "bf16")
    for line in sys.stdin:
        what, count = line.split()
        print(json.dumps(getattr(steps, what)(int(count))), flush=True)


class Worker:
    """A process that makes the steps of one setting in one checkout.

    Args:
        tree: The checkout.
        words: Strategy, model, shape, precision.
    """

    def __init__(self, tree: Path, words: Sequence[str]) -> None:
        path = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--work", *words],
            env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, what: str, count: int) -> float:
        """One line to it, and its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, count, file=self.process.stdin, flush=True)
        while not (line := self.process.stdout.readline()).startswith(tuple("0123456789")):
            if not line:
                raise SystemExit(f"a worker ended: {' '.join(map(str, self.process.args))}")
        return float(line)

    def end(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measured(words: Sequence[str], trees: dict[str, Path], rounds: int) -> dict[str, Any]:
    """One row: of each checkout the seconds of its steps, and the floor that both share."""
    workers = {name: Worker(tree, words) for name, tree in trees.items()}
    times: dict[str, list[float]] = {name: [] for name in trees}
    order, shuffled = list(workers), random.Random(0)
    for count in range(WARM_UP + rounds):
        shuffled.shuffle(order)
        for name in order:
            took = workers[name].ask("step", count)
            if count >= WARM_UP:
                times[name].append(took)
    counted = range(WARM_UP, WARM_UP + rounds)
    floors = [workers["now"].ask("floor", count) for count in counted]
    row: dict[str, Any] = {"floor": float(np.mean(floors))}
    for name, worker in workers.items():
        ratios = np.array(times[name]) / np.array(floors)
        row[name] = {
            "seconds": float(np.mean(times[name])),
            "least": min(times[name]),
            "most": max(times[name]),
            "over_floor": float(np.median(ratios)),
        }
        if not torch.cuda.is_available():
            row[name]["share_of_products"] = worker.ask("share", counted[-1])
        worker.end()
    if "before" in row:
        row["before_over_now"] = float(np.median(np.array(times["before"]) / np.array(times["now"])))
    return row


def main() -> None:
    """Time, compare, write."""
    # A worker has no other options.
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where bench_training.json goes")
    parser.add_argument("--against", type=Path, help="another checkout, whose steps are timed in turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["minilm"], choices=MODELS)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, choices=STRATEGIES)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="rows x tokens")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    options = parser.parse_args()
    from ldsearch.disk.files import write_json
    from ldsearch.disk.fingerprint import versions
    from ldsearch.latency.clock import device_facts

    trees = {"now": HERE, **({"before": options.against.resolve()} if options.against else {})}
    rows: dict[str, Any] = {}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result = {
        "question": "time of a training step, and what its matrix products alone take",
        "device": device_facts(device, torch.float32),
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "rows": rows,
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for model in options.models:
        for precision in options.precisions:
            for shape in options.shapes:
                for strategy in options.strategies:
                    name = f"{model} {strategy} {shape} {precision}"
                    row = rows[name] = measured((strategy, model, shape, precision), trees, options.rounds)
                    print(name, json.dumps(row), file=sys.stderr, flush=True)
                    write_json(options.out / "bench_training.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
