"""IMDB with MiniLM-L6 in int8: a supernet beside everything that people do instead.

    python scripts/imdb.py --data path/to/imdb --runs runs/imdb --out results/imdb

Trains what is missing (``imdb_train.py``), hours on two cores, and goes on where it was stopped. Then
everything is quantised, scored on the 3,000 report rows, which chose nothing, and timed in turn, weights of
one shape once; scores are kept beside the models. Nothing else may run meanwhile. The last line is one JSON
object.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from bench_deploy import milliseconds, over
from imdb_page import write_page
from imdb_train import (
    CUTS,
    DEPTHS,
    HOW,
    SCORED,
    SEEDS,
    SPECIALISTS,
    SUPERNET,
    TOKENS,
    arguments,
    constant_ratio,
    cuts,
    shortened,
    supernet_name,
    train_all,
)
from numpy.typing import NDArray

from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import digest, weights_fingerprint
from ldsearch.errors import LdsearchError
from ldsearch.latency.clock import Clock, crowding, device_facts, load_average, threads
from ldsearch.latency.int8 import quantise
from ldsearch.latency.measure import data_cell
from ldsearch.latency.runtimes import in_session
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.options import Evolve
from ldsearch.runs.run import read_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.graph import trace
from ldsearch.supernet.saliency import LEARNED, require_weights
from ldsearch.tasks import Encoded
from ldsearch.trials.budget import Budget
from ldsearch.trials.intervals import paired_bootstrap

LINE = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75)  # constant ratio, shares of the MACs
OURS = (SUPERNET, "evolve")  # groups: the constant ratios, and what was searched
SLACK = 1.02  # of times that count as equal
BUDGETS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)  # of the search
BATCHES = (1, 8, 32)
SCORED_BATCH = 32


@dataclass(frozen=True)
class Contender:
    """One thing that could be shipped.

    Args:
        name: Names its folder too.
        group: ``full``, ``cut``, ``blocks``, ``specialist``, ``supernet`` (ours, constant ratio),
            ``seed`` (ours of another seed, constant ratio), ``evolve`` (ours, searched) or ``plain-cut`` (the
            plain model, its tokens dropped without training for it).
        folder: The model.
        subnet: What of it runs.
        inputs: The report rows as it reads them.
        compute: Of its training, in epochs of plain fine-tuning, the plain one it starts from not counted.
    """

    name: str
    group: str
    folder: Path
    subnet: Subnet
    inputs: Encoded
    compute: float


def contenders(
    bench: Bench, plain: Path, runs: Path, searched: Mapping[float, Subnet]
) -> Iterator[Contender]:
    """Whatever has been trained so far."""
    search = Bench.open(plain, "search", task=bench.task)  # configurations are chosen by its lengths
    report = bench.task.encode("report", bench.tokenizer, TOKENS)
    yield Contender("full", "full", plain, bench.full, report, 0.0)
    yield from rivals(bench, runs, report)
    for share in sorted(SPECIALISTS):
        subnet = constant_ratio(share, search)
        yield Contender(f"plain-{share}", "plain-cut", plain, subnet, report, 0.0)
    line: dict[object, Subnet] = {share: constant_ratio(share, search) for share in LINE}
    line["full"] = bench.full
    for seed in SEEDS:
        name, group = supernet_name(seed), SUPERNET if seed == SEEDS[0] else "seed"
        if (how := finished(runs / name)) is None:
            continue
        for size, subnet in line.items():
            yield Contender(f"{name}-{size}", group, runs / name, subnet, report, how["compute"])
        for budget, subnet in searched.items() if seed == SEEDS[0] else ():
            yield Contender(f"evolve-{budget}", "evolve", runs / name, subnet, report, how["compute"])


def rivals(bench: Bench, runs: Path, report: Encoded) -> Iterator[Contender]:
    """What people do instead: cut inputs, fewer blocks, one configuration trained alone."""
    train = bench.task.encode("train", bench.tokenizer, TOKENS)
    asked = [("cut", name, runs / f"cut-{name}") for name in CUTS]
    asked += [("blocks", name, runs / name) for name in DEPTHS]
    asked += [("specialist", name, runs / name) for name in (f"specialist-{share}" for share in SPECIALISTS)]
    cut = cuts(train)
    for group, name, folder in asked:
        if (how := finished(folder)) is None:
            continue
        subnet, inputs = bench.full, report
        if group == "cut":
            inputs = shortened(report, *cut[name])
        else:
            subnet = Subnet.from_json(json.dumps(how["subnet"]))
        yield Contender(name, group, folder, subnet, inputs, how["compute"])


def finished(folder: Path) -> dict[str, Any] | None:
    """What a training took, if it ended."""
    return read_json(folder / HOW) if (folder / HOW).is_file() else None


@dataclass(frozen=True)
class Measured:
    """A contender's graphs and scores.

    Args:
        contender: Which.
        fp32: Its graph.
        int8: The quantised one.
        correct: 1 for each report row that the int8 graph labels right, shape (rows,).
        agrees: Share of the report rows that both graphs label alike; None where that was not asked.
        supernet: The model, for what reads batches as it does.
        macs: Multiply-accumulates per report row.
    """

    contender: Contender
    fp32: Path
    int8: Path
    correct: NDArray[np.float64]
    agrees: float | None
    supernet: Supernet
    macs: float

    @property
    def shape(self) -> object:
        """What its time depends on: all but the weights."""
        return self.contender.subnet, tuple(self.contender.inputs.lengths.tolist())


def measure(contender: Contender, bench: Bench, runs: Path, both: bool) -> Measured:
    """Graphs and scores, from the folder where they are kept or made."""
    supernet = load(contender.folder)
    key = digest([weights_fingerprint(contender.folder), contender.subnet.to_json(), contender.name])
    folder = runs / "graphs" / f"{contender.name}-{key[:12]}"
    fp32, int8 = folder / "model.onnx", folder / "model_int8.onnx"
    if not int8.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        trace(supernet, contender.subnet, fp32)
        quantise(fp32, int8)
    labels = np.array([feature["labels"] for feature in contender.inputs])
    answers = {}
    for name, path in (("int8", int8), ("fp32", fp32)):
        if name == "int8" or both:
            kept = folder / f"{name}.npy"
            if not kept.is_file():
                print(f"scoring {contender.name}, {name}", flush=True)
                np.save(kept, predictions(path, contender.inputs, bench))
            answers[name] = np.load(kept)
    agrees = float((answers["int8"] == answers["fp32"]).mean()) if both else None
    correct = (answers["int8"] == labels).astype(float)
    macs = float(supernet.macs(contender.inputs.workload)([contender.subnet])[0])
    return Measured(contender, fp32, int8, correct, agrees, supernet, macs)


def load(folder: Path) -> Supernet:
    """A trained model and its learned token score, with the attention that people run."""
    model, _ = load_model(str(folder))
    require_weights(LEARNED, folder)
    model.set_attn_implementation("sdpa")
    return Supernet(model.eval(), LEARNED)


def predictions(path: Path, rows: Encoded, bench: Bench) -> NDArray[np.int64]:
    """The label of each row, shape (rows,), in batches of like length."""
    run = in_session(open_onnxruntime(path, torch.get_num_threads()))
    collate = bench.task.collate(bench.tokenizer, None)
    order = np.argsort(rows.lengths, kind="stable")
    found = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(order), SCORED_BATCH):
        chosen = order[start : start + SCORED_BATCH]
        outputs: Any = run(collate([rows[row] for row in chosen.tolist()]))
        found[chosen] = outputs[0].argmax(axis=-1)
    return found


def timed(measured: Sequence[Measured], bench: Bench, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of a batch of each contender at each batch size, in turn, and of two full fp32 models.

    Where two differ in their weights alone, one is timed for both.
    """
    collate: Callable[[Any], Any] = bench.task.collate(bench.tokenizer, None)
    full = measured[0]
    stock = full.supernet.model
    shapes: dict[object, Measured] = {}
    same = {one.contender.name: shapes.setdefault(one.shape, one).contender.name for one in measured}
    per_matrix = full.int8.with_name("model_int8_per_matrix.onnx")
    quantise(full.fp32, per_matrix, per_channel=False)
    cells = []
    for batch in BATCHES:
        runs: dict[str, Callable[[], object]] = {}
        for one in shapes.values():
            cell = data_cell(one.supernet, list(map(dict, one.contender.inputs)), collate, batch)
            forward = in_session(open_onnxruntime(one.int8, torch.get_num_threads()))
            runs[one.contender.name] = over(cell, forward)
            if one is full:
                fp32 = in_session(open_onnxruntime(one.fp32, torch.get_num_threads()))
                runs["full, fp32 in ONNX Runtime"] = over(cell, fp32)
                runs["full, fp32 in transformers"] = over(cell, lambda inputs: stock(**inputs))
                default = in_session(open_onnxruntime(per_matrix, torch.get_num_threads()))
                runs["full, int8 with a scale per matrix"] = over(cell, default)
        rounds = Clock(repeats=repeats)(list(runs.values()))
        batches = len(cell.batches)
        ms = {name: milliseconds(each, batches) for name, each in zip(runs, rounds.timings, strict=True)}
        cells.append(
            {
                "batch": batch,
                "noise": {"noisy": rounds.noise.noisy, "words": rounds.noise.describe()},
                "ms": ms | {name: ms[timed_one] for name, timed_one in same.items()},
            }
        )
        print(f"timed batch {batch}: {cells[-1]['noise']['words']}", flush=True)
    return cells


