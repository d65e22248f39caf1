"""Trains what scripts/bench_search.py searches: SST-2 and SQuAD with MiniLM-L6, and 12 blocks from scratch.

Finished trainings are used again and interrupted ones go on.

    python scripts/bench_search_train.py --data path/to/data --only sst2
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import squad_minilm
import sst2_minilm_train
from transformers import BertConfig

from ldsearch.disk.files import write_json
from ldsearch.options import TrainSupernet
from ldsearch.training.train_supernet import train_supernet


def sst2(options: argparse.Namespace) -> Path:
    """A supernet of results/sst2_minilm: bound 0.36, 1,200 steps, another seed than its pages show first."""
    own = argparse.Namespace(data=str(options.data / "sst2"), model=None, runs=options.runs / "sst2")
    return sst2_minilm_train.train(own, "lengthdrop-7", "lengthdrop", 7, 1e-4, 1_200)


def squad(options: argparse.Namespace) -> Path:
    """A supernet like that of results/squad_minilm, to be searched on another part of the questions."""
    folder, runs = str(options.data / "squad_v1.1"), options.runs / "squad"
    own = argparse.Namespace(data=folder, runs=runs, steps=300, questions=options.questions)
    return squad_minilm.train(own, "lengthdrop", {"model": str(sst2_minilm_train.minilm())})


def deep(options: argparse.Namespace) -> Path:
    """12 blocks from scratch on the embedded default, depths and lengths trained."""
    folder: Path = options.runs / "deep"
    if not (folder / "supernet.json").is_file():
        config = options.runs / "deep.json"
        options.runs.mkdir(parents=True, exist_ok=True)
        bert = BertConfig(
            hidden_size=128,
            num_hidden_layers=12,
            num_attention_heads=2,
            intermediate_size=512,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        write_json(config, bert.to_dict())
        trainer = {"bf16": True, "num_train_epochs": 3, "disable_tqdm": "True"}
        train_supernet(folder, TrainSupernet(model=str(config), trainer=trainer))
    return folder


TRAININGS: dict[str, Callable[[argparse.Namespace], Path]] = {"sst2": sst2, "squad": squad, "deep": deep}


def arguments(description: str) -> argparse.ArgumentParser:
    """What this script and the one that searches have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with sst2 and squad_v1.1")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench_search"), help="where models go")
    parser.add_argument("--questions", type=int, default=200, help="of SQuAD, both halves")
    return parser


if __name__ == "__main__":
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", choices=TRAININGS, action="append", help="which; default: all")
    chosen = parser.parse_args()
    print(json.dumps({name: str(TRAININGS[name](chosen)) for name in chosen.only or TRAININGS}))
