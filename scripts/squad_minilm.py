"""Question answering by Drop-and-Restore: MiniLM-L6 on SQuAD, full, plain, cut at constant ratios, searched.

Trains on ``devsplit_train`` plainly and as a supernet, with the same steps; searches the supernet on one half
of a subset of ``devsplit_eval`` (whole contexts), and scores everything on the other half.
These are articles of SQuAD's development set, so the numbers are no SQuAD scores. Finished trainings and
measurements are used again. The last line is one JSON object.

    python scripts/squad_minilm.py --data path/to/squad_v1.1 --out results/squad_minilm
"""

import argparse
import gzip
import json
from dataclasses import asdict
from pathlib import Path

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

KINDS = {"plain": None, "lengthdrop": 0.4}
LINE = 6


def subset(options: argparse.Namespace) -> Path:
    """The first questions of the evaluation articles, all or as many as asked for."""
    path: Path = options.runs / f"eval-{options.questions}.jsonl"
    if not path.is_file():
        options.runs.mkdir(parents=True, exist_ok=True)
        with gzip.open(Path(options.data) / "devsplit_eval.jsonl.gz", "rt", encoding="utf-8") as rows:
            path.write_text("".join(list(rows)[: options.questions]), encoding="utf-8")
    return path


def train(options: argparse.Namespace, kind: str) -> Path:
    """The folder of a training, finished now or before."""
    folder: Path = options.runs / kind
    if not (folder / "supernet.json").is_file():
        print(f"training {kind}", flush=True)
        train_supernet(
            folder,
            TrainSupernet(
                task="questions",
                data=str(Path(options.data) / "devsplit_train.jsonl.gz"),
                validation=str(subset(options)),
                model=str(minilm()),
                strategy=kind,
                max_length=192,
                stride=64,
                plain_share=KINDS[kind],
                trainer={
                    "bf16": True,
                    "max_steps": options.steps,
                    "learning_rate": 2e-4,
                    "disable_tqdm": "True",
                    "save_strategy": "steps",
                    "save_steps": 100,
                    "logging_steps": 50,
                },
            ),
        )
    return folder


def main() -> None:
    """Train, search, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with SQuAD")
    parser.add_argument("--out", type=Path, required=True, help="where squad_minilm.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/squad_minilm"), help="where models go")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--questions", type=int, default=800, help="of the evaluation articles")
    parser.add_argument("--evaluations", type=int, default=16)
    options = parser.parse_args()

    plain, bench = (Bench.open(train(options, kind)) for kind in KINDS)
    assert bench.held_out is not None
    assert plain.held_out is not None
    line = constant_ratio_line(StrategyContext(search_space(bench, genes="lengths"), bench.macs), LINE)
    full = bench.macs([bench.full])[0]
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
                "supernet_minus_its_full": asdict(
                    bench.difference(own, bench.held_out.statistics(bench.full))
                ),
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
        "cut": cut,
        "searched": searched,
        "gains": {name: asdict(gain) for name, gain in outcome.held_out.gains.items()},
        "in_words": outcome.held_out.describe(),
        "evaluations": len(outcome.result.trials),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "squad_minilm.json", result)
    for name in ("frontier.csv", "frontier.png"):
        (options.out / name).write_bytes((outcome.folder / name).read_bytes())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
