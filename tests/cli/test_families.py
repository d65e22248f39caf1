"""Families with paths of their own from a folder to files, as a user types it: train, evolve, export."""

from pathlib import Path

import pytest

from ldsearch.supernet.folder import save_model
from ldsearch.tasks.tokenizer import train_wordpiece
from tests.cli.conftest import Ldsearch, ldsearch, reviews
from tests.tiny import tiny_model

__all__ = ["ldsearch"]


def encoder(family: str, folder: Path) -> None:
    model = tiny_model(family, blocks=3, labels=2)
    save_model(model, train_wordpiece(reviews().splitlines(), 60), folder)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mpnet", "deberta-v2", "albert"])
def test_from_a_folder_to_files(
    ldsearch: Ldsearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.chdir(tmp_path)
    encoder(family, tmp_path / "model")
    Path("data.csv").write_text(reviews())
    data = ("--data", "data.csv", "--max-length", 16, "--max_steps", 2, "--name", "tiny")
    done = [ldsearch("train-supernet", "--model", "model", *data)]
    search = ("--evaluations", 6, "--budget", 0.9, "--name", "found")
    done.append(ldsearch("evolve", "--supernet", "runs/tiny", *search))
    done.append(ldsearch("export", "runs/found", "out/hf"))
    # By name: where int8 is the fastest, six rows of a hardly trained model are too few to agree on.
    done.append(ldsearch("export", "runs/found", "out/onnx", "--format", "onnx", "--runtime", "onnx"))
    assert [(one.code, one.err[-500:] if one.code else "") for one in done] == [(0, "")] * len(done)
