"""Which way to train a supernet? Every change to the sandwich alone, at equal training compute, on SST-2.

    python scripts/recipe.py --data path/to/sst2 --runs runs/recipe --out results/recipe --rung 0.1

Training rows that no arm sees report; a share of the others (``--rung``) trains. All arms start from one
plain fine-tuning and may spend the multiply-accumulates of so many epochs of today's sandwich, teacher passes
counted. Scored: constant ratio of all blocks and of every other block, and depths at full length, at fixed
shares of the MACs, the same sub-networks for every arm; beside them plain fine-tuning at the best of
``--plain-rates`` by the search rows. What is right on each row lies in ``scores`` beside the page, so a later
run adds arms and seeds without the weights of these. What is finished is used again, so run it until it ends;
the last line is one JSON object.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from imdb_train import constant_ratio
from recipe_arms import ARMS, EVERY_OTHER, SPECIALIST, Arm, Averaging, Recipe
from recipe_page import FULL, HOW, Right, Scored, compared, kept, seeds_of, write_page
from safetensors.torch import load_file, save_file
from sst2_minilm_train import arguments, minilm
from transformers import set_seed

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError
from ldsearch.evaluation import Evaluator
from ldsearch.options import TrainSupernet
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_supernet
from ldsearch.supernet.saliency import LEARNED
from ldsearch.tasks import Task, load_task
from ldsearch.tasks.splits import draw_rows, fix_splits
from ldsearch.tasks.tables import DataSource
from ldsearch.training.checkpoints import load_weights
from ldsearch.training.distillation import Distillation
from ldsearch.training.estimate import step_work
from ldsearch.training.run import training_arguments
from ldsearch.training.strategies import Setting
from ldsearch.training.train_supernet import train_supernet
from ldsearch.training.trainer import SupernetTrainer

TOKENS, BATCH = 128, 32
REPORT_ROWS, SEARCH_ROWS = 10_000, 1_000
PLAIN_EPOCHS, PLAIN_RATES = 3, (1e-4, 2e-4, 5e-5, 2e-5)  # all arms start from that of the first
SHARES = tuple(round(share, 2) for share in np.arange(0.15, 1.001, 0.05))
DRAWS = 400  # steps whose mean cost is an arm's
FORWARD = 1 / 3  # of a forward and backward pass: backward takes twice the products
WEIGHTS, START = "weights.safetensors", "taught"


@dataclass(frozen=True)
class Rung:
    """Trainings and scores on one share of the rows.

    Args:
        runs: Folder of the rung.
        epochs: Of today's sandwich, whose compute every arm may spend.
    """

    runs: Path
    epochs: float

    def prepare(self, data: Path, share: float) -> None:
        """Fix the rows: report and search by groups of like text, then a share of the others to train."""
        folder = self.runs / "data"
        if (folder / "test.jsonl").is_file():
            return
        table = pd.read_json(data / "train.jsonl.gz", lines=True)
        held = np.zeros(len(table), dtype=bool)
        held[draw_rows(list(table["sentence"]), REPORT_ROWS + SEARCH_ROWS)] = True
        tables = {"train": table[~held], "search": table[held]}
        texts = {name: list(rows["sentence"]) for name, rows in tables.items()}
        splits = fix_splits(texts, search_rows=SEARCH_ROWS)
        folder.mkdir(parents=True, exist_ok=True)
        for role, name in (("train", "train"), ("search", "validation"), ("report", "test")):
            source, index = splits.rows[role]
            rows = tables[source].iloc[index][["sentence", "label"]]
            if role == "train":
                rows = rows.sample(frac=share, random_state=0)
            rows.to_json(folder / f"{name}.jsonl", orient="records", lines=True)

    def plain(self, rate: float) -> Path:
        """Plain fine-tuning, the best epoch by the search rows."""
        folder = self.runs / f"plain-{rate:g}"
        if not (folder / HOW).is_file():
            begun = time.perf_counter()
            options = TrainSupernet(
                data=str(self.runs / "data"),
                keep_overlap=True,  # the rows were fixed with their groups whole
                model=str(minilm()),
                strategy="plain",
                max_length=TOKENS,
                trainer={
                    **flags(rate),
                    "num_train_epochs": PLAIN_EPOCHS,
                    "eval_strategy": "epoch",
                    "load_best_model_at_end": True,
                    "metric_for_best_model": "accuracy",
                    "per_device_eval_batch_size": 64,
                },
            )
            if not (folder / "supernet.json").is_file():
                train_supernet(folder, options)
            write_json(folder / HOW, {"seconds": time.perf_counter() - begun, "rate": rate})
        return folder

    def start(self, plain: Path) -> Path:
        """What all arms start from: a plain model without dropout from then on."""
        folder = self.runs / START
        if not (folder / HOW).is_file():
            shutil.copytree(plain, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(HOW))
            config = json.loads((folder / "config.json").read_text())
            config |= {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
            write_json(folder / "config.json", config)
            shutil.copy(plain / HOW, folder)
        return folder

    def cost(self, bench: Bench, arm: Arm) -> float:
        """MACs of a step over those of a plain step: forward and backward passes, and a frozen teacher's."""
        recipe = recipe_of(bench, arm)
        return step_work(recipe, bench.macs, float(bench.macs([bench.full])[0]), steps=DRAWS)

    def train(self, name: str, seed: int, taught: Path) -> Path:
        """One arm, from the plain model, for the common compute; a finished one is left as it is."""
        folder, arm, spent = self.runs / f"{name}-{seed}", ARMS[name], time.perf_counter()
        if (folder / HOW).is_file():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench.open(taught, "train")
        whole = bench.task.encode("train", bench.tokenizer, TOKENS)
        steps = len(whole) / BATCH
        budget = self.epochs * steps * self.cost(bench, ARMS["default"])
        if arm.alone is not None:
            budget *= SPECIALIST
        # A frozen teacher reads every row once, before the first step.
        count = round((budget - (FORWARD * steps if arm.frozen else 0)) / self.cost(bench, arm))
        set_seed(seed)
        stock, _, _ = load_supernet(self.plain(PLAIN_RATES[0]) if arm.dropout else taught)
        student = Supernet(stock.model, arm.token_score)
        trainer = SupernetTrainer(
            student,
            recipe_of(bench, arm),
            training_arguments(
                folder, {**flags(arm.rate), "max_steps": count, "save_strategy": "no"}, seed=seed
            ),
            task=bench.task,
            train=whole,
            search=whole,
            tokenizer=bench.tokenizer,
            distillation=Distillation(arm.label_share),
            teacher=bench.supernet if arm.frozen else None,
            taught=whole if arm.frozen else None,
        )
        averaging = Averaging(student.model, arm.averaged)
        if arm.averaged:
            trainer.add_callback(averaging)
        trainer.train()
        load_weights(student.model, averaging.mean)
        if arm.token_score == LEARNED:
            trainer.fit_saliency()
        weights = student.model.state_dict()
        save_file({key: value.contiguous() for key, value in weights.items()}, folder / WEIGHTS)
        seconds = time.perf_counter() - spent
        facts = {"steps": count, "per_step": self.cost(bench, arm), "token_score": arm.token_score}
        write_json(folder / HOW, {"seconds": seconds, **facts})
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return folder

    def given(self, data: Path) -> Task:
        """SST-2's own validation rows, as report rows."""
        folder = self.runs / "given"
        if not (folder / "test.jsonl").is_file():
            folder.mkdir(exist_ok=True)
            for name in ("train", "validation"):
                shutil.copy(self.runs / "data" / f"{name}.jsonl", folder)
            table = pd.read_json(data / "validation.jsonl.gz", lines=True)
            table[["sentence", "label"]].to_json(folder / "test.jsonl", orient="records", lines=True)
        return load_task("classification", DataSource(str(folder), keep_overlap=True))

    def right(
        self,
        folder: Path,
        subnets: Mapping[str, Subnet],
        tasks: Sequence[tuple[Task, int]],
    ) -> Right:
        """What a model labels right, (sub-networks, rows): the first so many of each task's report rows."""
        weights = folder / WEIGHTS
        net, _, tokenizer = load_supernet(self.runs / START if weights.is_file() else folder)
        if weights.is_file():
            net = Supernet(net.model, json.loads((folder / HOW).read_text())["token_score"])
            net.model.load_state_dict(load_file(weights))
        parts = []
        for task, rows in tasks:
            encoded = task.encode("report", tokenizer, TOKENS).take(range(rows))
            evaluator = Evaluator(net.eval(), task, encoded, split="report", tokenizer=tokenizer)
            evaluator(list(subnets.values()))
            parts.append(np.stack([evaluator.statistics(one) for one in subnets.values()]))
        return np.concatenate(parts, axis=1).astype(bool)


