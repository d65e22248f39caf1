"""Trains everything that results/imdb compares: a supernet of MiniLM-L6 on IMDB, and what people do instead.

    python scripts/imdb_train.py --data path/to/imdb --runs runs/imdb

What is finished is used again and an interrupted training goes on, so run it until it ends. Everybody
starts from one plain fine-tuning, learns from it alone and takes the same rows; tokens are chosen by the
learned score. What a training may spend is counted in epochs of plain fine-tuning, by the
multiply-accumulates of its passes.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sst2_minilm_train import minilm, sandwich_cost

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import weights_fingerprint
from ldsearch.errors import LdsearchError, RunError
from ldsearch.options import TrainSupernet
from ldsearch.runs.folder import claim
from ldsearch.runs.run import SUPERNET_FILE, TRAINING_FILE, read_json
from ldsearch.space.lengths import constant_ratio_lengths
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_supernet, save_model
from ldsearch.supernet.saliency import LEARNED
from ldsearch.tasks import Encoded
from ldsearch.tasks.splits import fix_splits
from ldsearch.training.distillation import Distillation
from ldsearch.training.recover import train_fixed
from ldsearch.training.run import fit, training_arguments
from ldsearch.training.saliency import fit_saliency
from ldsearch.training.strategies import Setting, StackSetting
from ldsearch.training.strategies.base import Fixed
from ldsearch.training.train_supernet import train_supernet
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.interruption import interruptible

ROWS, SEARCH_ROWS, TOKENS = 8_000, 1_000, 192
BATCH = 32
PLAIN_EPOCHS, PLAIN_RATE = 3, 1e-4
RATE = 1e-4  # of everything that learns from the plain model
BOUND = Fraction(62, 100)  # the smallest costs 0.15 of the MACs
LABEL_SHARE, STATE_WEIGHT = 0.0, 1.0
DRAWS = 500  # sandwiches whose mean cost is taken
DEPTHS = {"blocks-0-3": (0, 3), "blocks-0-2-4": (0, 2, 4)}
SPECIALISTS = (0.35, 0.2, 0.5)  # shares of the full model's MACs
HOW = "how.json"  # what a finished training took
SUPERNET = "supernet"
SCORED = "scored"  # the plain model with a learned token score
SEEDS = (0, 1)  # of its trainings; the first is searched
SANDWICH, KEPT = "taught", 6  # it is the mean of so many checkpoints, of 17
PAPER_EPOCHS = 1  # of the paper's sandwich: what it takes is what the supernet gets


CUTS = ("first-64", "ends-64", "rarest-64", "first-128")

Cut = Callable[[Sequence[int]], list[int]]  # positions of an input that stay


def first(tokens: int) -> Cut:
    """The input cut to its first tokens, [SEP] included."""
    return lambda ids: [*range(min(len(ids), tokens) - 1), len(ids) - 1]


def ends(tokens: int) -> Cut:
    """Half of the tokens from the beginning, half from the end."""
    half = tokens // 2
    return lambda ids: (
        [*range(len(ids))] if len(ids) <= tokens else [*range(half), *range(len(ids) - half, len(ids))]
    )


def rarest(tokens: int, rows: Encoded) -> Cut:
    """The tokens that the fewest training rows hold, in their order; [CLS] and [SEP] stay."""
    counts: dict[int, int] = {}
    for row in rows:
        for token in set(row["input_ids"]):
            counts[token] = counts.get(token, 0) + 1

    def cut(ids: Sequence[int]) -> list[int]:
        if len(ids) <= tokens:
            return [*range(len(ids))]
        inner = sorted(range(1, len(ids) - 1), key=lambda place: (counts.get(ids[place], 0), place))
        return [0, *sorted(inner[: tokens - 2]), len(ids) - 1]

    return cut


def cuts(train: Encoded) -> Mapping[str, tuple[int, Cut]]:
    """The inputs that people cut, by name: how many tokens are left, and which."""
    made = ((64, first(64)), (64, ends(64)), (64, rarest(64, train)), (128, first(128)))
    return dict(zip(CUTS, made, strict=True))


def shortened(rows: Encoded, tokens: int, cut: Cut) -> Encoded:
    """A split with every input cut."""
    features = []
    for row in rows:
        places = cut(row["input_ids"])
        features.append(
            {
                name: [values[place] for place in places] if isinstance(values, list) else values
                for name, values in row.items()
            }
        )
    return Encoded(tuple(features), tokens)


def constant_ratio(share: float, bench: Bench, blocks: Sequence[int] | None = None) -> Subnet:
    """The constant-ratio configuration whose MACs come nearest to that share of the full model's.

    Of all blocks, or of these.
    """
    full = bench.full
    kept = range(bench.supernet.blocks) if blocks is None else blocks
    rates = [Fraction(percent, 200) for percent in range(1, 150)]
    lengths = dict.fromkeys(constant_ratio_lengths(TOKENS, len(kept), rate) for rate in rates)
    subnets = [Subnet.of_encoder(kept, one, TOKENS) for one in lengths]
    shares = bench.macs(subnets) / bench.macs([full])[0]
    return subnets[int(np.abs(shares - share).argmin())]


def fitted(bench: Bench) -> Supernet:
    """The model with a learned token score, nothing else of it trained."""
    net, tokenizer = Supernet(bench.supernet.model, LEARNED), bench.tokenizer
    train = bench.task.encode("train", tokenizer, bench.record.reference)
    fit_saliency(net, bench.task, train, tokenizer)
    return net


def supernet_name(seed: int) -> str:
    """The folder of the supernet that was trained with a seed."""
    return SUPERNET if seed == SEEDS[0] else f"{SUPERNET}-seed-{seed}"


@dataclass(frozen=True)
class Trainings:
    """The trainings of one folder.

    Args:
        runs: Where they go.
    """

    runs: Path

    def prepare(self, data: Path) -> None:
        """Fix the rows once: training, 1,000 held-out ones that choose (groups whole), 3,000 that report."""
        folder = self.runs / "data"
        if (folder / "test.jsonl").is_file():
            return
        tables = {
            "train": pd.read_json(data / "train.jsonl.gz", lines=True)[:ROWS],
            "search": pd.read_json(data / "validation.jsonl.gz", lines=True),
        }
        texts = {role: list(table["text"]) for role, table in tables.items()}
        splits = fix_splits(texts, search_rows=SEARCH_ROWS)
        folder.mkdir(parents=True, exist_ok=True)
        for role, name in (("train", "train"), ("search", "validation"), ("report", "test")):
            table, index = splits.rows[role]
            rows = tables[table].iloc[index][["text", "label"]]
            rows.to_json(folder / f"{name}.jsonl", orient="records", lines=True)

    def start(self) -> Path:
        """A copy of the pretrained model with no attention dropout, which takes half of a training's time.

        Eager attention trains faster on a CPU than sdpa.
        """
        folder = self.runs / "start"
        if not (folder / "config.json").is_file():
            shutil.copytree(minilm(), folder, dirs_exist_ok=True)
            config = json.loads((folder / "config.json").read_text())
            config |= {"attention_probs_dropout_prob": 0.0, "attn_implementation": "eager"}
            write_json(folder / "config.json", config)
        return folder

    def timed(self, name: str, train: Callable[[Path], object], **facts: object) -> Path:
        """Train unless it is done; beside the model, how long it took here and what it was given.

        Raises:
            RunError: If what is done was given something else.
        """
        folder = self.runs / name
        if (folder / HOW).is_file():
            if not facts.items() <= read_json(folder / HOW).items():
                raise RunError(f"{folder} was trained by another recipe: take other --runs, or move it away")
        else:
            print(f"training {name}: {facts}", flush=True)
            start = time.perf_counter()
            train(folder)
            write_json(folder / HOW, {"seconds": time.perf_counter() - start, **facts})
        return folder

    def plain(self) -> Path:
        """Plain fine-tuning, trained out: the epoch that is best on the search rows is kept."""
        options = TrainSupernet(
            data=str(self.runs / "data"),
            keep_overlap=True,  # the rows were fixed with their groups whole
            model=str(self.start()),
            strategy="plain",
            max_length=TOKENS,
            trainer={
                **trainer_flags(PLAIN_RATE, PLAIN_EPOCHS),
                "eval_strategy": "epoch",
                "load_best_model_at_end": True,
                "metric_for_best_model": "accuracy",
                "per_device_eval_batch_size": 64,
            },
        )
        return self.timed(
            "plain", lambda folder: train_supernet(folder, options), epochs=PLAIN_EPOCHS, compute=PLAIN_EPOCHS
        )

    def scored(self, plain: Path) -> Path:
        """The plain model with a learned token score, for whatever drops tokens of it or starts from it."""
        folder = self.runs / SCORED
        if not (folder / SUPERNET_FILE).is_file():
            bench = Bench.open(plain, "train")
            save_model(fitted(bench).model, bench.tokenizer, folder)
            replace(bench.record, score=LEARNED, weights=weights_fingerprint(folder)).save(folder)
        return folder

    def supernet(self, plain: Path, seed: int = SEEDS[0]) -> Path:
        """The sandwich, from the plain model and distilled from it: lengths alone, and a mean of weights."""
        bench = Bench.open(plain, "train")
        stacks = {"encoder": StackSetting(bench.supernet.blocks, (0.0,) * bench.supernet.blocks)}
        paper, own = (
            sandwich_cost(bench, Setting(stacks, TOKENS, BOUND, sandwich=name), DRAWS)
            for name in ("paper", SANDWICH)
        )
        epochs = PAPER_EPOCHS * paper / own
        options = TrainSupernet(
            data=str(self.runs / "data"),
            keep_overlap=True,
            model=str(plain),
            strategy="lengthdrop",
            genes="lengths",
            token_score=LEARNED,
            max_length=TOKENS,
            drop_bound=float(BOUND),
            sandwich=SANDWICH,
            plain_share=0.0,
            teacher=str(plain),
            label_share=LABEL_SHARE,
            state_weight=STATE_WEIGHT,
            average_last=KEPT,
            seed=seed,
            trainer={**trainer_flags(RATE, epochs), "save_strategy": "steps", "save_steps": 0.06},
        )
        return self.timed(
            supernet_name(seed),
            lambda folder: train_supernet(folder, options),
            epochs=epochs,
            compute=PAPER_EPOCHS * paper,
            learning_rate=RATE,
            sandwich=SANDWICH,
            drop_bound=float(BOUND),
        )

    def alone(self, name: str, plain: Path, subnet: Subnet, compute: float) -> Path:
        """One sub-network of the plain model, trained by itself for so many plain epochs' compute."""
        bench = Bench.open(plain, "train")
        share = float(bench.macs([subnet])[0] / bench.macs([bench.full])[0])
        rows = len(bench.task.splits["train"])
        steps = round(compute / share * rows / BATCH)
        options = TrainSupernet(
            label_share=LABEL_SHARE,
            state_weight=STATE_WEIGHT,
            trainer={"max_steps": steps, **trainer_flags(RATE)},
        )
        return self.timed(
            name,
            lambda folder: train_fixed(bench, folder, subnet, options),
            epochs=compute / share,
            compute=compute,
            macs_share=share,
            subnet=json.loads(subnet.to_json()),
        )

    def cut(self, name: str, plain: Path, compute: float) -> Path:
        """The whole model on cut inputs, taught by the plain model, which reads them whole."""
        bench = Bench.open(plain, "train")
        task, tokenizer = bench.task, bench.tokenizer
        whole, search = (task.encode(split, tokenizer, TOKENS) for split in ("train", "search"))
        tokens, keep = cuts(whole)[name]
        train = shortened(whole, tokens, keep)
        share = float(bench.supernet.macs(train.workload)([bench.full])[0] / bench.macs([bench.full])[0])
        epochs = compute / share

        def run(folder: Path) -> None:
            student, _, _ = load_supernet(plain)
            claim(folder, TRAINING_FILE, {"cut": name, "epochs": epochs})
            trainer = SupernetTrainer(
                student,
                Fixed(student.full, "distill"),
                training_arguments(folder, trainer_flags(RATE, epochs), seed=0),
                task=task,
                train=train,
                search=shortened(search, tokens, keep),
                tokenizer=tokenizer,
                distillation=Distillation(LABEL_SHARE, STATE_WEIGHT),
                teacher=bench.supernet,
                taught=whole,
            )
            with interruptible():
                fit(trainer, folder)
                save_model(student.model, tokenizer, folder)
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)

        return self.timed(f"cut-{name}", run, epochs=epochs, compute=compute, macs_share=share)


