"""The evidence of results/sst2_minilm: trains, searches and compares MiniLM-L6 supernets on SST-2.

Trainings go on where they were interrupted and every measurement is stored, so run it until it ends:

    python scripts/sst2_minilm.py --data path/to/sst2 --out results/sst2_minilm

Each supernet is searched twice: chosen on one half of SST-2's validation rows and scored on the other, and
the other way round. So every validation row is held out once, and all comparisons are paired over all of
them, after a mean over seeds. The last line is one JSON object.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sst2_minilm_page import write_page
from sst2_minilm_train import RATES, arguments, how, train_all

from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import BudgetError
from ldsearch.options import Evolve
from ldsearch.reports.held_out import area_terms
from ldsearch.runs.run import read_json
from ldsearch.search.loop import SearchResult
from ldsearch.subnet import Subnet
from ldsearch.trials.budget import Budget
from ldsearch.trials.goal import AtLeast, MostAccurate
from ldsearch.trials.intervals import Statistics, paired_bootstrap, weighted_sum
from ldsearch.trials.trial import Trial

DIRECTIONS = ("search", "report")  # what a search chooses on; the other half scores
SHARES = np.round(np.arange(0.40, 0.921, 0.02), 2)
BASELINES = ("plain", "equal-macs")

StatisticsOf = Callable[[Subnet], Statistics]


def one_direction(folders: Mapping[str, list[Path]], seed: int, chosen_on: str, evaluations: int) -> dict:
    """Search one supernet on one half; per-example statistics on the other half, and what was chosen."""
    bench = Bench.open(folders["lengthdrop"][seed], chosen_on)
    swap = "" if chosen_on == "search" else "-swap"
    name = f"{bench.folder.name}-evolve{swap}"
    outcome = evolve(
        bench,
        bench.folder.parent / name,
        Evolve(strategy="nsga", genes="lengths", evaluations=evaluations, seed=seed),
    )
    assert bench.held_out is not None
    held = bench.held_out.statistics
    results = {"evolve": outcome.result, **outcome.controls}
    full = outcome.result.trials[0]
    low = max(result.frontier[0].costs["macs"] for result in results.values())
    high = full.costs["macs"]
    areas = {name: in_area(result.frontier, held, low, high) for name, result in results.items()}
    curves = {name: curve(result.frontier, full, held) for name, result in results.items()}
    fulls = {"supernet": held(full.subnet)}
    standard = {}
    for kind in BASELINES:
        other = Bench.open(folders[kind][seed], bench.held_out.split)
        statistics = other.evaluator.statistics
        areas[f"{kind} cut"] = in_area(outcome.result.frontier, statistics, low, high)
        curves[f"{kind} cut"] = curve(outcome.result.frontier, full, statistics)
        fulls[kind] = statistics(full.subnet)
        assert other.held_out is not None
        standard[kind] = float(other.held_out.statistics(full.subnet).mean())
    takes = {
        "most accurate": MostAccurate(),
        "at least full": AtLeast(None),
        "at least plain": AtLeast(standard["plain"]),
    }
    return {
        "areas": areas,
        "curves": curves,
        "fulls": fulls,
        "rows": {name: chosen(take, outcome.result, held) for name, take in takes.items()},
        "iterations": iterations(outcome.result),
        "control_areas": {
            name: result.areas[-1] for name, result in outcome.controls.items() if result.areas
        },
        "trials": {name: len(result.trials) for name, result in results.items()},
        "optimism": outcome.held_out.optimism if outcome.held_out else None,
        "cheapest_share": low / high,
    }


def in_area(frontier: list[Trial], statistics_of: StatisticsOf, low: float, high: float) -> Statistics:
    """Each example's part in the area, shape (examples,): accuracy is a mean, and so is the area."""
    return weighted_sum(area_terms(frontier, statistics_of, low, high))


def curve(frontier: list[Trial], full: Trial, statistics_of: StatisticsOf) -> list[float]:
    """Held-out accuracy of the choice at each budget of ``SHARES``."""
    choices = [Budget.parse(f"{share}").choose(frontier, full) for share in SHARES]
    return [float(statistics_of(trial.subnet).mean()) for trial in choices]


def chosen(take: AtLeast | MostAccurate, result: SearchResult, held: StatisticsOf) -> dict[str, Any] | None:
    """The sub-network to take: its costs, its score where it was chosen, its held-out statistics."""
    full = result.trials[0]
    try:
        trial = take.choose(result.candidates, full)
    except BudgetError:
        return None
    return {
        "subnet": trial.subnet.describe(),
        "macs_share": trial.costs["macs"] / full.costs["macs"],
        "padded_share": trial.costs["padded_macs"] / full.costs["padded_macs"],
        "score": trial.score.value,
        "held_out": held(trial.subnet),
    }