def recipe_of(bench: Bench, arm: Arm) -> Recipe:
    """Of the model and the arm."""
    setting = Setting.of(bench.supernet, TOKENS, float(arm.bound), (arm.layer_drop,))
    return Recipe(setting, None if arm.alone is None else constant_ratio(arm.alone, bench))


def flags(rate: float) -> dict[str, Any]:
    """What every training gives the Trainer."""
    return {
        "bf16": torch.backends.cpu.get_cpu_capability() != "AVX2",  # which emulates it, 18 times slower
        "learning_rate": rate,
        "per_device_train_batch_size": BATCH,
        "disable_tqdm": "True",
        "logging_steps": 100,
    }


def grid(bench: Bench) -> dict[str, Subnet]:
    """The sub-networks that score every arm, by name."""
    blocks = bench.supernet.blocks
    found = {f"all {share}": constant_ratio(share, bench) for share in SHARES}
    found |= {f"half {share}": constant_ratio(share, bench, EVERY_OTHER) for share in SHARES if share <= 0.45}
    for count in range(2, blocks):
        kept = sorted({round(i * blocks / count) for i in range(count)})
        found[f"depth {count}"] = Subnet.of_encoder(kept)
    return found


def main() -> None:
    """Train, score, compare, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(runs=Path("runs/recipe"), seeds=1)
    parser.add_argument("--out", type=Path, required=True, help="where recipe.json and README.md go")
    parser.add_argument("--rung", type=float, default=0.1, help="share of the training rows")
    parser.add_argument("--epochs", type=float, default=3, help="of today's sandwich, whose compute is spent")
    parser.add_argument("--rows", type=int, default=5_000, help="report rows")
    parser.add_argument("--plain-rates", type=int, default=1, help=f"of {PLAIN_RATES}: the first so many")
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    parser.add_argument("--base", choices=sorted(ARMS), default="rate-1e-4", help="what differences are to")
    options = parser.parse_args()
    data, rates = Path(options.data), PLAIN_RATES[: options.plain_rates]
    rung = Rung((options.runs / f"rung-{options.rung:g}").resolve(), options.epochs)
    rung.prepare(data, options.rung)
    taught = rung.start(rung.plain(PLAIN_RATES[0]))
    bench, given = Bench.open(taught, "report"), rung.given(data)
    subnets, tasks = grid(bench), [(bench.task, options.rows), (given, len(given.rows("report")))]
    rows = sum(count for _, count in tasks)

    def scored(name: str, subnets: Mapping[str, Subnet], make: Callable[[], Path]) -> Scored:
        def made() -> tuple[Path, Right]:
            folder = make()
            return folder, rung.right(folder, subnets, tasks)

        return kept(options.out / "scores" / f"{name}.npz", list(subnets), rows, made)

    plain = scored("plain", {FULL: subnets[FULL]}, lambda: best_plain(rung, rates))
    for name in dict.fromkeys([options.base, *options.arms]):
        alone = ARMS[name].alone
        mine = subnets if alone is None else {f"all {alone}": subnets[f"all {alone}"]}
        for seed in range(options.seeds):
            scored(f"{name}-{seed}", mine, partial(rung.train, name, seed, taught))
        told = {key: getattr(options, key) for key in ("rung", "epochs", "rows", "plain_rates")}
        result = {
            "out": str(options.out),
            "base": options.base,
            "options": told,
            "rates": rates,
            "versions": versions(),
            **compared(seeds_of(options.out / "scores"), plain, options.base, options.rows),
        }
        write_json(options.out / "recipe.json", result)
        write_page(result, options.out)
        print(f"{name}: done", flush=True)
    print(json.dumps({arm: row["groups"] for arm, row in result["arms"].items()}))


def best_plain(rung: Rung, rates: Sequence[float]) -> Path:
    """Plain fine-tuning at each rate; the best by the search rows."""
    folders = [rung.plain(rate) for rate in rates]
    return max(folders, key=lambda folder: load_supernet(folder)[1].metrics["search_accuracy"])


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
