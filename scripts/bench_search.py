"""How many times cheaper is our search than the reference's protocol, and is its answer as good?

The naive protocol runs the reference's own search (`--strategy lat`) one candidate at a time, in fp32, every
input padded to the reference length and every tensor as wide as the candidate's lengths; only its execution
differs from ours. It is counted in full, and timed and compared on a sample of its candidates; its area is
that of the same search on the executor. Finished searches are used again. The last line is one JSON object.

    OMP_NUM_THREADS=1 python scripts/bench_search.py --data path/to/data --part sst2 --out results/search
"""

import argparse
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_search_naive import NaivePipeline
from bench_search_train import TRAININGS, arguments

from ldsearch import Workbench
from ldsearch.costs.macs import Cost
from ldsearch.evaluation import Evaluator
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.intervals import Interval, Term, bootstrap, score_of
from ldsearch.length_space import LengthSpace
from ldsearch.pareto import staircase_area
from ldsearch.reports.held_out import area_terms
from ldsearch.search.constant_ratio import ConstantRatio
from ldsearch.search.evolve import Evolve
from ldsearch.search.loop import SearchResult, SearchStrategy, objectives, search
from ldsearch.search.random_search import RandomSearch
from ldsearch.search.reference import Reference
from ldsearch.search.surrogate import Surrogate
from ldsearch.supernet import Supernet
from ldsearch.trial import Trial
from ldsearch.workload import Workload

ENOUGH = 0.995  # of the reference search's final area


@dataclass(frozen=True)
class Part:
    """What is searched: drop bounds of the spaces, kind of lengths, and how many of the search rows."""

    bounds: tuple[str, ...]
    mode: str = "ratio"
    rows: int | None = None
    training: str = ""


PARTS = {
    "sst2": Part(("0.36", "0.2", "0.5"), training="sst2"),
    "sst2-absolute": Part(("0.36",), "absolute", training="sst2"),
    "squad": Part(("0.36",), training="squad"),
    "deep": Part(("0.2",), rows=400, training="deep"),
}


class Subject:
    """A supernet, the rows it is searched on, and what everything there costs."""

    def __init__(self, options: argparse.Namespace, part: Part) -> None:
        self.bench = Workbench.open(TRAININGS[part.training](options))
        encoded = self.bench.evaluator.encoded
        if part.rows is not None:
            chosen = np.sort(np.random.default_rng(0).permutation(len(encoded))[: part.rows])
            encoded = replace(encoded, features=tuple(encoded[int(row)] for row in chosen))
        self.encoded = encoded
        self.macs: Cost = self.bench.supernet.macs(encoded.workload)
        reference = self.bench.record.reference
        self.padded: Cost = self.bench.supernet.macs(Workload.padded(reference), name="padded_macs")
        self.full = float(self.macs([self.bench.full])[0])
        self.mode = part.mode

    def space(self, bound: str) -> LengthSpace:
        """16 levels; the last length pinned where the head reads the first token only."""
        supernet, record = self.bench.supernet, self.bench.record
        return LengthSpace.build(
            supernet.blocks,
            record.reference,
            bound,
            mode="absolute" if self.mode == "absolute" else "ratio",
            pin_last=supernet.reads_first,
        )

    def evaluator(self, options: argparse.Namespace, naive: bool = False) -> Evaluator:
        """One that knows nothing yet, and keeps nothing on disk."""
        supernet = self.bench.supernet
        if naive:
            supernet = Supernet(supernet.model)
            assert self.bench.supernet.pipeline is not None
            supernet.pipeline = NaivePipeline.of(self.bench.supernet.pipeline)
        return Evaluator(
            supernet,
            self.bench.task,
            self.encoded,
            split=self.bench.evaluator.split,
            tokenizer=self.bench.tokenizer,
            costs=(self.macs, self.padded),
            fingerprint="bench",
            cache_budget=int(options.cache * 2**30),
            pad_to=self.bench.record.reference if naive else None,
        )