def gate(measured: Mapping[str, Measured], ms: Mapping[str, float]) -> list[dict[str, Any]]:
    """What the gate asks, for each specialist that was trained, of each group of ours.

    Ours is the slowest of its group that is no slower than the specialist, so that no score chooses it;
    rivals are the cut inputs and the shallower models that are no slower than ours. 2% are allowed for noise.
    """
    rows = []
    for share, group in itertools.product(SPECIALISTS, OURS):
        alone = measured.get(f"specialist-{share}")
        if alone is None:
            continue
        limit = SLACK * ms[alone.contender.name]
        fits = [
            one
            for one in measured.values()
            if one.contender.group == group and ms[one.contender.name] <= limit
        ]
        if not fits:
            continue
        own = max(fits, key=lambda one: ms[one.contender.name])
        name = own.contender.name
        rivals = [
            one
            for one in measured.values()
            if one.contender.group in ("cut", "blocks") and ms[one.contender.name] <= SLACK * ms[name]
        ]
        row = {"specialist": alone.contender.name, "name": name, "of_full": ms[name] / ms["full"]}
        row["loss"] = asdict(paired_bootstrap(alone.correct, own.correct))
        row["loss_upper"] = paired_bootstrap(alone.correct, own.correct, level=0.9).high
        row["fast"] = row["of_full"] <= 0.5
        row["near"] = row["loss"]["mean"] <= 0.005 and row["loss_upper"] < 0.01
        row["against_full"] = asdict(paired_bootstrap(own.correct, measured["full"].correct))
        if rivals:
            best = max(rivals, key=lambda one: one.correct.mean())
            row["rival"] = best.contender.name
            row["gain"] = asdict(paired_bootstrap(own.correct, best.correct))
            row["ahead"] = row["gain"]["mean"] >= 0.01 and row["gain"]["low"] > 0
        row["met"] = bool(row["fast"] and row["near"] and row.get("ahead", False))
        rows.append(row)
    return rows