def iterations(result: SearchResult) -> dict[str, list[float]]:
    """Area under the frontier and evaluations so far, after each generation."""
    generations = [trial.generation for trial in result.trials[1:]]
    counts = np.cumsum(np.bincount(generations)) + 1
    return {"evaluations": counts.tolist(), "area": result.areas}


def gather(directions: list[list[dict]], part: str, name: str) -> Statistics:
    """Per-example statistics, both directions one after the other, mean over seeds."""
    return np.mean([np.concatenate([d[part][name] for d in both]) for both in directions], axis=0)


def chosen_row(directions: list[list[dict]], name: str) -> dict[str, Any]:
    """Means of what was taken, and their difference to plain fine-tuning on the very same runs."""
    flat = [direction for both in directions for direction in both]
    there = [d for d in flat if d["rows"][name] is not None]
    row: dict[str, Any] = {"found": len(there), "of": len(flat)}
    if not there:
        return row
    for key in ("macs_share", "padded_share", "score"):
        row[key] = float(np.mean([d["rows"][name][key] for d in there]))
    row["held_out"] = float(np.mean([d["rows"][name]["held_out"].mean() for d in there]))
    row["plain"] = float(np.mean([d["fulls"]["plain"].mean() for d in there]))
    differences = []
    for half in zip(*directions, strict=True):
        seeds = [d["rows"][name]["held_out"] - d["fulls"]["plain"] for d in half if d["rows"][name]]
        if seeds:
            differences.append(np.mean(seeds, axis=0))
    paired = np.concatenate(differences)
    row["minus plain"] = asdict(paired_bootstrap(paired, np.zeros_like(paired)))
    return row


def summarise(directions: list[list[dict]]) -> dict[str, Any]:
    """Means, differences and intervals over every validation row."""
    areas = {name: gather(directions, "areas", name) for name in directions[0][0]["areas"]}
    fulls = {name: gather(directions, "fulls", name) for name in directions[0][0]["fulls"]}
    differences = {
        **{
            f"area: evolve - {name}": asdict(paired_bootstrap(areas["evolve"], area))
            for name, area in areas.items()
            if name != "evolve"
        },
        **{
            f"full: supernet - {name}": asdict(paired_bootstrap(fulls["supernet"], fulls[name]))
            for name in BASELINES
        },
    }
    flat = [direction for both in directions for direction in both]
    rows = {name: chosen_row(directions, name) for name in flat[0]["rows"]}
    return {
        "areas": {name: float(area.mean()) for name, area in areas.items()},
        "fulls": {name: float(full.mean()) for name, full in fulls.items()},
        "fulls_by_seed": {
            name: [float(np.concatenate([d["fulls"][name] for d in both]).mean()) for both in directions]
            for name in fulls
        },
        "differences": differences,
        "rows": rows,
        "curves": {name: np.array([d["curves"][name] for d in flat]).tolist() for name in flat[0]["curves"]},
        "shares": SHARES.tolist(),
        "iterations": [d["iterations"] for d in flat],
        "control_areas": [d["control_areas"] for d in flat],
        "trials": [d["trials"] for d in flat],
        "optimism": [d["optimism"] for d in flat],
        "cheapest_share": [d["cheapest_share"] for d in flat],
        "examples": len(areas["evolve"]),
    }


def main() -> None:
    """Train what is missing, search, compare, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where sst2_minilm.json goes")
    parser.add_argument("--evaluations", type=int, default=80)
    options = parser.parse_args()
    folders = train_all(options)
    directions = []
    for seed in range(options.seeds):
        both = []
        for chosen_on in DIRECTIONS:
            print(f"searching seed {seed}, chosen on the {chosen_on} rows", flush=True)
            both.append(one_direction(folders, seed, chosen_on, options.evaluations))
        directions.append(both)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "question": "supernet, search and controls on SST-2 with MiniLM-L6, all on held-out rows",
        "models": {kind: [describe(folder) for folder in found] for kind, found in folders.items()},
        "seeds": options.seeds,
        "rates": list(RATES),
        "evaluations": options.evaluations,
        **summarise(directions),
        "versions": versions(),
    }
    write_json(options.out / "sst2_minilm.json", result)
    write_page(options.out)
    print(json.dumps({key: result[key] for key in ("areas", "fulls", "differences", "rows")}))


def describe(folder: Path) -> dict[str, Any]:
    """How a model was trained."""
    record = read_json(folder / "supernet.json")
    marker = folder / "seconds.json"
    seconds = json.loads(marker.read_text()) if marker.is_file() else None
    steps, rate = how(folder)
    return {
        "name": folder.name,
        "steps": steps,
        "learning_rate": rate,
        "minutes": None if seconds is None else round(seconds / 60, 1),
        "splits": {name: split["examples"] for name, split in record["splits"].items()},
        "overlap": record["overlap"],
    }


if __name__ == "__main__":
    main()
