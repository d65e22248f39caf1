"""One translation model for nine depths: flexible depth, LayerDrop at equal cost, nine models of their own.

Wang, Xiao & Zhu 2020, Tables 1 and 2, at a scale for two cores: pre-norm 4 x 4 blocks, 128 wide, Multi30k
German to English. A plain teacher; what it makes of the training sources; from its weights, flexible depth
(nine tasks a step) and LayerDrop with nine accumulated batches, on distilled and on real targets; and for
each depth configuration a model of its own from scratch, on distilled targets. Every depth configuration is
scored in nats per target token and in BLEU of greedy decoding, on rows that neither trained nor chose
anything. Finished trainings and measurements are used again. The last line is one JSON object.

    python scripts/flexible_depth.py --data path/to/multi30k_de_en --out results/flexible_depth
"""

import argparse
import gzip
import itertools
import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

from ldsearch import Bench
from ldsearch.commands.distill_data import distill_data
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import DistillData, Evaluate, TrainSupernet
from ldsearch.search.grid import GridResult, load_grid, mean_difference, measure_grid
from ldsearch.space.assignments import divisors
from ldsearch.tasks import DataSource, load_task
from ldsearch.tasks.metrics import bleu_signature
from ldsearch.training.train_supernet import train_supernet

DEPTH, RATE = 4, 0.4
TASKS = len(divisors(DEPTH)) ** 2
TOKENS = 48


def rows(options: argparse.Namespace, count: int) -> str:
    """The first training rows."""
    path: Path = options.runs / f"train-{count}.jsonl"
    _copy(options, ["train"], path, count)
    return str(path)


def held_out(options: argparse.Namespace) -> str:
    """Validation and test rows, which are halved into search and report rows."""
    path: Path = options.runs / "held-out.jsonl"
    _copy(options, ["validation", "test"], path, None)
    return str(path)


def _copy(options: argparse.Namespace, names: list[str], path: Path, count: int | None) -> None:
    options.runs.mkdir(parents=True, exist_ok=True)
    lines = []
    for name in names:
        with gzip.open(Path(options.data) / f"{name}.jsonl.gz", "rt", encoding="utf-8") as text:
            lines += list(text)[:count]
    path.write_text("".join(lines), encoding="utf-8")


@dataclass(frozen=True)
class How:
    """A training strategy, its optimizer steps, their learning rate, and the batches of a step."""

    strategy: str
    steps: int
    rate: float
    batches: int = 1


def train(options: argparse.Namespace, name: str, data: str, start: Path | None, how: How) -> Path:
    """The folder of a training, finished now or before."""
    folder: Path = options.runs / name
    if not (folder / "supernet.json").is_file():
        print(f"training {name}", flush=True)
        train_supernet(
            folder,
            TrainSupernet(
                task="translation",
                data=data,
                validation=held_out(options),
                search_rows="half",  # scores are against real targets, not the teacher's
                model=None if start is None else str(start),
                strategy=how.strategy,
                layer_drop=(RATE,) if how.strategy == "layerdrop" else None,
                max_length=TOKENS,
                trainer={
                    "bf16": True,
                    "max_steps": how.steps,
                    "learning_rate": how.rate,
                    "disable_tqdm": "True",
                    "save_strategy": "steps",
                    "save_steps": 100,
                    "logging_steps": 50,
                    "gradient_accumulation_steps": how.batches,
                },
            ),
        )
    return folder


def untrained(options: argparse.Namespace, teacher: Path, depths: tuple[int, int]) -> Path:
    """A random model of that depth, with the teacher's tokenizer."""
    folder: Path = options.runs / f"untrained-{depths[0]}-{depths[1]}"
    if not folder.is_dir():
        torch.manual_seed(0)
        config = AutoConfig.from_pretrained(teacher)
        config.encoder_layers, config.decoder_layers = depths
        staging = folder.with_suffix(".partial")
        AutoModelForSeq2SeqLM.from_config(config).save_pretrained(staging)
        AutoTokenizer.from_pretrained(teacher).save_pretrained(staging)
        shutil.move(staging, folder)
    return folder


def distilled(options: argparse.Namespace, teacher: Path, data: str) -> str:
    """The teacher's translations of the training sources."""
    out: Path = options.runs / "distilled.jsonl"
    how = DistillData(
        model=str(teacher),
        data=data,
        validation=held_out(options),
        out=out,
        beams=options.beams,
        min_target=0,
        max_source=TOKENS,
    )
    distill_data(how)
    return str(out)


