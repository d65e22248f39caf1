"""Question answering by Drop-and-Restore: MiniLM-L6 on SQuAD, by shapes of lengths.

A plain model is fine-tuned on ``train_subset`` and ``devsplit_train``; a supernet goes on from it for as
many steps, taught by it and by the answers. Both are cut in two shapes, every block alike or behind the first
third of the blocks, and searched; a part of ``devsplit_eval`` (whole contexts) chooses, the other scores.
Some of these are articles of SQuAD's development set, so the numbers are no SQuAD scores. What was stopped
goes on, what is finished is used again. The last line is one JSON object.

    python scripts/squad_minilm.py --data path/to/squad_v1.1 --out results/squad_minilm/shapes
"""

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from imdb_train import Trainings
from matplotlib import rc_context
from matplotlib.figure import Figure

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.latency.clock import device_facts
from ldsearch.options import Evolve, TrainSupernet
from ldsearch.reports.style import STYLE, Label, place_labels, save_figure, series
from ldsearch.search.controls import dearest, regular_line
from ldsearch.search.loop import StrategyContext
from ldsearch.search.run import plan_search, run_search
from ldsearch.search.spaces import search_space
from ldsearch.space.lengths import Shape
from ldsearch.subnet import Subnet
from ldsearch.supernet.saliency import LEARNED
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.goal import Goal
from ldsearch.work.progress import NO_PROGRESS

LINE = 6
RATE, TOKENS, STRIDE = 2e-4, 192, 64
KEPT = 6  # checkpoints whose mean a supernet is, of thirty
FIGURE = "cut.png"