def result_of(
    measured: Mapping[str, Measured], cells: Sequence[dict[str, Any]], runs: Path
) -> dict[str, Any]:
    """What the page needs."""
    full = measured["full"]
    rows = []
    for name, one in measured.items():
        rows.append(
            {
                "name": name,
                "group": one.contender.group,
                "subnet": one.contender.subnet.describe(),
                "macs_share": one.macs / full.macs,
                "accuracy": float(one.correct.mean()),
                "correct": np.packbits(one.correct.astype(bool)).tobytes().hex(),  # for other pairings
                "minus_full": asdict(paired_bootstrap(one.correct, full.correct)),
                "agrees": one.agrees,
                "compute": one.contender.compute,
                "ms": {str(cell["batch"]): cell["ms"][name] for cell in cells},
            }
        )
    by_batch = {cell["batch"]: cell for cell in cells}
    eight = {name: each["median"] for name, each in by_batch[8]["ms"].items()}
    known = ("plain", *(one.contender.folder.name for one in measured.values()))
    return {
        "examples": len(full.correct),
        "contenders": rows,
        "gate": gate(measured, eight),
        "seeds": over_seeds(measured),
        "missing": sorted(expected() - set(measured)),
        "cells": [
            {**cell, "ms": {k: v for k, v in cell["ms"].items() if k not in measured}} for cell in cells
        ],
        "trainings": {name: finished(runs / name) for name in dict.fromkeys(known)},
    }


