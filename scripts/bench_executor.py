"""How much does the prefix-tree executor save over scoring sub-networks one by one?

Random ratio length configurations of a BERT-shaped encoder with random weights, on synthetic inputs of
synthetic true lengths; both ways in one process, in turn, medians over the rounds. One by one is what
``Evaluator`` does with one sub-network: length-sorted batches, tokens dropped by each row's own length. The
last line is one JSON object.

    OMP_NUM_THREADS=1 python scripts/bench_executor.py --subnets 60
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.disk.fingerprint import versions
from ldsearch.evaluation.batches import length_batches
from ldsearch.evaluation.executor import Executor
from ldsearch.space import LengthGenes, Space, load_space
from ldsearch.space.lengths import default_bound
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import padded_batch

VOCABULARY = 1_000
Batches = Sequence[tuple[np.ndarray, dict[str, Tensor]]]


def model_of(options: argparse.Namespace) -> Supernet:
    """A BERT of the asked size, on the accelerator if there is one."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=options.hidden,
        num_hidden_layers=options.blocks,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.hidden,
    )
    supernet = Supernet(BertForSequenceClassification(config).eval())
    if torch.accelerator.is_available():
        supernet.to(torch.accelerator.current_accelerator())
    return supernet


def inputs(rows: Sequence[np.ndarray], lengths: np.ndarray) -> Batches:
    """The same random text for a row in whatever batch."""
    batches = []
    for index in rows:
        batch = padded_batch(lengths[index].tolist(), VOCABULARY)
        for place, row in enumerate(index):
            own = padded_batch([int(lengths[row])], VOCABULARY, seed=int(row))["input_ids"][0]
            batch["input_ids"][place, : len(own)] = own
        batches.append((index, batch))
    return batches


def one_by_one(supernet: Supernet, batches: Batches, subnets: Sequence[Subnet], rows: int) -> Tensor:
    """Logits of shape (subnets, rows, labels)."""
    logits = torch.zeros(len(subnets), rows, 2)
    for place, subnet in enumerate(subnets):
        for index, batch in batches:
            logits[place, index] = inference(supernet, batch, subnet).cpu()
    return logits


def together(executor: Executor, batches: Batches, subnets: Sequence[Subnet], rows: int) -> Tensor:
    """The same from the executor."""
    logits = torch.zeros(len(subnets), rows, 2)
    for index, batch in batches:

        def keep(ends: Sequence[int], found: Tensor, index: np.ndarray = index) -> None:
            logits[np.ix_(np.array(ends), index)] = found.cpu()

        executor.run(batch, subnets, keep)
    return logits