def run(
    subject: Subject, evaluator: Evaluator, strategy: SearchStrategy, low: float, most: int | None = None
) -> tuple[SearchResult, dict[str, Any]]:
    """A search and what it took: after every generation its evaluations, full passes and area."""
    trace: list[tuple[int, float, float]] = []
    one = subject.full * len(subject.encoded)
    start = time.perf_counter()

    def note(result: SearchResult) -> None:
        spent = evaluator.counts.executed_macs / one
        trace.append((len(result.trials), round(spent, 2), area(result.trials, low)))
        print(f"  {strategy.name}: {trace[-1]}, {time.perf_counter() - start:.0f} s", flush=True)

    result = search(
        strategy,
        lambda subnets, generation: evaluator(subnets, generation),
        subject.bench.full,
        evaluations=most,
        patience=None,
        on_generation=note,
    )
    found = {
        "evaluations": len(result.trials),
        "area": area(result.trials, low),
        "full_passes": evaluator.counts.executed_macs / one,
        "one_by_one_full_passes": evaluator.counts.alone_macs / one,
        "padded_full_passes": padded_passes(subject, result.trials),
        "seconds": time.perf_counter() - start,
        "hits": evaluator.counts.hits,
        "block_evaluations": evaluator.counts.evaluations,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "trace": trace,
    }
    return result, found


def area(trials: Sequence[Trial], low: float) -> float:
    """Mean best search score from the space's smallest configuration's cost up to the full model's."""
    values = objectives(trials)
    return staircase_area(values[:, 0], -values[:, 1], low, float(values[0, 0]))


def padded_passes(subject: Subject, trials: Sequence[Trial]) -> float:
    """What the naive protocol executes for these trials, in unpadded full passes."""
    return float(subject.padded([trial.subnet for trial in trials]).sum() / subject.full)


def against_naive(
    subject: Subject, options: argparse.Namespace, lat: SearchResult, count: int
) -> dict[str, Any]:
    """The naive protocol on a sample of the search's candidates, evenly over their order."""
    evaluator = subject.evaluator(options, naive=True)
    places = np.unique(np.linspace(0, len(lat.trials) - 1, count).round().astype(int))
    sample = [lat.trials[place] for place in places]
    start = time.perf_counter()
    trials = evaluator([trial.subnet for trial in sample])
    seconds = time.perf_counter() - start
    gaps = [abs(a.score.value - b.score.value) for a, b in zip(sample, trials, strict=True)]
    per_pass = seconds / padded_passes(subject, trials)
    return {
        "sample": len(sample),
        "equal_scores": sum(gap < 1e-9 for gap in gaps),
        "largest_gap": max(gaps),
        "seconds_per_full_pass": per_pass,
    }


def held_out(subject: Subject, low: float, kinds: dict[str, list[list[Trial]]]) -> dict[str, Any]:
    """Areas on rows that chose nothing, means over seeds, and paired differences to ours."""
    evaluator = subject.bench.held_out
    assert evaluator is not None
    evaluator([trial.subnet for fronts in kinds.values() for front in fronts for trial in front])
    terms: dict[str, list[Term]] = {}
    for name, fronts in kinds.items():
        found = [area_terms(front, evaluator.statistics, low, subject.full) for front in fronts]
        terms[name] = [(weight / len(fronts), values) for one in found for weight, values in one]
    of_means = subject.bench.task.metric.of_means

    def minus(other: str) -> Interval:
        return bootstrap([*terms["surrogate"], *((-weight, v) for weight, v in terms[other])], of_means)

    return {
        "examples": evaluator.examples,
        "areas": {name: score_of(one, of_means) for name, one in terms.items()},
        "surrogate_minus": {name: asdict(minus(name)) for name in terms if name != "surrogate"},
    }


