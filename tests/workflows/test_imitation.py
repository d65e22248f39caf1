"""Searches without labels: the stock models' divergences, rows within a budget, a planted useless block."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import kl_div

from ldsearch import Bench
from ldsearch.commands import imitation
from ldsearch.commands.binding import read_trainer
from ldsearch.commands.imitation import imitator
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import DataError
from ldsearch.search.loop import search
from ldsearch.search.rules import Listed
from ldsearch.space import DepthGenes, Space
from ldsearch.subnet import Subnet
from tests.translators import sentences

FLAGS = ("--max_steps", "1", "--disable_tqdm", "True")
LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
PEGASUS = {"model_type": "pegasus", "d_model": 16, "max_position_embeddings": 32} | {
    f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in SIDE.items()
}


def unsettled(folder: Path, silent: str) -> Bench:
    """Random weights; the block called so adds nothing to what enters it."""
    path = folder / "model.safetensors"
    generator = torch.Generator().manual_seed(0)
    last = ("o_proj.weight", "down_proj.weight")
    tensors = {
        name: torch.zeros_like(tensor)
        if name.startswith(silent) and name.endswith(last)
        else 0.5 * torch.randn(tensor.shape, generator=generator)
        if tensor.ndim == 2
        else tensor
        for name, tensor in load_file(path).items()
    }
    save_file(tensors, path, metadata={"format": "pt"})
    return Bench.open(folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imitation")
    texts = list(dict.fromkeys(sentences(60)))
    for name, part in (("train", texts[:30]), ("validation", texts[30:])):
        rows = [{"source": text, "target": text[::-1]} for text in part]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in part))
    (folder / "causal.json").write_text(json.dumps({**LLAMA, "intermediate_size": 32}))
    (folder / "translation.json").write_text(json.dumps(PEGASUS))
    return folder


def trained(place: Path, task: str, suffix: str) -> Path:
    options = TrainSupernet(
        data=str(place / f"train{suffix}"),
        task=task,
        validation=str(place / f"validation{suffix}"),
        keep_overlap=task == "translation",
        model=str(place / f"{task}.json"),
        strategy="layerdrop",
        max_length=16,
        trainer=read_trainer(list(FLAGS)),
    )
    return train_supernet(place / "runs" / task, options)


@pytest.fixture(scope="module")
def writer(place: Path) -> Bench:
    """A language model of 3 blocks, the second of which does nothing."""
    return unsettled(trained(place, "causal", ".txt"), "model.layers.1.")


@pytest.fixture(scope="module")
def translator(place: Path) -> Bench:
    return unsettled(trained(place, "translation", ".jsonl"), "nothing")


def test_a_useless_block_is_found_without_labels(writer):
    space = Space("two", "of three", (DepthGenes("decoder", 3, (2,)),))
    evaluator = imitator(writer)
    line = Listed("every", list(space.enumerate()))
    result = search(line, evaluator, writer.full)
    (proposed,) = (trial.subnet for trial in result.frontier if trial.subnet in result.proposed)
    assert proposed == Subnet.of_blocks({"decoder": (0, 2)})
    found = {tried: trial.score.value for tried in space.enumerate() for trial in evaluator([tried])}
    assert found.pop(proposed) < 1e-9
    assert min(found.values()) > 0.1
    (full,) = evaluator([writer.full])
    assert full.metric == "kl"
    assert full.score.value < 1e-9


def test_a_translators_divergence_is_that_of_its_stock_models(translator, monkeypatch):
    monkeypatch.setattr(imitation, "ROWS", 8)
    evaluator = imitator(translator)
    assert evaluator.examples == 8
    subnets = [Subnet.of_blocks({"encoder": m, "decoder": n}) for m in ((0,), (0, 1)) for n in ((1,), (0, 1))]
    found = [trial.score.value for trial in evaluator(subnets)]
    expected = []
    teacher, *_ = models = [translator.supernet.materialise(subnet).eval() for subnet in subnets[::-1]]
    for model in models[::-1]:
        nats = []
        for feature in evaluator.encoded:
            batch = {name: torch.tensor([values]) for name, values in feature.items()}
            with torch.no_grad():
                theirs, ours = (m(**batch).logits[0].double().log_softmax(-1) for m in (teacher, model))
            nats.append(float(kl_div(ours, theirs, log_target=True, reduction="sum")) / len(theirs))
        expected.append(np.mean(nats))
    assert min(expected[:3]) > 1e-3
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_a_budget_takes_fewer_rows_and_the_same_score(writer):
    some, all_ = [Subnet.of_blocks({"decoder": (0,)})], imitator(writer)
    vocabulary = len(writer.tokenizer)
    longest = 4 * vocabulary * (writer.record.reference - 1)
    small = imitator(writer, 3 * longest)
    assert 3 <= small.examples < all_.examples
    rows = [list(all_.encoded).index(feature) for feature in small.encoded]
    statistics = [evaluator.statistics(some[0]) for evaluator in (small, all_)]
    np.testing.assert_allclose(statistics[0], statistics[1][rows], rtol=1e-4)
    assert small.fingerprint != all_.fingerprint
    with pytest.raises(DataError, match="a single row are larger than the budget"):
        imitator(writer, vocabulary)


def test_what_has_no_probabilities_is_refused_before_anything_runs(writer):
    class Number:
        objective = None

    with pytest.raises(DataError, match="kl compares probabilities"):
        imitator(replace(writer, task=Number()))
