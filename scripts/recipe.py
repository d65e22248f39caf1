"""Which way to train a supernet? Every change to the sandwich alone, at equal training compute, on SST-2.

    python scripts/recipe.py --data path/to/sst2 --runs runs/recipe --out results/recipe --rung 0.1

Training rows that no arm sees report; a share of the others (``--rung``) trains. All arms start from one
plain fine-tuning and may spend the multiply-accumulates of so many epochs of today's sandwich, teacher passes
counted. Scored: constant ratio of all blocks and of every other block, and depths at full length, at fixed
shares of the MACs, the same sub-networks for every arm. What is finished is used again, so run it until it
ends; the last line is one JSON object.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from imdb_train import constant_ratio
from recipe_arms import ARMS, EVERY_OTHER, Alpha, Arm, Averaging, Recipe
from safetensors.torch import load_file, save_file
from sst2_minilm_train import arguments, minilm
from transformers import set_seed

from ldsearch import Bench
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.commands.trainer import training_arguments
from ldsearch.errors import LdsearchError
from ldsearch.evaluation import Evaluator
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.intervals import Statistics, paired_bootstrap
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import load_supernet
from ldsearch.tasks.splits import fix_splits
from ldsearch.training.estimate import FORWARD, step_work
from ldsearch.training.strategies import Setting
from ldsearch.training.trainer import Distillation, SupernetTrainer

TOKENS, BATCH = 128, 32
REPORT_ROWS, SEARCH_ROWS = 10_000, 1_000
PLAIN_EPOCHS, PLAIN_RATE = 3, 1e-4
SHARES = tuple(round(share, 2) for share in np.arange(0.15, 1.001, 0.05))
DRAWS = 400  # steps whose mean cost is an arm's
HOW = "how.json"


@dataclass(frozen=True)
class Rung:
    """Trainings and scores on one share of the rows.

    Args:
        runs: Folder of the rung.
        epochs: Of today's sandwich, whose compute every arm may spend.
        seed: Of the trainings.
    """

    runs: Path
    epochs: float
    seed: int = 0

    def prepare(self, data: Path, share: float) -> None:
        """Fix the rows: report and search by groups of like text, then a share of the others to train."""
        folder = self.runs / "data"
        if (folder / "test.jsonl").is_file():
            return
        table = pd.read_json(data / "train.jsonl.gz", lines=True)
        held = np.zeros(len(table), dtype=bool)
        held[np.random.default_rng(0).permutation(len(table))[: REPORT_ROWS + SEARCH_ROWS]] = True
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

    def plain(self) -> Path:
        """Plain fine-tuning, the best epoch by the search rows; without dropout from then on."""
        folder, start = self.runs / "plain", self.runs / "taught"
        if not (start / HOW).is_file():
            begun = time.perf_counter()
            options = TrainSupernet(
                data=str(self.runs / "data"),
                keep_overlap=True,  # the rows were fixed with their groups whole
                model=str(minilm()),
                strategy="plain",
                max_length=TOKENS,
                trainer={
                    **flags(PLAIN_RATE),
                    "num_train_epochs": PLAIN_EPOCHS,
                    "eval_strategy": "epoch",
                    "load_best_model_at_end": True,
                    "metric_for_best_model": "accuracy",
                    "per_device_eval_batch_size": 64,
                },
            )
            if not (folder / "supernet.json").is_file():
                train_supernet(folder, options)
            shutil.copytree(folder, start, dirs_exist_ok=True)
            config = json.loads((start / "config.json").read_text())
            config |= {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
            write_json(start / "config.json", config)
            write_json(start / HOW, {"seconds": time.perf_counter() - begun})
        return start

    def cost(self, bench: Bench, arm: Arm) -> float:
        """MACs of a step over those of a plain step: forward and backward passes, and a frozen teacher's."""
        recipe = Recipe(arm, setting_of(bench, arm))
        return step_work(recipe, bench.macs, float(bench.macs([bench.full])[0]), steps=DRAWS)

    def train(self, name: str, taught: Path) -> Path:
        """One arm, from the plain model, for the common compute; a finished one is left as it is."""
        folder, arm, spent = self.runs / f"{name}-{self.seed}", ARMS[name], time.perf_counter()
        if (folder / HOW).is_file():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench.open(taught, "train")
        whole = bench.task.encode("train", bench.tokenizer, TOKENS)
        steps = len(whole) / BATCH
        budget = self.epochs * steps * self.cost(bench, replace(ARMS["default"], rate=0))
        # A frozen teacher reads every row once, before the first step.
        count = round((budget - (FORWARD * steps if arm.frozen else 0)) / self.cost(bench, arm))
        set_seed(self.seed)
        student, _, _ = load_supernet(taught)
        trainer = (Alpha if arm.adaptive else SupernetTrainer)(
            student,
            Recipe(arm, setting_of(bench, arm)),
            training_arguments(
                folder, {**flags(arm.rate), "max_steps": count, "save_strategy": "no"}, seed=self.seed
            ),
            task=bench.task,
            train=whole,
            search=whole,
            tokenizer=bench.tokenizer,
            distillation=Distillation(arm.label_share, arm.state_weight),
            teacher=bench.supernet if arm.frozen else None,
            taught=whole if arm.frozen else None,
        )
        averaging = Averaging(student.model, arm.averaged)
        if arm.averaged:
            trainer.add_callback(averaging)
        trainer.train()
        weights = {**student.model.state_dict(), **averaging.mean}
        save_file({key: value.contiguous() for key, value in weights.items()}, folder / "weights.safetensors")
        seconds = time.perf_counter() - spent
        write_json(folder / HOW, {"seconds": seconds, "steps": count, "per_step": self.cost(bench, arm)})
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return folder

    def scores(
        self, folder: Path, taught: Path, subnets: Mapping[str, Subnet], rows: int
    ) -> dict[str, Statistics]:
        """1 for each report row that is labelled right, by sub-network; kept beside the weights."""
        kept = folder / f"scores-{rows}.npz"
        if not kept.is_file():
            net, _, tokenizer = load_supernet(taught)
            if (folder / "weights.safetensors").is_file():
                net.model.load_state_dict(load_file(folder / "weights.safetensors"))
            bench = Bench.open(taught, "report")
            encoded = bench.task.encode("report", tokenizer, TOKENS).take(range(rows))
            evaluator = Evaluator(net.eval(), bench.task, encoded, split="report", tokenizer=tokenizer)
            evaluator(list(subnets.values()))
            np.savez(kept, **{name: evaluator.statistics(one) for name, one in subnets.items()})
        with np.load(kept) as found:
            return {name: found[name] for name in subnets}


