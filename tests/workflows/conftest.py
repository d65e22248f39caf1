"""Tiny supernets that several workflows start from, each trained once a session."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ldsearch import Bench
from ldsearch.options import TrainSupernet
from ldsearch.training.train_supernet import train_supernet
from tests.translators import sentences

SIZES = {"d_model": 16, "max_position_embeddings": 32}
for side in ("encoder", "decoder"):
    SIZES |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
CONFIGS = {
    "translation": {"model_type": "bart", **SIZES},
    "causal": {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    | {"intermediate_size": 32},
    "masked": {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32},
}


def write_texts(folder: Path) -> None:
    """30 sentences to train on and 30 others, as lines of text and as pairs."""
    texts = list(dict.fromkeys(sentences(60)))
    for name, part in (("train", texts[:30]), ("validation", texts[30:])):
        rows = [{"source": text, "target": text} for text in part]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in part))


def texts_options(folder: Path, task: str, config: dict[str, object], **changes: object) -> TrainSupernet:
    """One step of a training on the texts, from scratch."""
    path = folder / f"{task}.json"
    path.write_text(json.dumps({**CONFIGS[task], **config}))
    suffix = ".jsonl" if task == "translation" else ".txt"
    fields = {
        "data": str(folder / f"train{suffix}"),
        "validation": str(folder / f"validation{suffix}"),
        "task": task,
        "keep_overlap": task == "translation",
        "model": str(path),
        "max_length": 24,
        "trainer": {"max_steps": "1", "disable_tqdm": "True", "save_strategy": "no"},
    }
    return TrainSupernet(**{**fields, **changes})


def unsettle(folder: Path, silent: str = "nothing") -> None:
    """Draw random weights; the block of that name adds nothing to what enters it."""
    path = folder / "model.safetensors"
    generator, last = torch.Generator().manual_seed(0), ("o_proj.weight", "down_proj.weight")
    tensors = {
        name: torch.zeros_like(tensor)
        if name.startswith(silent) and name.endswith(last)
        else 0.5 * torch.randn(tensor.shape, generator=generator)
        if tensor.ndim == 2
        else tensor
        for name, tensor in load_file(path).items()
    }
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder)
    return folder


@pytest.fixture(scope="session")
def translator(texts: Path) -> Bench:
    """A BART of two blocks a stack, trained at dropped lengths, whose decoder reads the kept tokens."""
    options = texts_options(texts, "translation", {}, memory="kept")
    folder = train_supernet(texts / "runs" / "translator", options)
    unsettle(folder)
    return Bench.open(folder)


@pytest.fixture(scope="session")
def reported(translator: Bench) -> Bench:
    """The translator on the rows that chose nothing."""
    return Bench.open(translator.folder, "report", task=translator.task)


@pytest.fixture(scope="session")
def writer(texts: Path) -> Bench:
    """A language model of three blocks, the second of which does nothing."""
    options = texts_options(texts, "causal", {}, strategy="layerdrop")
    folder = train_supernet(texts / "runs" / "writer", options)
    unsettle(folder, "model.layers.1.")
    return Bench.open(folder)
