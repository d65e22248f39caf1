"""Question answering by Drop-and-Restore: MiniLM-L6 on SQuAD, full, plain, cut at constant ratios, searched.

A plain model is fine-tuned on ``train_subset`` and ``devsplit_train``; a supernet goes on from it for as many
steps, taught by it and by the answers. Both are cut alike; the supernet is searched on one half of
``devsplit_eval`` (whole contexts), and everything is scored on the other half. Some of these are articles of
SQuAD's development set, so the numbers are no SQuAD scores. A training that was stopped goes on, finished
ones are used again. The last line is one JSON object.

    python scripts/squad_minilm.py --data path/to/squad_v1.1 --out results/squad_minilm
"""

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from sst2_minilm_train import minilm

from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.commands.options import Evolve, TrainSupernet
from ldsearch.commands.spaces import search_space
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import StrategyContext

LINE = 6
RATE, TOKENS, STRIDE = 2e-4, 192, 64
KEPT = 6  # checkpoints whose mean a supernet is, of thirty


def together(options: argparse.Namespace, name: str, files: Sequence[str], rows: int | None = None) -> Path:
    """The first questions of some files as one file, all or as many as asked for."""
    path: Path = options.runs / f"{name}-{rows or 'all'}.jsonl"
    if not path.is_file():
        options.runs.mkdir(parents=True, exist_ok=True)
        lines: list[str] = []
        for file in files:
            with gzip.open(Path(options.data) / f"{file}.jsonl.gz", "rt", encoding="utf-8") as opened:
                lines.extend(opened)
        path.write_text("".join(lines[:rows]), encoding="utf-8")
    return path


