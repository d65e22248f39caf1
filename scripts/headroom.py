"""How much could a perfect search win? Thousands of sub-networks of one SST-2 supernet, scored twice.

    python scripts/headroom.py --data path/to/sst2 --runs runs/headroom --out results/headroom

10,000 training rows are held out of a training made for this; half of them choose and the other half scores,
then the other way round. Hours on two cores; trainings go on where they were stopped and every measurement is
stored, so run it until it ends. The last line is one JSON object.
"""

import argparse
import itertools
import json
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sst2_minilm_train import arguments, train

from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError
from ldsearch.options import Evolve
from ldsearch.search.spaces import search_space
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import Statistics, paired_bootstrap

RATE = 1e-4  # of results/sst2_minilm, chosen there
BUDGETS = (0.3, 0.4, 0.5, 0.7)
DIRECTIONS = (("search", "report"), ("report", "search"))  # which half chooses, which scores


def prepare(options: argparse.Namespace) -> Path:
    """SST-2's training rows, some of them drawn as validation rows; what overlaps is dropped on loading."""
    folder: Path = options.runs / "data"
    if not (folder / "validation.jsonl").is_file():
        table = pd.read_json(Path(options.data) / "train.jsonl.gz", lines=True)
        held = np.zeros(len(table), dtype=bool)
        held[np.random.default_rng(0).permutation(len(table))[: options.rows]] = True
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("train", table[~held]), ("validation", table[held])):
            rows[["sentence", "label"]].to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    return folder


@dataclass(frozen=True)
class Kind:
    """Sub-networks of one kind.

    Args:
        name: What varies.
        subnets: All that are scored, the regular ones among them.
        regular: Those that follow a rule: constant ratio, evenly spaced blocks, or both.
        genes: As ``evolve`` calls them.
    """

    name: str
    subnets: tuple[Subnet, ...]
    regular: tuple[Subnet, ...]
    genes: str


