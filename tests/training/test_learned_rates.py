"""Drop rates learned in training: planted blocks, exact mean, the weights' own training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import TrainerCallback

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.tasks import Encoded
from ldsearch.training import trainer as trainer_module
from ldsearch.training.strategies import Setting, make_strategy
from tests.tiny import VOCABULARY, tiny_model
from tests.training.test_trainer import trainer_for, without_dropout

BLOCKS, USELESS = 6, {1, 4}


class Observer(TrainerCallback):
    """The rates that each step's sub-network is drawn at, and in the end the last ones."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.seen: list[tuple[float, ...]] = []

    def on_step_begin(self, args, state, control, **_):
        self.seen.append(self.setting.now.stacks["encoder"].layer_rates)

    on_train_end = on_step_begin


def learned(
    folder: Path, supernet: Supernet, rate: float, schedule: str = "learned", **arguments: object
) -> np.ndarray:
    """The rates before each step of a training and after the last, shape (steps + 1, blocks)."""
    seed = arguments.get("seed", 0)
    setting = Setting.of(supernet, 16, layer_drop=(rate,), schedule=schedule, seed=seed)
    trainer = trainer_for(folder, make_strategy("layerdrop", setting), supernet, **arguments)
    observer = Observer(setting)
    trainer.add_callback(observer)
    trainer.train()
    return np.array(observer.seen)


def planted(seed: int) -> tuple[Supernet, Encoded]:
    """A pre-norm model two of whose blocks add nothing and learn nothing; its own answers are the labels.

    So the other blocks carry the task. Block 0 is pinned.
    """
    model = tiny_model("modernbert", blocks=BLOCKS, seed=seed)
    for block in USELESS:
        layer = model.model.layers[block]
        for weight in (layer.attn.Wo.weight, layer.mlp.Wo.weight):
            nn.init.zeros_(weight).requires_grad_(False)
    supernet = Supernet(model)
    ids = np.random.default_rng(seed).integers(5, VOCABULARY, (256, 12)).tolist()
    full = inference(supernet, {"input_ids": torch.tensor(ids)}, Subnet.full(BLOCKS))
    answers = (full - full.mean(dim=0)).argmax(dim=-1).tolist()
    rows = tuple(
        {"input_ids": row, "attention_mask": [1] * 12, "labels": label}
        for row, label in zip(ids, answers, strict=True)
    )
    return without_dropout(supernet), Encoded(rows, 16)


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_useless_blocks_end_with_the_highest_rates(tmp_path, seed):
    supernet, rows = planted(seed)
    options = {"max_steps": 300, "per_device_train_batch_size": 16, "learning_rate": 3e-4}
    rates = learned(tmp_path, supernet, 0.3, given={"train": rows}, seed=seed, **options)
    assert set(np.argsort(-rates[-1])[:2].tolist()) == USELESS
    # Clear of the others, not by chance.
    ordered = np.sort(rates[-1][1:])
    assert ordered[-2] > 1.5 * ordered[-3]
    assert ordered[-2] > 0.3


def test_rates_start_equal_and_their_mean_is_exact_at_each_step_with_pinned_blocks_and_cut_at_one(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(trainer_module, "LEARNING_RATE", 0.1)  # so fast that rates reach 1
    rates = learned(tmp_path, Supernet(tiny_model("modernbert", blocks=BLOCKS)), 0.6, max_steps=40)
    assert rates.shape == (41, BLOCKS)
    assert (rates[:, 0] == 0).all()  # pinned
    assert rates[0, 1:] == pytest.approx(0.6, abs=1e-6)
    assert np.abs(rates[:, 1:].mean(axis=1) - 0.6).max() < 1e-6
    assert rates.max() == 1
    assert rates.min() >= 0
    assert (np.diff(rates, axis=0) != 0).any(axis=1).all()  # every step moves some


@pytest.mark.parametrize("family", ["bert", "layoutlm"])
def test_but_for_their_rates_weights_train_as_with_layerdrop(tmp_path, monkeypatch, family):
    """Rates that do not move: the same sub-networks, gradients and weights.

    Not to the bit: gates read all that leaves the last block, where the head reads one token. The gradient of
    a key's bias is 0 but for rounding, which AdamW scales up.
    """
    monkeypatch.setattr(trainer_module, "LEARNING_RATE", 0.0)
    weights = []
    for schedule in ("learned", "constant"):
        supernet = without_dropout(Supernet(tiny_model(family)))
        learned(tmp_path / schedule, supernet, 0.5, schedule, max_steps=8, gradient_accumulation_steps=2)
        weights.append(supernet.model.state_dict())
    for name, tensor in weights[0].items():
        if name.endswith(("key.bias", "k_lin.bias")):
            continue
        torch.testing.assert_close(tensor, weights[1][name], rtol=0, atol=1e-5, msg=name)
