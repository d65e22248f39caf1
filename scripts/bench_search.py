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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_search_subject import PARTS, Subject
from bench_search_train import arguments

from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.evaluation import Evaluator
from ldsearch.reports.held_out import area_terms
from ldsearch.search.controls import constant_ratio, random_search
from ldsearch.search.evolve import Evolve, Surrogate
from ldsearch.search.loop import SearchResult, SearchStrategy, StrategyContext, search
from ldsearch.search.reference import Reference
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import Interval, Term, bootstrap, score_of
from ldsearch.trials.pareto import staircase_area
from ldsearch.trials.trial import Score, Trial, pareto_front

ENOUGH = 0.995  # of the reference search's final area


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
    costs = [trial.costs["macs"] for trial in trials]
    return staircase_area(costs, [-trial.score.loss for trial in trials], low, costs[0])


def padded_passes(subject: Subject, trials: Sequence[Trial]) -> float:
    """What the naive protocol executes for these trials, in unpadded full passes."""
    return float(subject.padded([trial.subnet for trial in trials]).sum() / subject.full)


def against_naive(
    subject: Subject, options: argparse.Namespace, lat: Sequence[Trial], count: int
) -> dict[str, Any]:
    """The naive protocol on a sample of the search's candidates, evenly over their order."""
    evaluator = subject.evaluator(options, naive=True)
    places = np.unique(np.linspace(0, len(lat) - 1, count).round().astype(int))
    sample = [lat[place] for place in places]
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


def reference(
    options: argparse.Namespace, subject: Subject, bound: str, seed: int
) -> tuple[list[Trial], dict[str, Any]]:
    """The reference's search on the executor, run now or before: its trials, and what it took."""
    path = options.out / "lat" / f"{options.part}-{bound}-{seed}.json"
    if not path.is_file():
        space = subject.space(bound)
        low = float(subject.macs([space.smallest()])[0])
        found, took = run(
            subject, subject.evaluator(options), Reference(StrategyContext(space, subject.macs, seed)), low
        )
        measured = [(trial.subnet.to_json(), trial.score.value) for trial in found.trials]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"took": took, "trials": measured})
    stored = json.loads(path.read_text())
    subnets = [Subnet.from_json(text) for text, _ in stored["trials"]]
    metric, rows = subject.bench.task.metric, len(subject.encoded)

    def trial(subnet: Subnet, value: float, macs: float) -> Trial:
        score = Score(value, metric.higher_is_better)
        return Trial(subnet, metric.name, score, {"macs": macs}, rows, "search", 0, "bench")

    values = [value for _, value in stored["trials"]]
    return list(map(trial, subnets, values, subject.macs(subnets).tolist())), stored["took"]


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
            lat, theirs = reference(options, subject, bound, seed)
            fronts.setdefault("lat", []).append(pareto_front(lat))
        evaluator = subject.evaluator(options)
        most = options.evaluations
        context = StrategyContext(space, subject.macs, seed, most)
        found, ours = run(subject, evaluator, Surrogate(context), low, most)
        controls: dict[str, SearchStrategy] = {}
        if seed < options.control_seeds:
            controls = {
                "nsga": Evolve(context),
                "random": random_search(context),
                "constant-ratio": constant_ratio(context),
            }
        results = {name: run(subject, evaluator, one, low, most) for name, one in controls.items()}
        fronts.setdefault("surrogate", []).append(found.frontier)
        for name, (result, _) in results.items():
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
    parser.add_argument("--control-seeds", type=int, default=3, help="of the other strategies")
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