def train(options: argparse.Namespace, kind: str, teaching: Mapping[str, Any]) -> Path:
    """The folder of a training, finished now or before."""
    folder: Path = options.runs / f"{kind}-{options.steps}"
    if not (folder / "supernet.json").is_file():
        print(f"training {kind}", flush=True)
        asked = TrainSupernet(
            task="questions",
            data=str(together(options, "train", ("train_subset", "devsplit_train"))),
            validation=str(together(options, "eval", ("devsplit_eval",), options.questions)),
            max_length=TOKENS,
            stride=STRIDE,
            trainer={
                "bf16": torch.backends.cpu.get_cpu_capability() != "AVX2",  # which emulates it
                "max_steps": options.steps,
                "learning_rate": RATE,
                "disable_tqdm": "True",
                "save_strategy": "steps",
                "save_steps": max(1, options.steps // 30),
                "logging_steps": 50,
            },
        )
        train_supernet(folder, replace(asked, **teaching))
    return folder


def page(result: Mapping[str, Any]) -> str:
    """The page: both models cut alike, and what the search found."""
    lines = [
        "# Question answering by Drop-and-Restore: MiniLM-L6 on SQuAD",
        "",
        "```",
        "python scripts/squad_minilm.py --data path/to/squad_v1.1 --out results/squad_minilm",
        "```",
        "",
        f"MiniLM-L6, windows of {TOKENS} tokens (stride {STRIDE}), rate {RATE:g}, two cores. The plain",
        f"model: {result['steps']} steps of 32 windows on `train_subset` and `devsplit_train` (10,996",
        "questions). The supernet (lengths alone, the default bound) goes on from it for as many sandwich",
        "steps, each pass taught by the plain model, frozen, and by the answers, and is the mean of its last",
        "checkpoints. Questions of `devsplit_eval` are halved by context:",
        f"{result['search_examples']:,} choose, the other {result['examples']:,} score here. Some articles",
        "are of SQuAD's development set: these are no SQuAD scores. F1 in points, 95% paired intervals, one",
        "seed.",
        "",
        "| MACs | supernet | plain, cut alike | supernet less plain | less its full model | less plain's |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["cut"]:
        differences = [row[f"supernet_minus_{other}"] for other in ("plain", "its_full", "plain_full")]
        lines.append(
            f"| {row['macs_share']:.3f} | {100 * row['supernet']:.2f} | {100 * row['plain']:.2f} "
            f"| {' | '.join(in_points(one) for one in differences)} |"
        )
    lines += [
        "",
        f"The search (NSGA-II, {result['evaluations']} sub-networks measured, controls included):",
        "",
        "| searched: MACs | F1 | less its full model |",
        "|---|---|---|",
    ]
    for row in result["searched"]:
        lines.append(
            f"| {row['macs_share']:.3f} | {100 * row['held_out_f1']:.2f} | {in_points(row['minus_full'])} |"
        )
    lines += ["", "| area of the search less that of | points |", "|---|---|"]
    lines += [f"| {name.replace('_', ' ')} | {in_points(gain)} |" for name, gain in result["gains"].items()]
    lines += ["", "![F1 against the share of the full model's MACs](frontier.png)"]
    return "\n".join(lines) + "\n"


def in_points(found: Mapping[str, float]) -> str:
    """A difference of F1 with its interval."""
    mean, low, high = (100 * found[key] for key in ("mean", "low", "high"))
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def main() -> None:
    """Train, search, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with SQuAD")
    parser.add_argument("--out", type=Path, required=True, help="where squad_minilm.json and README.md go")
    parser.add_argument("--runs", type=Path, default=Path("runs/squad_minilm"), help="where models go")
    parser.add_argument("--steps", type=int, default=600, help="of the plain model, and of the supernet")
    parser.add_argument("--questions", type=int, help="of the evaluation articles (default: all)")
    parser.add_argument("--evaluations", type=int, default=16)
    options = parser.parse_args()

    first = train(options, "plain", {"model": str(minilm()), "strategy": "plain"})
    taught = {"model": str(first), "teacher": str(first), "label_share": 0.5, "average_last": KEPT}
    plain = Bench.open(first)
    bench = Bench.open(train(options, "supernet", {**taught, "genes": "lengths", "plain_share": 0.0}))
    assert bench.held_out is not None
    assert plain.held_out is not None
    line = constant_ratio_line(StrategyContext(search_space(bench, genes="lengths"), bench.macs), LINE)
    full = bench.macs([bench.full])[0]
    whole, first_whole = (one.held_out.statistics(bench.full) for one in (bench, plain))
    cut = []
    for subnet in dict.fromkeys([*line, bench.full]):
        own, other = (one.held_out.statistics(subnet) for one in (bench, plain))
        cut.append(
            {
                "macs_share": round(float(bench.macs([subnet])[0] / full), 4),
                "subnet": subnet.describe(),
                "supernet": bench.score(own).value,
                "plain": bench.score(other).value,
                "supernet_minus_plain": asdict(bench.difference(own, other)),
                "supernet_minus_its_full": asdict(bench.difference(own, whole)),
                "supernet_minus_plain_full": asdict(bench.difference(own, first_whole)),
            }
        )
        print(cut[-1], flush=True)
    outcome = evolve(
        bench,
        options.runs / "evolve",
        Evolve(strategy="nsga", genes="lengths", evaluations=options.evaluations),
    )
    assert outcome.held_out is not None
    searched = [
        {
            "macs_share": round(float(row.trial.costs["macs"] / full), 4),
            "subnet": row.trial.subnet.describe(),
            "search_f1": row.trial.score.value,
            "held_out_f1": row.score,
            "minus_full": asdict(row.difference),
        }
        for row in outcome.held_out.rows
    ]
    result = {
        "question": "F1 on contexts that neither trained nor chose anything",
        "metric": bench.task.metric.name,
        "examples": bench.held_out.examples,
        "steps": options.steps,
        "search_examples": outcome.result.trials[0].examples,
        "cut": cut,
        "searched": searched,
        "gains": {name: asdict(gain) for name, gain in outcome.held_out.gains.items()},
        "in_words": outcome.held_out.describe(),
        "evaluations": len(outcome.result.trials),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "squad_minilm.json", result)
    (options.out / "README.md").write_text(page(result), encoding="utf-8")
    for name in ("frontier.csv", "frontier.png"):
        (options.out / name).write_bytes((outcome.folder / name).read_bytes())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