def over_seeds(measured: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """What each constant ratio of the supernet loses to the full model in the mean of its trainings."""
    names, full = [supernet_name(seed) for seed in SEEDS], measured["full"].correct
    rows = []
    for share in ("full", *reversed(LINE)):
        own = [measured[f"{name}-{share}"].correct for name in names if f"{name}-{share}" in measured]
        if len(own) < len(names):
            continue
        each = [paired_bootstrap(correct, full).mean for correct in own]
        mean = paired_bootstrap(np.mean(own, axis=0), full)
        lower = paired_bootstrap(np.mean(own, axis=0), full, level=0.9).low
        rows.append({"share": share, "each": each, "mean": asdict(mean), "lower": lower})
    return rows


def expected() -> set[str]:
    """The contenders that have a training of their own."""
    supernets = {f"{supernet_name(seed)}-full" for seed in SEEDS}
    return {*DEPTHS, *CUTS, *supernets} | {f"specialist-{share}" for share in SPECIALISTS}


def search(runs: Path, evaluations: int) -> dict[float, Subnet]:
    """What the search finds for each budget on the search rows; nothing where no search is asked for."""
    if not evaluations:
        return {}
    bench = Bench.open(runs / SUPERNET, "search")
    outcome = evolve(bench, runs / f"{SUPERNET}-evolve", Evolve(evaluations=evaluations, genes="lengths"))
    candidates, full = outcome.result.candidates, outcome.result.trials[0]
    cheapest = min(trial.costs["macs"] for trial in candidates) / full.costs["macs"]
    return {
        budget: Budget.parse(str(budget)).choose(candidates, full).subnet
        for budget in BUDGETS
        if budget >= cheapest
    }


def main() -> None:
    """Search, score, time, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, required=True, help="where imdb.json, the figures and the page go"
    )
    parser.add_argument("--evaluations", type=int, default=60, help="of the search; 0: none")
    parser.add_argument("--as-is", action="store_true", help="measure what has been trained, train nothing")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--threads", type=int, help="in an operation (default: torch's)")
    options = parser.parse_args()
    load_before = load_average()
    runs = options.runs.resolve()
    if not options.as_is:
        train_all(options.data, runs)
    with threads(options.threads):
        searched = search(runs, options.evaluations)
        bench = Bench.open(runs / SCORED, "report")
        measured = {}
        with torch.inference_mode():
            for one in contenders(bench, runs / SCORED, runs, searched):
                both = one.group in ("full", "specialist")
                measured[one.name] = measure(one, bench, runs, both)
            cells = timed(list(measured.values()), bench, options.repeats)
        facts = device_facts(torch.device("cpu"), torch.float32)
    result = result_of(measured, cells, runs)
    result |= {"device": facts, "runtime": {"onnxruntime": onnxruntime.__version__}}
    result |= {"repeats": options.repeats, "evaluations": options.evaluations}
    result["crowding"] = crowding(load_before, os.cpu_count() or 1, facts["threads"])
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "imdb.json", result)
    write_page(options.out)
    print(json.dumps({"gate": result["gate"], "rows": len(measured["full"].correct)}))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