def timed(call: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """A result and the seconds it took."""
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subnets", type=int, default=60)
    parser.add_argument("--alone", type=int, help="time only so many one by one, and scale by MACs")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--reference", type=int, default=128)
    parser.add_argument("--mean", type=float, default=25, help="mean true length")
    parser.add_argument("--mode", choices=("ratio", "absolute"), default="ratio")
    parser.add_argument("--levels", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=64, help="of the runs one by one")
    parser.add_argument("--least", type=int, default=8, help="rows that are enough for a batch of one length")
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def drawn(space: Space, count: int, rng: np.random.Generator) -> list[Subnet]:
    """Random sub-networks, none of them twice: a search measures none twice either."""
    if count > space.size():
        raise SystemExit(f"{space.blocks} blocks have {space.size()} configurations, not {count}")
    found: dict[Subnet, None] = {}
    while len(found) < count:
        found.setdefault(space.sample(rng))
    return list(found)


@dataclass(frozen=True)
class Case:
    """What both ways run.

    Args:
        supernet: Of random weights.
        lengths: True length of each row.
        subnets: Distinct ones.
        sorted_batches: For the runs one by one.
        like_batches: For the executor.
    """

    supernet: Supernet
    lengths: np.ndarray
    subnets: Sequence[Subnet]
    sorted_batches: Batches
    like_batches: Batches


def prepare(options: argparse.Namespace) -> Case:
    """The case of these options; the same options give the same case."""
    supernet, rng = model_of(options), np.random.default_rng(0)
    # As skewed as sentences are: a gamma of shape 4, cut to the reference.
    lengths = np.clip(rng.gamma(4, options.mean / 4, options.rows).round(), 3, options.reference).astype(int)
    space = Space.of_lengths(
        LengthGenes.build(
            options.blocks, options.reference, default_bound(options.blocks), levels=options.levels,
            mode=options.mode, pin_last=supernet.reads_first,
        )
    )  # fmt: skip
    return Case(
        supernet,
        lengths,
        drawn(space, options.subnets, rng),
        inputs(length_batches(lengths, lambda n: options.batch_size, options.rows), lengths),
        inputs(length_batches(lengths, Executor(supernet).rows, options.least), lengths),
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run both ways in turn and compare."""
    case = prepare(options)
    supernet, subnets, rows = case.supernet, case.subnets, options.rows
    sample = subnets[: options.alone]
    workload = Workload.from_lengths(case.lengths.tolist(), options.reference)
    macs = Macs(supernet.shape, workload)(subnets) * rows
    full = Macs(supernet.shape, workload)([supernet.full])[0] * rows
    padded = Macs(supernet.shape, Workload.padded(options.reference))([supernet.full])[0] * rows

    one_by_one(supernet, case.sorted_batches, subnets[:1], rows)
    times: dict[str, list[float]] = {"one_by_one": [], "executor": []}
    for _ in range(options.rounds):
        theirs, seconds = timed(lambda: one_by_one(supernet, case.sorted_batches, sample, rows))
        times["one_by_one"].append(seconds * macs.sum() / macs[: len(sample)].sum())
        executor = Executor(supernet)
        ours, seconds = timed(lambda: together(executor, case.like_batches, subnets, rows))  # noqa: B023 (run at once)
        times["executor"].append(seconds)
        print(f"one by one {times['one_by_one'][-1]:.2f} s, executor {seconds:.2f} s", flush=True)
    medians = {name: float(median(values)) for name, values in times.items()}
    return {
        **vars(options),
        "device": supernet.model.device.type,
        "mean_length": round(workload.mean_length, 2),
        "batches": len(case.like_batches),
        "timed_one_by_one": len(sample),
        "seconds": {name: round(value, 3) for name, value in medians.items()},
        "times_faster": round(medians["one_by_one"] / medians["executor"], 2),
        "times_fewer_macs": round(macs.sum() / executor.work.macs, 2),
        "executed_macs": executor.work.macs,
        "one_by_one_macs": round(macs.sum()),
        "executed_in_full_passes": round(executor.work.macs / full, 2),
        "one_by_one_in_full_passes": round(macs.sum() / full, 2),
        "padded_in_full_passes": round(padded * len(subnets) / full, 1),
        "block_evaluations": executor.work.evaluations,
        "block_evaluations_one_by_one": len(subnets) * options.blocks * len(case.like_batches),
        "head_evaluations": executor.work.heads,
        "largest_difference": float((ours[: len(sample)] - theirs).abs().max()),
        "macs_counted_per_second": counted_per_second(workload),
        "versions": versions(),
    }


def counted_per_second(workload: Workload, count: int = 20_000) -> dict[str, int]:
    """By space: random sub-networks whose MACs are counted in a second of CPU, the first ones included."""
    rng, found = np.random.default_rng(0), {}
    for name in ("length-adaptive-6x128", "length-adaptive-12x128", "joint-groups-12x128"):
        space = load_space(name)
        macs = Macs(EncoderShape(space.blocks, hidden=768, feed_forward=3072, heads=12), workload)
        subnets = [space.sample(rng) for _ in range(count)]
        start = time.process_time()
        macs(subnets)
        found[name] = round(count / (time.process_time() - start))
    return found


def main() -> None:
    """Measure, print."""
    print(json.dumps(measure(arguments().parse_args())))


if __name__ == "__main__":
    main()
