"""Depth alone on SST-2: blocks of one supernet, every other or searched, beside blocks distilled alone.

    python scripts/recipe_depth.py --data path/to/sst2 --runs runs/recipe --out results/recipe/depth

Rows, plain model and compute are those of ``recipe.py --rung 1``. Two supernets draw depths alone: as
``train-supernet --genes depth`` draws them, and uniformly; both by the best recipe of that page. The
search is exhaustive: all sub-networks of two to four of the six blocks, on the 1,000 search rows. What
it chooses, and every other block, are then trained alone from the same plain model by the same recipe
for a third of a supernet's compute, and everything is scored on report rows, which chose nothing. What
is finished is used again; the last line is one JSON object.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from recipe import PLAIN_RATES, Rung, best_plain
from recipe_arms import ARMS, blocks_alone
from recipe_page import Scored, difference, kept
from sst2_minilm_train import arguments

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError
from ldsearch.subnet import Subnet

SUPERNETS = ("depth", "depth-uniform")
COUNTS = (2, 3, 4)
HALF = 3  # blocks of those trained alone

Blocks = tuple[int, ...]


def spread(count: int, blocks: int) -> Blocks:
    """So many blocks, evenly: every other one for half of them."""
    return tuple(i * blocks // count for i in range(count))


def label(blocks: Blocks) -> str:
    """Blocks as a name."""
    return "-".join(map(str, blocks))


def points(scored: Scored, blocks: Blocks) -> list[NDArray[np.float64]]:
    """Of one sub-network on each row, by seed."""
    return scored.of(label(blocks).__eq__, slice(None))


@dataclass(frozen=True)
class Depths:
    """Models of one rung, scored by their blocks.

    Args:
        rung: Rows, plain model, trainings.
        scores: Folder of what is right on each row.
        taught: What all start from.
        rows: Report rows.
    """

    rung: Rung
    scores: Path
    taught: Path
    rows: int

    def score(self, name: str, folder: Path, chosen: Sequence[Blocks], split: str = "report") -> Scored:
        """Those blocks of a model on a split."""
        task = Bench.open(self.taught, split).task
        rows = min(self.rows, len(task.rows(split)))
        subnets = {label(blocks): Subnet.of_encoder(blocks) for blocks in chosen}
        return kept(
            self.scores / f"{name}-{split}.npz",
            list(subnets),
            rows,
            lambda: (folder, self.rung.right(folder, subnets, [(task, rows)], split)),
        )

    def alone(self, blocks: Blocks) -> Scored:
        """Those blocks trained alone."""
        name = f"alone-{label(blocks)}"
        ARMS[name] = blocks_alone(blocks)
        return self.score(name, self.rung.train(name, 0, self.taught), [blocks])


def page(result: Mapping[str, Any]) -> str:
    """The page, but for what was learned."""
    lines = [
        "# Blocks of one supernet, and blocks distilled alone",
        "",
        "```",
        "python scripts/recipe_depth.py --data path/to/sst2 --runs runs/recipe --out results/recipe/depth",
        "```",
        "",
        f"SST-2, MiniLM-L6, every token kept. {result['rows']:,} report rows chose nothing; differences are",
        "paired, in points, with 90% intervals (each bound a one-sided one of 95%). One seed. The search",
        "tries all sub-networks of two, three and four blocks on 1,000 search rows. Supernets have equal",
        "compute, what is alone a third of it; all start from the plain model",
        f"({result['plain']:.2f} on the report rows).",
        "",
        "| supernet | full | its full model less plain |",
        "|---|---|---|",
    ]
    for name, row in result["supernets"].items():
        lines.append(f"| {name}: {ARMS[name].says} | {row['full']:.2f} | {cell(row['to plain'])} |")
    lines += [
        "",
        "| blocks | chosen by | supernet | accuracy | less plain | less every other block of it |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["nested"]:
        lines.append(
            f"| {row['blocks']} | {row['by']} | {row['supernet']} | {row['accuracy']:.2f} "
            f"| {cell(row['to plain'])} | {cell(row['to even']) if row['by'] == 'search' else ''} |"
        )
    lines += ["", "| alone | accuracy | less plain |", "|---|---|---|"]
    lines += [
        f"| {row['blocks']} | {row['accuracy']:.2f} | {cell(row['to plain'])} |" for row in result["alone"]
    ]
    lines += ["", "| supernet's | less | difference |", "|---|---|---|"]
    lines += [
        f"| {row['supernet']} {row['blocks']} | {row['alone']} alone | {cell(row['difference'])} |"
        for row in result["beside"]
    ]
    return "\n".join(lines) + "\n"


def cell(found: Mapping[str, float]) -> str:
    """A difference with its interval."""
    return f"{found['mean']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"


def compare(depths: Depths, blocks: int) -> dict[str, Any]:
    """Train, search, train alone, score."""
    every = [one for count in COUNTS for one in combinations(range(blocks), count)]
    whole, even = tuple(range(blocks)), {count: spread(count, blocks) for count in COUNTS}
    plain = points(depths.score("plain", best_plain(depths.rung, PLAIN_RATES[:2]), [whole]), whole)
    found, nested, supernets = {}, [], {}
    for name in SUPERNETS:
        folder = depths.rung.train(name, 0, depths.taught)
        search = depths.score(name, folder, every, "search")
        means = {one: float(np.mean(points(search, one))) for one in every}
        best = {
            count: max((one for one in every if len(one) == count), key=means.__getitem__) for count in COUNTS
        }
        report = depths.score(name, folder, list(dict.fromkeys([whole, *even.values(), *best.values()])))
        found[name] = (report, best, means[best[HALF]])
        full = points(report, whole)
        supernets[name] = {
            "full": float(np.mean(full)),
            "to plain": difference(full, plain),
            "search": {label(one): mean for one, mean in means.items()},
        }
        for count in COUNTS:
            for by, one in (("every other", even[count]), ("search", best[count])):
                mine = points(report, one)
                nested.append(
                    {
                        "supernet": name,
                        "blocks": label(one),
                        "by": by,
                        "accuracy": float(np.mean(mine)),
                        "to plain": difference(mine, plain),
                        "to even": difference(mine, points(report, even[count])),
                    }
                )
    # Of the two supernets the one whose choice is better on the search rows.
    searched = max(found.values(), key=lambda row: row[2])[1][HALF]
    specialists = {one: points(depths.alone(one), one) for one in dict.fromkeys([even[HALF], searched])}
    return {
        "rows": depths.rows,
        "versions": versions(),
        "plain": float(np.mean(plain)),
        "supernets": supernets,
        "nested": nested,
        "alone": [
            {"blocks": label(one), "accuracy": float(np.mean(mine)), "to plain": difference(mine, plain)}
            for one, mine in specialists.items()
        ],
        "beside": [
            {
                "supernet": name,
                "blocks": label(one),
                "alone": label(other),
                "difference": difference(points(report, one), mine),
            }
            for name, (report, best, _) in found.items()
            for one in dict.fromkeys([even[HALF], best[HALF]])
            for other, mine in specialists.items()
        ],
    }


def main() -> None:
    """Compare and write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(runs=Path("runs/recipe"), seeds=1)
    parser.add_argument("--out", type=Path, required=True, help="where depth.json and README.md go")
    parser.add_argument("--rows", type=int, default=5_000, help="report rows")
    options = parser.parse_args()
    rung = Rung((options.runs / "rung-1").resolve(), 3)
    rung.prepare(Path(options.data), 1.0)
    taught = rung.start(rung.plain(PLAIN_RATES[0]))
    depths = Depths(rung, options.out / "scores", taught, options.rows)
    result = compare(depths, Bench.open(taught, "search").supernet.blocks)
    write_json(options.out / "depth.json", result)
    (options.out / "README.md").write_text(page(result), encoding="utf-8")
    print(json.dumps({key: result[key] for key in ("alone", "beside")}))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
