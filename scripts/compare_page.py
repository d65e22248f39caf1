"""Writes results/compare from what `ldsearch compare` left: a table and a figure for each supernet.

python scripts/compare_page.py --out results/compare runs/sst2-minilm-compare runs/lm-layerdrop-compare
"""

import argparse
import json
import shutil
from pathlib import Path

import pandas as pd

HEAD = """# Strategies side by side

```
{commands}
python scripts/compare_page.py --out results/compare {folders}
```

Scores are of rows that chose nothing, means over the seeds. In brackets: the gain over random search of
the same genes with as many evaluations, its 95% bootstrap interval over seeds and examples; for losses a
positive gain is a lower loss. F is what the search takes in passes of the full model over the rows that
choose, were its sub-networks run one by one; learning drop rates is a short training of its own and not in
it. A dash: nothing that cheap was found.
"""


def table(rows: pd.DataFrame) -> list[str]:
    """One line for each strategy."""
    budgets = sorted(rows["budget"].unique())
    lines = [
        f"| strategy | evaluations | F | {' | '.join(f'{budget:g}' for budget in budgets)} |",
        "|---" * (3 + len(budgets)) + "|",
    ]
    for strategy, own in rows.groupby("strategy", sort=False):
        cells = [cell(own[own["budget"] == budget].iloc[0]) for budget in budgets]
        first = own.iloc[0]
        lines.append(
            f"| {strategy} | {first['evaluations']:.0f} | {first['passes']:.1f} | {' | '.join(cells)} |"
        )
    return lines


def cell(row: "pd.Series[float]") -> str:
    """Score and gain."""
    if not row["seeds"]:
        return "-"
    if row["gain"] != row["gain"]:
        return f"{row['score']:.4f}"
    return f"{row['score']:.4f} ({row['gain']:+.4f}: {row['gain_low']:+.4f} to {row['gain_high']:+.4f})"


def command(folder: Path) -> str:
    """What made it, from its identity."""
    asked = json.loads((folder / "compare.json").read_text())["identity"]
    entries = [f"{e['strategy']}:{e['genes']}" if e["genes"] else e["strategy"] for e in asked["entries"]]
    budgets = ",".join(f"{budget:g}" for budget in asked["budgets"])
    supernet = folder.name.removesuffix("-compare")
    runs = " ".join(f"runs/{Path(run).name}" for run in asked.get("runs", ()))
    if not entries:
        return f"ldsearch compare {runs} --budget {budgets}"
    options = f"--evaluations {asked['evaluations']} --seeds {asked['seeds']} --budget {budgets}"
    first = " ".join(["ldsearch compare", *([runs] if runs else [f"--supernet runs/{supernet}"]), options])
    return " \\\n  ".join([first, *(f"--strategy {name}" for name in entries)])


def main() -> None:
    """Copy tables and figures, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    options.out.mkdir(parents=True, exist_ok=True)
    notes = options.out / "notes.md"
    lines = [
        HEAD.format(
            commands="\n".join(map(command, options.folders)),
            folders=" ".join(f"runs/{folder.name}" for folder in options.folders),
        )
    ]
    if notes.is_file():
        lines += [notes.read_text()]
    for folder in options.folders:
        name = folder.name.removesuffix("-compare")
        for kind in ("csv", "png"):
            shutil.copyfile(folder / f"compare.{kind}", options.out / f"{name}.{kind}")
        lines += [f"## {name}", ""]
        for supernet, rows in pd.read_csv(folder / "compare.csv").groupby("supernet", sort=False):
            first = rows.iloc[0]
            lines += [f"{supernet}: {first['metric']} on {first['examples']} examples.", ""]
            lines += [*table(rows[rows["limit"] == "evaluations"]), "", "With as much spent:", ""]
            lines += [*table(rows[rows["limit"] == "passes"]), ""]
        lines += [f"![Held-out scores]({name}.png)", ""]
    (options.out / "README.md").write_text("\n".join(lines), encoding="utf-8")
    print(json.dumps({"out": str(options.out), "supernets": len(options.folders)}))


if __name__ == "__main__":
    main()