def grids(options: argparse.Namespace, folder: Path, metric: str) -> GridResult:
    """Of one model's depths, on the teacher's report rows: which those are depends on the training rows."""
    place = options.runs / f"{folder.name}-{metric}"
    if (place / "statistics.npz").is_file():
        return load_grid(place)
    print(f"grid of {folder.name}, {metric}", flush=True)
    bench = Bench.open(folder, "report")
    source = DataSource(rows(options, options.teacher_rows), validation=held_out(options), search_rows="half")
    task = load_task("translation", source)
    how = Evaluate(folder=folder, metric=metric, max_target=TOKENS, limit=options.decoded)
    return measure_grid(replace(bench, task=task), place, how)


def joined(options: argparse.Namespace, folders: dict[tuple[int, int], Path], metric: str) -> GridResult:
    """The grid of models of their own: of each, its full depth."""
    parts = {key: grids(options, folder, metric) for key, folder in folders.items()}
    first = next(iter(parts.values()))
    return GridResult(
        first.metric, first.examples, {key: part.statistics[key] for key, part in parts.items()}
    )


def main() -> None:
    """Train, decode, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with Multi30k")
    parser.add_argument("--out", type=Path, required=True, help="where flexible_depth.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/flexible_depth"), help="where models go")
    parser.add_argument("--teacher-rows", type=int, default=12_000, help="that the teacher trains on")
    parser.add_argument("--rows", type=int, default=6_000, help="that all others train on")
    parser.add_argument("--steps", type=int, default=1_500, help="of the teacher")
    parser.add_argument("--updates", type=int, default=150, help="of flexible depth and of LayerDrop")
    parser.add_argument("--own", type=int, default=400, help="steps of each model of its own")
    parser.add_argument("--beams", type=int, default=1, help="of distillation")
    parser.add_argument("--decoded", type=int, default=400, help="report rows that are decoded for BLEU")
    options = parser.parse_args()

    whole, data = rows(options, options.teacher_rows), rows(options, options.rows)
    teacher = train(options, "teacher", whole, None, How("plain", options.steps, 1e-3))
    targets = {"distilled": distilled(options, teacher, data), "real": data}
    models: dict[str, Path] = {"vanilla": teacher}
    flexible = How("flexible-depth", options.updates, 5e-4)
    equal = How("layerdrop", options.updates, 5e-4, batches=TASKS)
    for kind, path in targets.items():
        models[f"flexible depth, {kind}"] = train(options, f"flexible-{kind}", path, teacher, flexible)
        models[f"LayerDrop, {kind}"] = train(options, f"layerdrop-{kind}", path, teacher, equal)
    own = {}
    for m, n in itertools.product(divisors(DEPTH), repeat=2):
        start, how = untrained(options, teacher, (m, n)), How("plain", options.own, 1e-3)
        own[m, n] = train(options, f"own-{m}-{n}", targets["distilled"], start, how)
    measured = {
        metric: {
            **{name: grids(options, folder, metric) for name, folder in models.items()},
            "their own, distilled": joined(options, own, metric),
        }
        for metric in ("nats", "bleu")
    }
    ours = "flexible depth, distilled"
    result = {
        "question": "every depth configuration of one model, on rows that neither trained nor chose anything",
        "setting": {
            name: getattr(options, name)
            for name in ("teacher_rows", "rows", "steps", "updates", "own", "beams", "decoded")
        },
        "scores": {
            metric: {
                name: {f"{m}-{n}": round(score, 4) for (m, n), score in grid.scores.items()}
                for name, grid in found.items()
            }
            for metric, found in measured.items()
        },
        "means": {
            metric: {name: round(sum(g.scores.values()) / TASKS, 4) for name, g in found.items()}
            for metric, found in measured.items()
        },
        "flexible_minus": {
            metric: {
                name: asdict(mean_difference(found[ours], grid))
                for name, grid in found.items()
                if name != ours
            }
            for metric, found in measured.items()
        },
        "bleu_signature": bleu_signature([["a reference"]]),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "flexible_depth.json", result)
    for name in ("flexible-distilled", "layerdrop-distilled", "teacher"):
        figure = options.runs / f"{name}-nats" / "grid.png"
        shutil.copy(figure, options.out / f"{name}.png")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