def trainer_flags(rate: float, epochs: float | None = None) -> dict[str, Any]:
    """What every training gives the Trainer; without epochs, something else says how long it takes."""
    flags = {
        "bf16": True,
        "learning_rate": rate,
        "per_device_train_batch_size": BATCH,
        "disable_tqdm": "True",
        "logging_steps": 50,
    }
    return flags if epochs is None else {**flags, "num_train_epochs": epochs}


def train_all(data: Path, runs: Path) -> dict[str, Path]:
    """Every training, what decides the gate first; folders by name."""
    runs = runs.resolve()
    trainings = Trainings(runs)
    trainings.prepare(data)
    plain = trainings.scored(trainings.plain())
    folders = {"plain": plain, SUPERNET: trainings.supernet(plain)}
    compute = float(read_json(folders[SUPERNET] / HOW)["compute"])
    bench = Bench.open(plain, "search")
    specialist = {share: constant_ratio(share, bench) for share in SPECIALISTS}

    def alone(share: float) -> None:
        name = f"specialist-{share}"
        folders[name] = trainings.alone(name, plain, specialist[share], compute / 3)

    def depth(name: str) -> None:
        folders[name] = trainings.alone(name, plain, Subnet.of_encoder(DEPTHS[name]), compute)

    def cut(name: str) -> None:
        folders[f"cut-{name}"] = trainings.cut(name, plain, compute / 3)

    alone(0.35)
    depth("blocks-0-2-4")
    depth("blocks-0-3")
    for seed in SEEDS[1:]:
        folders[supernet_name(seed)] = trainings.supernet(plain, seed)
    cut("rarest-64")
    alone(0.2)
    alone(0.5)
    cut("first-64")
    cut("ends-64")
    cut("first-128")
    return folders


def arguments(description: str) -> argparse.ArgumentParser:
    """What every script of this comparison takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with IMDB, train and validation")
    parser.add_argument("--runs", type=Path, default=Path("runs/imdb"), help="where models go")
    return parser


if __name__ == "__main__":
    options = arguments(__doc__.splitlines()[0]).parse_args()
    try:
        print(
            json.dumps({name: str(folder) for name, folder in train_all(options.data, options.runs).items()})
        )
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