def together(options: argparse.Namespace, name: str, files: Sequence[str], rows: int | None = None) -> Path:
    """The questions of some files as one file, all or as many as asked for, of every article alike."""
    path: Path = options.runs / f"{name}-{rows or 'all'}.jsonl"
    if not path.is_file():
        options.runs.mkdir(parents=True, exist_ok=True)
        lines: list[str] = []
        for file in files:
            with gzip.open(Path(options.data) / f"{file}.jsonl.gz", "rt", encoding="utf-8") as opened:
                lines.extend(opened)
        count = min(rows or len(lines), len(lines))
        path.write_text("".join(lines[at * len(lines) // count] for at in range(count)), encoding="utf-8")
    return path


def train(
    options: argparse.Namespace, kind: str, teaching: Mapping[str, Any], steps: int | None = None
) -> Path:
    """The folder of a training, finished now or before."""
    steps = options.steps if steps is None else steps
    folder: Path = options.runs / f"{kind}-{options.steps}"
    if not (folder / "supernet.json").is_file():
        print(f"training {kind}", flush=True)
        asked = TrainSupernet(
            task="questions",
            data=str(together(options, "train", ("train_subset", "devsplit_train"))),
            validation=str(together(options, "eval", ("devsplit_eval",), options.questions)),
            search_rows=options.choosing or "half",
            max_length=TOKENS,
            stride=STRIDE,
            trainer={
                # A processor with AVX2 alone emulates it.
                "bf16": torch.cuda.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX2",
                "max_steps": steps,
                "learning_rate": RATE,
                "disable_tqdm": "True",
                "save_strategy": "steps" if steps else "no",
                "save_steps": max(1, steps // 30),
                "logging_steps": 50,
            },
        )
        train_supernet(folder, replace(asked, **teaching))
    return folder


ARMS = ("plain", "supernet")
LINES = {"even": "every block alike", "late": "two blocks whole first"}
SHARES = (0.5, 0.6)  # budgets of the searches


def trained(options: argparse.Namespace) -> dict[str, Path]:
    """The folder of each arm that is asked for."""
    start = Trainings(options.runs).start()
    first = train(options, "first", {"model": str(start), "strategy": "plain"})
    lengths = {"model": str(first), "genes": "lengths", "token_score": LEARNED, "plain_share": 0.0}
    taught = {**lengths, "teacher": str(first), "label_share": 0.5, "average_last": KEPT}
    folders = {"plain": train(options, "plain", lengths, steps=0)}  # its token score alone is fitted
    return folders if options.plain_alone else {**folders, "supernet": train(options, "supernet", taught)}


def lines(bench: Bench) -> dict[str, list[Subnet]]:
    """Sub-networks of each shape, their costs evenly spread, and the dearest within each share."""
    space = search_space(bench, genes="lengths", widen=True)
    full = float(bench.macs([bench.full])[0])
    found = {}
    for name, shape in (("even", Shape.EVEN), ("late", Shape.LATE)):
        context = StrategyContext(space, bench.macs, shape=shape)
        within = [subnet for share in SHARES for subnet in dearest(context, share * full)]
        found[name] = list(dict.fromkeys([*regular_line(context, LINE), *within]))
    return found


def found(bench: Bench, folder: Path, evaluations: int) -> dict[float, Subnet]:
    """What a search takes at each share of the MACs."""
    how = Evolve(evaluations=evaluations, genes="lengths", widen=True)
    spec = replace(plan_search(bench, how), controlled=False)
    trials = run_search(bench, folder, spec, Goal.parse(), how, NO_PROGRESS).result.trials
    full = float(bench.macs([bench.full])[0])
    best = {}
    for share in SHARES:
        within = [trial for trial in trials if trial.costs["macs"] <= share * full]
        best[share] = max(within, key=lambda trial: trial.score.value).subnet
    return best


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Scores of every arm's lines and findings, and their differences to the plain full model."""
    benches = {name: Bench.open(folder) for name, folder in trained(options).items()}
    first = benches["plain"]
    assert first.held_out is not None
    whole, macs = first.held_out.statistics(first.full), float(first.macs([first.full])[0])
    rows = []
    for arm, bench in benches.items():
        assert bench.held_out is not None
        wanted = [(shape, subnet) for shape, line in lines(bench).items() for subnet in line]
        wanted += [("full", bench.full)]
        if options.evaluations:
            searched = found(bench, options.runs / f"{arm}-search", options.evaluations)
            wanted += [(f"searched, {share}", subnet) for share, subnet in searched.items()]
        bench.held_out([subnet for _, subnet in wanted])  # together, they share their first blocks
        for shape, subnet in wanted:
            own = bench.held_out.statistics(subnet)
            rows.append(
                {
                    "arm": arm,
                    "shape": shape,
                    "macs_share": round(float(bench.macs([subnet])[0]) / macs, 4),
                    "subnet": subnet.describe(),
                    "f1": bench.score(own).value,
                    "minus_full": asdict(bench.difference(own, whole)),
                }
            )
            print(rows[-1], flush=True)
    return {
        "question": "F1 on contexts that neither trained nor chose anything",
        "metric": first.task.metric.name,
        "examples": first.held_out.examples,
        "steps": options.steps,
        "evaluations": options.evaluations,
        "rows": rows,
        "facts": device_facts(first.supernet.model.device, first.supernet.model.dtype),
        "versions": versions(),
    }


def in_points(found: Mapping[str, float]) -> str:
    """A difference of F1 with its interval."""
    mean, low, high = (100 * found[key] for key in ("mean", "low", "high"))
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def page(result: Mapping[str, Any]) -> str:
    """The table: arms and shapes."""
    head = ["model", "shape", "MACs", "F1", "less the plain full model"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in result["rows"]:
        shape, gap = LINES.get(row["shape"], row["shape"]), in_points(row["minus_full"])
        lines.append(f"| {row['arm']} | {shape} | {row['macs_share']:.3f} | {100 * row['f1']:.2f} | {gap} |")
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """F1 of every arm and shape by the share of the full model's MACs."""
    with rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes, labels = figure.subplots(), []
        there = {row["arm"] for row in rows}
        drawn = [(arm, shape) for shape in LINES for arm in ARMS if arm in there]
        for index, (arm, shape) in enumerate(drawn):
            own = [row for row in rows if (row["arm"], row["shape"]) == (arm, shape)]
            # The space's smallest is the same in every shape.
            own = sorted(own, key=lambda row: row["macs_share"])[1:]
            shares, scores = [row["macs_share"] for row in own], [100 * row["f1"] for row in own]
            look = series(index)
            axes.plot(shares, scores, **look)
            labels.append(Label(f"{arm}, {LINES[shape]}", shares, scores, look["color"], look["marker"]))
        axes.set(xlabel="share of the full model's MACs", ylabel="F1")
        place_labels(axes, labels)
        return figure


def main() -> None:
    """Train, cut, search, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with SQuAD")
    parser.add_argument("--out", type=Path, required=True, help="where squad_minilm.json and table.md go")
    parser.add_argument("--runs", type=Path, default=Path("runs/squad_minilm"), help="where models go")
    parser.add_argument("--steps", type=int, default=900, help="of the plain model, and of each supernet")
    parser.add_argument("--questions", type=int, help="of the evaluation articles (default: all)")
    parser.add_argument("--choosing", type=int, help="of them that choose (default: half)")
    parser.add_argument("--plain-alone", action="store_true", help="train no supernet")
    parser.add_argument("--evaluations", type=int, default=60, help="of each search; 0: none")
    options = parser.parse_args()
    result = measured(options)
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "squad_minilm.json", result)
    (options.out / "table.md").write_text(page(result), encoding="utf-8")
    save_figure(draw(result["rows"]), options.out / FIGURE)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