def kinds(bench: Bench, count: int) -> list[Kind]:
    """Lengths (half of them from the reference code's search), every depth, and depth with lengths."""
    rng, folder = np.random.default_rng(0), bench.folder.parent
    found = []
    for genes in ("lengths", "depth+lengths"):
        space = search_space(bench, genes=genes)
        regular = dict.fromkeys(space.regular())
        drawn = dict(regular)
        if genes == "lengths":
            searched = evolve(bench, folder / "lat", Evolve(strategy="lat", evaluations=count // 2))
            drawn |= dict.fromkeys(trial.subnet for trial in searched.result.trials)
        while len(drawn) < min(count, space.size()):
            drawn[space.sample(rng)] = None
        found.append(Kind(genes, tuple(drawn), tuple(regular), genes))
    blocks = range(bench.supernet.blocks)
    every = [Subnet.of_encoder(kept) for n in blocks for kept in itertools.combinations(blocks, n + 1)]
    even = tuple(search_space(bench, genes="depth").regular())
    return [found[0], Kind("depth", tuple(dict.fromkeys([*every, *even])), even, "depth"), found[1]]


@dataclass(frozen=True)
class Half:
    """One half of the held-out rows.

    Args:
        bench: The supernet with them.
    """

    bench: Bench

    def statistics(self, subnet: Subnet) -> Statistics:
        """1 for each row that is labelled right."""
        return self.bench.evaluator.statistics(subnet)

    def within(self, subnets: Sequence[Subnet], budget: float) -> list[Subnet]:
        """Those that a share of the full model's MACs pays for."""
        limit = budget * self.bench.macs([self.bench.full])[0]
        return [one for one, macs in zip(subnets, self.bench.macs(subnets), strict=True) if macs <= limit]

    def best(self, subnets: Sequence[Subnet]) -> Subnet | None:
        """The most accurate on these rows; of equals the first."""
        return max(subnets, key=lambda one: float(self.statistics(one).mean()), default=None)


def scored(folder: Path, split: str, subnets: Sequence[str]) -> None:
    """Measure what is not known on one half, in a process beside the other one's."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(DIRECTIONS)))
    done, every = itertools.count(1), max(1, len(subnets) // 20)

    def told(trial: object) -> None:
        if (number := next(done)) % every == 0:
            print(f"{split} rows: {number} of {len(subnets)}", flush=True)

    Bench.open(folder, split).evaluator([Subnet.from_json(one) for one in subnets], on_trial=told)


def gains(
    kind: Kind, halves: Mapping[str, Half], budget: float, base: Kind, evaluations: int
) -> dict[str, Any] | None:
    """What choosing wins over constant ratio at a budget, over both directions.

    ``perfect``: the best of all on the rows that choose, scored on the others. ``ours``: the same of what the
    default search measured in so many evaluations. ``regular``: the same of the regular ones of this kind.
    ``bound``: the best of all on the very rows that score.
    """
    parts: dict[str, list[Statistics]] = {}
    for chooses, scores in DIRECTIONS:
        choosing, scoring = halves[chooses], halves[scores]
        constant = choosing.best(choosing.within(base.regular, budget))
        if constant is None:
            return None
        named = {
            "perfect": choosing.best(choosing.within(kind.subnets, budget)),
            "ours": choosing.best(choosing.within(ours(kind, choosing, evaluations), budget)),
            "regular": choosing.best(choosing.within(kind.regular, budget)),
            "bound": scoring.best(choosing.within(kind.subnets, budget)),
        }
        for name, subnet in named.items():
            if subnet is None:
                return None
            difference = scoring.statistics(subnet) - scoring.statistics(constant)
            parts.setdefault(name, []).append(difference)
    joined = {name: np.concatenate(both) for name, both in parts.items()}
    return {name: asdict(paired_bootstrap(one, np.zeros_like(one))) for name, one in joined.items()}


def ours(kind: Kind, half: Half, evaluations: int) -> list[Subnet]:
    """What the default search measures on these rows."""
    genes = None if kind.genes == "lengths" else kind.genes
    folder = half.bench.folder.parent / f"surrogate-{kind.genes}-{half.bench.evaluator.split}"
    outcome = evolve(half.bench, folder, Evolve(evaluations=evaluations, genes=genes))
    return [trial.subnet for trial in outcome.result.trials]


def write_page(result: Mapping[str, Any], out: Path) -> None:
    """``README.md`` in the folder, with the command that makes it."""
    said = result["options"]
    own = "".join(f" --{name} {said[name]}" for name in ("rows", "configurations", "evaluations"))
    lines = [
        "# How much could a perfect search win?",
        "",
        "```",
        f"python scripts/headroom.py --data path/to/sst2 --runs runs/headroom --out results/headroom{own}",
        "```",
        "",
        f"SST-2, MiniLM-L6, one supernet trained without {result['rows']:,} training rows. Half of them",
        "choose, the other half scores, both ways round; differences to the best constant ratio that the",
        "budget pays for, chosen on the same rows, in points with 95% paired intervals. *Perfect*: the best",
        "of all that were scored. *Ours*: the best of what the default search measures in",
        f"{said['evaluations']} evaluations. *Regular*: the best that follows a rule. *Bound*: the best on",
        "the very rows that score; a search may have measured others.",
    ]
    for name, kind in result["kinds"].items():
        lines += ["", f"## {name.capitalize()}: {kind['subnets']:,} sub-networks", ""]
        lines += ["| MACs | perfect | ours | regular | bound |", "|---|---|---|---|---|"]
        for budget, gain in kind["gains"].items():
            if gain is None:
                lines.append(f"| {budget} | none that cheap | | | |")
                continue
            cells = [
                "{:+.2f} ({:+.2f} to {:+.2f})".format(
                    *(100 * gain[way][part] for part in ("mean", "low", "high"))
                )
                for way in ("perfect", "ours", "regular")
            ]
            lines.append(f"| {budget} | {' | '.join(cells)} | {100 * gain['bound']['mean']:+.2f} |")
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Train, score, compare, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(runs=Path("runs/headroom"))
    parser.add_argument("--out", type=Path, required=True, help="where headroom.json and README.md go")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows that are held out")
    parser.add_argument(
        "--configurations", type=int, default=2_000, help="of lengths, and of depth with lengths"
    )
    parser.add_argument(
        "--evaluations", type=int, default=150, help="of the search that is compared with a perfect one"
    )
    options = parser.parse_args()
    options.runs = options.runs.resolve()
    folder = prepare(options)
    own = argparse.Namespace(**{**vars(options), "data": str(folder)})
    supernet = train(own, "supernet", "lengthdrop", 0, RATE, options.steps)
    halves = {split: Half(Bench.open(supernet, split)) for split in ("search", "report")}
    asked = kinds(halves["search"].bench, options.configurations)
    every = list(dict.fromkeys(subnet.to_json() for kind in asked for subnet in kind.subnets))
    with ProcessPoolExecutor(len(halves), multiprocessing.get_context("spawn")) as pool:
        for told in [pool.submit(scored, supernet, split, every) for split in halves]:
            told.result()
    result: dict[str, Any] = {
        "rows": sum(half.bench.evaluator.examples for half in halves.values()),
        "kinds": {
            kind.name: {
                "subnets": len(kind.subnets),
                "gains": {
                    str(budget): gains(kind, halves, budget, asked[0], options.evaluations)
                    for budget in BUDGETS
                },
            }
            for kind in asked
        },
        "options": {
            name: getattr(options, name) for name in ("rows", "configurations", "evaluations", "steps")
        },
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "headroom.json", result)
    write_page(result, options.out)
    print(json.dumps(result["kinds"]))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