def search_bound(options: argparse.Namespace, subject: Subject, bound: str) -> dict[str, Any]:
    """Every seed's reference search and ours in one space."""
    space = subject.space(bound)
    low = float(subject.macs([space.smallest()])[0])
    runs: list[dict[str, Any]] = []
    fronts: dict[str, list[list[Trial]]] = {}
    naive: dict[str, Any] = {}
    for seed in range(options.seeds):
        print(f"bound {bound}, seed {seed}", flush=True)
        if seed < options.lat_seeds:
            lat, theirs = run(subject, subject.evaluator(options), Reference(space, subject.macs, seed), low)
            fronts.setdefault("lat", []).append(lat.frontier)
        evaluator = subject.evaluator(options)
        most = options.evaluations
        found, ours = run(subject, evaluator, Surrogate(space, subject.macs, seed), low, most)
        controls = {
            "nsga": Evolve(space, subject.macs, seed),
            "random": RandomSearch(space, subject.macs, seed, most - 1),
            "constant-ratio": ConstantRatio(space, subject.macs, most - 1),
        }
        results = {name: run(subject, evaluator, one, low, most) for name, one in controls.items()}
        for name, result in {"surrogate": found, **{k: v[0] for k, v in results.items()}}.items():
            fronts.setdefault(name, []).append(result.frontier)
        if not naive:
            naive = against_naive(subject, options, lat, options.naive)
        runs.append(
            {
                "seed": seed,
                "lat_seed": min(seed, options.lat_seeds - 1),
                "lat": theirs,
                "surrogate": ours,
                "areas": {name: one[1]["area"] for name, one in results.items()},
                **factors(theirs, ours, naive),
            }
        )
        print({k: v for k, v in runs[-1].items() if k not in ("lat", "surrogate")}, flush=True)
    return {
        "bound": bound,
        "space": space.size(),
        "naive": naive,
        "runs": runs,
        "held_out": held_out(subject, low, fronts),
    }


def factors(theirs: dict[str, Any], ours: dict[str, Any], naive: dict[str, Any]) -> dict[str, float | None]:
    """What the naive search takes over what ours does, at its end and where it has 99.5% of the area."""
    padded, alone = theirs["padded_full_passes"], theirs["one_by_one_full_passes"]
    wall = naive["seconds_per_full_pass"] * padded
    enough = [step for step in ours["trace"] if step[2] >= ENOUGH * theirs["area"]]
    return {
        "share_of_area": ours["area"] / theirs["area"],
        "times_fewer_macs": padded / ours["full_passes"],
        "times_fewer_than_one_by_one": alone / ours["full_passes"],
        "times_faster": wall / ours["seconds"],
        "lat_times_fewer_macs": padded / theirs["full_passes"],
        "lat_times_faster": wall / theirs["seconds"],
        "evaluations_to_enough": enough[0][0] if enough else None,
        "times_fewer_macs_to_enough": padded / enough[0][1] if enough else None,
    }


def main() -> None:
    """Search every space that has not been searched yet; write and print everything."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where the JSON files go")
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lat-seeds", type=int, default=3, help="searches of the reference; the last serves")
    parser.add_argument("--bound", action="append", help="only this of the part's")
    parser.add_argument("--evaluations", type=int, default=150, help="of our search and its controls")
    parser.add_argument("--naive", type=int, default=20, help="candidates that the naive protocol runs too")
    parser.add_argument("--cache", type=float, default=6, help="GiB for states of earlier generations")
    options = parser.parse_args()

    part = PARTS[options.part]
    subject = Subject(options, part)
    print(f"{options.part}: {len(subject.encoded)} rows, {subject.full:,.0f} MACs a row", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    spaces = []
    for bound in options.bound or part.bounds:
        path = options.out / f"{options.part}-{bound}.json"
        if not path.is_file():
            write_json(path, search_bound(options, subject, bound))
        spaces.append(json.loads(path.read_text()))
    print(
        json.dumps(
            {
                "part": options.part,
                "rows": len(subject.encoded),
                "threads": torch.get_num_threads(),
                "versions": versions(),
                "spaces": spaces,
            }
        )
    )


if __name__ == "__main__":
    main()
