"""Two processes are one: on gloo, changing blocks, accumulation, unlike ranks; the same weights."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.tasks.tokens import TokenClassification
from ldsearch.training.strategies import Setting, make_strategy
from tests import fresh
from tests.tiny import small_setting, tiny_model
from tests.training.test_trainer import examples, trainer_for, without_dropout

HEADS = {
    # Its drop rates are learned.
    "layerdrop": ("SequenceClassification", TextClassification),
    "lengthdrop": ("TokenClassification", TokenClassification),
}


def work(folder: Path, batch: int, rank: int | None = None, port: int = 0) -> None:
    """Train with every strategy, alone or as torchrun starts one of two processes; save what came of it."""
    if rank is not None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for strategy in HEADS:
        torch.save(train(folder / strategy, batch, strategy), folder / f"{strategy}-{rank}.pt")


def train(folder: Path, batch: int, strategy: str) -> dict[str, Any]:
    """Dropout is off, so that processes differ in nothing but the rows they see."""
    head, task = HEADS[strategy]
    supernet = without_dropout(Supernet(tiny_model("bert", head=head).double()))
    rows = examples(240)
    setting = small_setting(0.5)
    if strategy == "layerdrop":
        setting = Setting.of(supernet, 16, layer_drop=(0.5,), schedule="learned")
    else:
        # Batches hold rows of like length: that ranks differ is that not every token counts.
        labels = [[-100 if token % 5 < 2 else token % 3 for token in row["input_ids"]] for row in rows]
        rows = Encoded(tuple({**row, "labels": own} for row, own in zip(rows, labels, strict=True)), 16)
    trainer = trainer_for(
        folder,
        make_strategy(strategy, setting),
        supernet,
        {"task": task({}, ("a", "b", "c"), {}), "train": rows, "search": rows},
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=2,
        max_steps=8,
        learning_rate=0.05,
        # A bound would hide a gradient of the wrong size.
        max_grad_norm=0.0,
        # Adam would blow up rounding where a gradient is zero but for it (key biases).
        optim="sgd",
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
    )
    named, drawn = trainer.strategy.passes, []

    def recording(draws, progress):
        passes = named(draws, progress)
        drawn.extend(one.subnet.to_json() for one in passes)
        return passes

    trainer.strategy.passes = recording
    trainer.train()
    rates = torch.tensor(setting.now.stacks["encoder"].layer_rates)
    return {"weights": supernet.model.state_dict(), "rates": rates, "drawn": drawn}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes saved with every strategy, and what one saved."""
    folder = tmp_path_factory.mktemp("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ThreadPoolExecutor(3) as pool:
        ranks = [pool.submit(fresh.run, work, folder, 6, rank, port) for rank in range(2)]
        for done in (*ranks, pool.submit(fresh.run, work, folder, 12)):
            assert done.result().returncode == 0, done.result().stderr
    return folder


@pytest.mark.parametrize("strategy", HEADS)
def test_two_processes_end_where_one_does_on_the_same_global_batch(folder, strategy):
    first, second, alone = (
        torch.load(folder / f"{strategy}-{rank}.pt", weights_only=True) for rank in (0, 1, None)
    )
    assert first["drawn"] == second["drawn"] == alone["drawn"]
    assert len(set(alone["drawn"])) > 5
    assert torch.equal(first["rates"], second["rates"])
    torch.testing.assert_close(first["rates"], alone["rates"], atol=1e-4, rtol=0)
    assert (len(alone["rates"].unique()) > 1) == (strategy == "layerdrop")
    start = tiny_model("bert", head=HEADS[strategy][0]).double().state_dict()
    assert any(not torch.equal(start[name], tensor) for name, tensor in alone["weights"].items())
    for name, tensor in alone["weights"].items():
        assert torch.equal(first["weights"][name], second["weights"][name]), name
        torch.testing.assert_close(first["weights"][name], tensor, atol=1e-7, rtol=0)
