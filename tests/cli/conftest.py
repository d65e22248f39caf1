"""The command line in this process, and a place with data, a model configuration and a trained supernet."""

import csv
import json
import random
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ldsearch.bench import Bench
from ldsearch.cli import main
from ldsearch.compression import search as short_search
from ldsearch.latency import clock, fastest
from ldsearch.latency.runtimes import RUNTIMES

TRAIN = ("train-supernet", "--data", "reviews.csv", "--model", "config.json", "--max-length", "16")
EPOCHS = ("--num_train_epochs", "1")
# A seed whose search finds more than two frontier points.
WILD_SEARCH = ("--supernet", "runs/tiny", "--evaluations", "30", "--seed", "4", "--budget", "0.8")
CONFIG = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


@dataclass(frozen=True)
class Outcome:
    """What a command left on the terminal."""

    code: int
    out: str
    err: str


class Ldsearch:
    """``ldsearch`` with arguments, as the console script runs it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["ldsearch", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return Outcome(int(exit_.value.code or 0), *self.capsys.readouterr())

    def done(self, *arguments: object) -> Outcome:
        outcome = self(*arguments)
        assert outcome.code == 0, outcome.err
        return outcome

    def refused(self, *arguments: object) -> str:
        """The one line that a command says whose input is wrong, without ``error: ``."""
        outcome = self(*arguments)
        assert outcome.code == 2, outcome
        assert re.fullmatch(r"error: .+\n", outcome.err), outcome.err
        return outcome.err.removeprefix("error: ")


def reviews(rows: int = 60, seed: int = 1) -> str:
    """Rows of 3 to 12 words in which one word in three tells the label."""
    draw = random.Random(seed)
    words = {"good": ["fine", "kind", "warm", "bright"], "bad": ["sad", "cold", "dark", "cruel"]}
    rest = ["the", "of", "a", "day", "film", "book", "it", "was", "very", "quite"]
    lines = ["text,label"]
    for row in range(rows):
        label = ("good", "bad")[row % 2]
        text = [draw.choice(words[label] if i % 3 == 0 else rest) for i in range(draw.randint(3, 12))]
        lines.append(f"{' '.join(text)},{label}")
    return "\n".join(lines) + "\n"


def rows_of(task: str, count: int = 80, seed: int = 1) -> list[dict[str, Any]]:
    """The texts of ``reviews`` with what a task asks of them."""
    made: list[dict[str, Any]] = []
    for place, line in enumerate(reviews(count, seed).splitlines()[1:]):
        text, _, label = line.partition(",")
        words = text.split()
        word = words[place % len(words)]
        answers = {"text": [word], "answer_start": [text.index(word)]}
        row = {
            "classification": {"text": text, "label": label},
            "masked": {"text": text},
            "multi-label": {"text": text, "labels": [name for name in ("a", "the") if name in words]},
            "pairs": {"sentence1": text, "sentence2": " ".join(words[::-1]), "label": len(text) / 10},
            "questions": {"context": f"{text} {place}", "question": f"which {word}", "answers": answers},
            "regression": {"text": text, "label": len(text) / 10},
            "tokens": {"tokens": words, "ner_tags": ["B-X" if len(own) < 4 else "O" for own in words]},
        }
        made.append(row[task])
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> dict[str, Any]:
    fields = json.loads(path.read_text())
    assert isinstance(fields, dict)
    return fields


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.fixture
def ldsearch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ldsearch:
    return Ldsearch(monkeypatch, capsys)


@pytest.fixture(scope="session", autouse=True)
def timed_for_an_instant() -> Iterator[None]:
    """Where the full model is timed in every runtime: as few rounds as may be."""
    with mock.patch.object(clock, "SECONDS", 0.0):
        yield


# By name: a fixture that another folder imports makes the same place, which is made once.
_MADE: dict[str, Path] = {}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a model configuration and the supernet ``runs/tiny``; tests work on copies."""
    if "trained" not in _MADE:
        _MADE["trained"] = _trained(tmp_path_factory)
    return _MADE["trained"]


def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    (place / "reviews.csv").write_text(reviews())
    (place / "config.json").write_text(json.dumps(CONFIG))
    run_in(place, *TRAIN, *EPOCHS, "--name", "tiny")
    return place


def run_in(place: Path, *arguments: str) -> str:
    """What a command prints there."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.chdir(place)
        patch.setattr(sys, "argv", ["ldsearch", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
    assert not exit_.value.code
    return said.getvalue()


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the trained place; the working directory."""
    monkeypatch.chdir(shutil.copytree(trained, tmp_path / "place"))
    return tmp_path / "place"


@pytest.fixture(scope="session")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place like ``trained`` whose supernet guesses differently at every length, and one finished search.

    Its scores differ, mean nothing, and make a frontier; said.txt is what the search printed.
    """
    if "wild" not in _MADE:
        _MADE["wild"] = _wild(tmp_path_factory)
    return _MADE["wild"]


def _wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wild")
    (place / "reviews.csv").write_text(reviews(400))
    (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    # Lengths alone: with depth one block would be the cheapest and, in a guessing model, as good as any.
    run_in(place, *TRAIN, "--max_steps", "1", "--name", "tiny", "--genes", "lengths")
    unsettle(place / "runs/tiny")
    (place / "said.txt").write_text(run_in(place, "evolve", *WILD_SEARCH))
    return place


@pytest.fixture(scope="session")
def swapped(wild: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wild place with the same search by the other rows; tests only read it."""
    place = shutil.copytree(wild, tmp_path_factory.mktemp("swapped") / "place")
    run_in(place, "evolve", *WILD_SEARCH, "--swap")
    return place


def unsettle(folder: Path) -> None:
    """Random weights, the classes balanced: a supernet that guesses differently at every length."""
    path = folder / "model.safetensors"
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: 0.7 * torch.randn(tensor.shape, generator=generator) if tensor.ndim == 2 else tensor
        for name, tensor in load_file(path).items()
    }
    save_file(tensors, path, metadata={"format": "pt"})
    bench = Bench.open(folder)
    logits = np.stack(bench.evaluator.outputs(bench.full))
    tensors["classifier.bias"][1] += float(np.median(logits[:, 0] - logits[:, 1]))
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture
def wild_place(wild: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the wild place; the working directory."""
    monkeypatch.chdir(shutil.copytree(wild, tmp_path / "place"))
    return tmp_path / "place"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with a model configuration and nothing else; the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def tuned(wild: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with a fine-tuned model as others save it, and rows: labelled, and texts alone.

    The full model is timed in one runtime of files, which rounds nothing.
    """
    monkeypatch.setattr(fastest, "candidates", lambda: {"onnx": RUNTIMES["onnx"]})
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setattr(short_search, "SEARCHED", 2)
    monkeypatch.setattr(short_search, "RATIOS", 5)
    home = wild / "runs/tiny"
    AutoModelForSequenceClassification.from_pretrained(home).save_pretrained("tuned")
    AutoTokenizer.from_pretrained(home).save_pretrained("tuned")
    rows = reviews(160, seed=3)
    Path("more.csv").write_text(rows)
    Path("texts.txt").write_text("\n".join(line.partition(",")[0] for line in rows.splitlines()[1:]) + "\n")
    return place


def lines(path: Path) -> pd.DataFrame:
    return pd.read_json(path, lines=True, dtype=False)