def setting_of(bench: Bench, arm: Arm) -> Setting:
    """Of the model and the arm."""
    return Setting.of(bench.supernet, TOKENS, float(arm.bound), (arm.layer_drop,))


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


GROUPS: Mapping[str, Callable[[str], bool]] = {
    "lengths": lambda name: name.startswith("all "),
    "every other, lengths": lambda name: name.startswith("half "),
    "depth": lambda name: name.startswith("depth "),
    "best of 0.2 to 0.45": lambda name: (
        name.startswith(("all ", "half ")) and 0.2 <= float(name.split()[1]) <= 0.45
    ),
    "full": lambda name: name == "all 1.0",
}


def compare(scores: Mapping[str, dict[str, Statistics]], base: str) -> dict[str, Any]:
    """Means over each group of sub-networks, and their paired differences to one arm in points."""
    table: dict[str, Any] = {}
    for name, found in scores.items():
        table[name] = {}
        for group, belongs in GROUPS.items():
            own, other = (
                np.mean([s for n, s in one.items() if belongs(n)], axis=0) for one in (found, scores[base])
            )
            difference = asdict(paired_bootstrap(100 * own, 100 * other))
            table[name][group] = {"mean_accuracy": float(own.mean()), **difference}
    return table


def write_page(result: Mapping[str, Any], out: Path) -> None:
    """``README.md`` in the folder."""
    told = result["options"]
    lines = [
        "# Which way to train a supernet",
        "",
        "```",
        f"python scripts/recipe.py --data path/to/sst2 --runs runs/recipe --out results/recipe "
        f"--rung {told['rung']} --epochs {told['epochs']:g} --rows {told['rows']} "
        f"--arms {' '.join(name for name in result['arms'] if name not in ('plain', result['base']))}",
        "```",
        "",
        f"MiniLM-L6 on a share of {told['rung']} of SST-2's training rows; every arm starts from one plain",
        f"fine-tuning and spends the multiply-accumulates of {told['epochs']:g} epochs of today's sandwich.",
        f"Accuracy is a mean over sub-networks, on {told['rows']:,} training rows that nobody saw;",
        f"differences to `{result['base']}` in points, 95% paired intervals of the rows. One seed: two",
        "trainings of one recipe differ by some tenths of a point too.",
        "",
        f"| arm | what | steps | {' | '.join(GROUPS)} |",
        f"|---|---|---|{'---|' * len(GROUPS)}",
    ]
    for name, row in result["arms"].items():
        cells = [
            f"{100 * cell['mean_accuracy']:.2f}"
            if name == result["base"]
            else f"{cell['mean']:+.2f} ({cell['low']:+.2f} to {cell['high']:+.2f})"
            for cell in row["groups"].values()
        ]
        lines.append(f"| {name} | {row['says']} | {row['steps']} | {' | '.join(cells)} |")
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Train, score, compare, write."""
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(runs=Path("runs/recipe"))
    parser.add_argument("--out", type=Path, required=True, help="where recipe.json and README.md go")
    parser.add_argument("--rung", type=float, default=0.1, help="share of the training rows")
    parser.add_argument("--epochs", type=float, default=3, help="of today's sandwich, whose compute is spent")
    parser.add_argument("--rows", type=int, default=5_000, help="report rows")
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    parser.add_argument("--base", choices=sorted(ARMS), default="rate-1e-4", help="what differences are to")
    options = parser.parse_args()
    rung = Rung((options.runs / f"rung-{options.rung:g}").resolve(), options.epochs)
    rung.prepare(Path(options.data), options.rung)
    taught = rung.plain()
    subnets = grid(Bench.open(taught, "report"))
    scores = {"plain": rung.scores(taught, taught, subnets, options.rows)}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys([options.base, *options.arms]):
        folder = rung.train(name, taught)
        scores[name] = rung.scores(folder, taught, subnets, options.rows)
        table = compare(scores, options.base)
        result = {
            "base": options.base,
            "arms": {
                arm: {
                    "says": ARMS[arm].says if arm in ARMS else "plain fine-tuning, cut",
                    **(
                        json.loads((rung.runs / f"{arm}-0" / HOW).read_text())
                        if arm in ARMS
                        else {"steps": ""}
                    ),
                    "groups": groups,
                    "by": {one: float(found.mean()) for one, found in scores[arm].items()},
                }
                for arm, groups in table.items()
            },
            "options": {key: getattr(options, key) for key in ("rung", "epochs", "rows")},
            "versions": versions(),
        }
        write_json(options.out / "recipe.json", result)
        write_page(result, options.out)
        print(name, {group: round(cell["mean"], 2) for group, cell in table[name].items()}, flush=True)
    print(json.dumps({arm: row["groups"] for arm, row in result["arms"].items()}))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
