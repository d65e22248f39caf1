"""Question answering by Drop-and-Restore: MiniLM-L6 on SQuAD, a supernet and its plain model cut alike.

A plain model is fine-tuned on ``train_subset`` and ``devsplit_train``; a supernet goes on from it for as many
steps, taught by it and by the answers. Both are cut at constant ratios and scored on one half of
``devsplit_eval`` (whole contexts). Some of these are articles of SQuAD's development set, so the numbers are
no SQuAD scores. A training that was stopped goes on, finished ones are used again. The last line is one JSON
object.

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
from imdb_train import Trainings, fitted
from matplotlib import rc_context
from matplotlib.figure import Figure

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.evaluation import Evaluator
from ldsearch.options import TrainSupernet
from ldsearch.reports.style import STYLE, Label, place_labels, save_figure, series
from ldsearch.search.controls import constant_ratio_line
from ldsearch.search.loop import StrategyContext
from ldsearch.search.spaces import search_space
from ldsearch.supernet.saliency import LEARNED
from ldsearch.training.train_supernet import train_supernet

LINE = 6
RATE, TOKENS, STRIDE = 2e-4, 192, 64
KEPT = 6  # checkpoints whose mean a supernet is, of thirty
FIGURE = "cut.png"


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


NAMES = {
    "supernet": "supernet",
    "plain_learned": "plain, by the same score",
    "plain": "plain, by attention received",
}
AGAINST = {
    "plain_learned_minus_plain": "plain, one score less the other",
    "supernet_minus_plain_learned": "supernet less plain by the same score",
    "supernet_minus_its_full": "supernet less its full model",
    "supernet_minus_plain_full": "supernet less plain's full model",
}


def page(result: Mapping[str, Any]) -> str:
    """The page: all cut alike."""
    lines = [
        "# Question answering by Drop-and-Restore: MiniLM-L6 on SQuAD",
        "",
        "```",
        "python scripts/squad_minilm.py --data path/to/squad_v1.1 --out results/squad_minilm",
        "```",
        "",
        f"MiniLM-L6, windows of {TOKENS} tokens (stride {STRIDE}), rate {RATE:g}, no attention dropout. The",
        f"plain model: {result['steps']} steps of 32 windows on `train_subset` and `devsplit_train` (10,996",
        "questions). The supernet (lengths alone, the default bound, `--token-score learned`) goes on from",
        "it for as many sandwich steps, each pass taught by the plain model, frozen, and by the answers, and",
        f"is the mean of its last checkpoints. {result['examples']:,} questions of `devsplit_eval` score.",
        "Some articles are of SQuAD's development set: these are no SQuAD scores. F1 in points, 95% paired",
        "intervals, one seed.",
        "",
        f"| MACs | {' | '.join([*NAMES.values(), *AGAINST.values()])} |",
        f"|---|{'---|' * (len(NAMES) + len(AGAINST))}",
    ]
    for row in result["cut"]:
        scores = [f"{100 * row[name]:.2f}" for name in NAMES]
        differences = [in_points(row[name]) for name in AGAINST]
        lines.append(f"| {row['macs_share']:.3f} | {' | '.join([*scores, *differences])} |")
    lines += ["", f"![F1 against the share of the full model's MACs]({FIGURE})"]
    return "\n".join(lines) + "\n"


def draw(cut: Sequence[Mapping[str, Any]]) -> Figure:
    """F1 of all by the share of the full model's MACs."""
    with rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes, labels = figure.subplots(), []
        shares = [row["macs_share"] for row in cut]
        for index, name in enumerate(NAMES):
            scores, look = [row[name] for row in cut], series(index)
            axes.plot(shares, scores, **look)
            labels.append(Label(NAMES[name], shares, scores, look["color"], look["marker"]))
        axes.set(xlabel="share of the full model's MACs", ylabel="F1")
        axes.set_title("constant ratio of all blocks")
        place_labels(axes, labels)
        return figure


def in_points(found: Mapping[str, float]) -> str:
    """A difference of F1 with its interval."""
    mean, low, high = (100 * found[key] for key in ("mean", "low", "high"))
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def main() -> None:
    """Train, cut alike, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with SQuAD")
    parser.add_argument("--out", type=Path, required=True, help="where squad_minilm.json and README.md go")
    parser.add_argument("--runs", type=Path, default=Path("runs/squad_minilm"), help="where models go")
    parser.add_argument("--steps", type=int, default=900, help="of the plain model, and of the supernet")
    parser.add_argument("--questions", type=int, help="of the evaluation articles (default: all)")
    options = parser.parse_args()

    start = Trainings(options.runs).start()
    first = train(options, "plain", {"model": str(start), "strategy": "plain"})
    taught = {"model": str(first), "teacher": str(first), "label_share": 0.5, "average_last": KEPT}
    drawn = {"genes": "lengths", "token_score": LEARNED, "plain_share": 0.0}
    bench, plain = Bench.open(train(options, "learned", {**taught, **drawn})), Bench.open(first)
    rows, tokenizer = plain.task.encode("report", plain.tokenizer, TOKENS), plain.tokenizer
    evaluator = Evaluator(fitted(plain).eval(), plain.task, rows, split="report", tokenizer=tokenizer)
    assert bench.held_out is not None
    assert plain.held_out is not None
    line = constant_ratio_line(StrategyContext(search_space(bench, genes="lengths"), bench.macs), LINE)
    full = bench.macs([bench.full])[0]
    whole, first_whole = (one.held_out.statistics(bench.full) for one in (bench, plain))
    cut = []
    for subnet in dict.fromkeys([*line, bench.full]):
        own, other = (one.held_out.statistics(subnet) for one in (bench, plain))
        learned = evaluator.statistics(subnet)
        cut.append(
            {
                "macs_share": round(float(bench.macs([subnet])[0] / full), 4),
                "subnet": subnet.describe(),
                "supernet": bench.score(own).value,
                "plain": bench.score(other).value,
                "plain_learned": bench.score(learned).value,
                "supernet_minus_plain": asdict(bench.difference(own, other)),
                "supernet_minus_plain_learned": asdict(bench.difference(own, learned)),
                "plain_learned_minus_plain": asdict(bench.difference(learned, other)),
                "supernet_minus_its_full": asdict(bench.difference(own, whole)),
                "supernet_minus_plain_full": asdict(bench.difference(own, first_whole)),
            }
        )
        print(cut[-1], flush=True)
    result = {
        "question": "F1 on contexts that neither trained nor chose anything",
        "metric": bench.task.metric.name,
        "examples": bench.held_out.examples,
        "steps": options.steps,
        "cut": cut,
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "squad_minilm.json", result)
    (options.out / "README.md").write_text(page(result), encoding="utf-8")
    save_figure(draw(cut), options.out / FIGURE)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
