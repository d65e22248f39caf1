"""Training models that write: updates of tokens, LayerDrop on both stacks, recomputed blocks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from ldsearch.errors import TrainingError
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks.base import Encoded
from ldsearch.tasks.sequences import SequenceToSequence
from ldsearch.training.strategies import Setting, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from tests.tiny import padded_batch, tiny_decoder, tiny_encoder_decoder
from tests.training import test_trainer
from tests.training.test_strategies import passes_of, setting
from tests.training.test_trainer import gradients_of
from tests.translators import word_tokenizer

DEPTHS = {"encoder": 3, "decoder": 4}
RATE = 2.0**-7  # a power of two divides without rounding


def still(name: str) -> PreTrainedModel:
    """An encoder-decoder without dropout."""
    return tiny_encoder_decoder(name, **{"dropout_rate" if name.startswith("t5") else "dropout": 0.0})


def examples(count: int) -> Encoded:
    rng = np.random.default_rng(0)
    rows = tuple(
        {"input_ids": rng.integers(3, 60, n).tolist(), "labels": rng.integers(3, 60, t).tolist()}
        for n, t in rng.integers(2, 9, (count, 2)).tolist()
    )
    return Encoded(rows, 16, writes=True)


def trainer_for(
    folder: Path, supernet: Supernet, strategy: str, options: Setting, rows: int = 4, accumulated: int = 1
) -> SupernetTrainer:
    """Of one step on four examples with plain SGD."""
    given = {"task": SequenceToSequence({}, (), {}), "train": examples(4), "search": examples(2)}
    return test_trainer.trainer_for(
        folder,
        make_strategy(strategy, options),
        supernet,
        {**given, "tokenizer": word_tokenizer()},
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=accumulated,
        max_steps=1,
        optim="sgd",
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0,
    )


@pytest.mark.parametrize(("rows", "accumulated"), [(2, 2), (1, 4)])
def test_a_token_weighs_the_same_in_every_micro_batch_of_an_update(rows, accumulated, tmp_path):
    """As fairseq, which the papers use, normalises by the tokens of the whole update."""
    lengths = [len(row["labels"]) for row in examples(4)]
    assert max(lengths) > 2 * min(lengths)
    updated = []
    for split in ((4, 1), (rows, accumulated)):
        supernet = Supernet(still("bart").double())
        trainer_for(tmp_path, supernet, "plain", setting(0.0, DEPTHS), *split).train()
        updated.append({key: p / RATE for key, p in supernet.model.named_parameters()})
    torch.testing.assert_close(*updated, atol=1e-5, rtol=0)


def test_layerdrop_drops_blocks_of_both_stacks_each_by_itself():
    runs = np.zeros((400, 7))
    for seed in range(400):
        (one,) = passes_of(setting(0.5, DEPTHS), seed, name="layerdrop")
        runs[seed, list(one.subnet.encoder.blocks)] = 1
        runs[seed, [3 + block for block in one.subnet.decoder.blocks]] = 1
    # 400 fair coins a block: within four standard deviations of a half, and no two blocks alike.
    assert (np.abs(runs.mean(axis=0) - 0.5) < 0.1).all()
    assert (np.abs(np.corrcoef(runs.T) - np.eye(7)) < 0.2).all()


RECOMPUTED = {
    "llama": (tiny_decoder, Subnet(decoder=Stack((1, 3)))),
    "t5": (tiny_encoder_decoder, Subnet(Stack((1, 2)), Stack((1, 3)))),
    "bart": (tiny_encoder_decoder, Subnet(Stack((0, 2), Lengths((6, 3), 8)), Stack((1, 3)))),
}


@pytest.mark.parametrize("name", RECOMPUTED)
def test_recomputed_blocks_run_twice_and_have_the_same_gradients(name):
    (make, subnet), found = RECOMPUTED[name], []
    for times in (1, 2):
        supernet, calls = Supernet(make(name)).train(), []
        if times == 2:
            supernet.gradient_checkpointing_enable()
        for stack, own in subnet.stacks().items():
            # Inside the block, whose copies share it; the last modules are not run again.
            modules = supernet.layers_of(stack)[own.blocks[-1]].modules()
            inside = next(module for module in modules if "Norm" in type(module).__name__)
            inside.register_forward_hook(lambda *_, calls=calls, stack=stack: calls.append(stack))
        batch = {**padded_batch([8, 5]), "labels": padded_batch([6, 6], seed=1)["input_ids"]}
        torch.manual_seed(0)
        supernet(supernet.inputs(batch), subnet).logits.square().sum().backward()
        found.append(gradients_of(supernet.model))
        assert sorted(calls) == sorted([*subnet.stacks()] * times)
    torch.testing.assert_close(*found)


def test_stacks_have_rates_of_their_own():
    """As the paper's 12/6 set-ups need; a stack that is not named stays whole."""
    supernet = Supernet(tiny_encoder_decoder("bart"))  # of 3 and 4 blocks

    def rates(**options: object) -> dict[str, tuple[float, ...]]:
        return {name: stack.layer_rates for name, stack in Setting.of(supernet, 16, **options).stacks.items()}

    apart = {"encoder": (0.0, 0.5, 1.0), "decoder": (0.25,)}
    assert rates(layer_drop=apart) == {"encoder": (0.0, 0.5, 1.0), "decoder": (0.25,) * 4}
    assert rates(layer_drop={"decoder": (0.4,)}, schedule="linear")["decoder"] == (0.1, 0.2, 0.3, 0.4)
    assert rates(target_layers={"decoder": 3}) == {"encoder": (0.0,) * 3, "decoder": (0.25,) * 4}
    both = rates(target_layers={"decoder": 1}, layer_drop={"encoder": (0.5,)})
    assert both == {"encoder": (0.5,) * 3, "decoder": (0.75,) * 4}
    with pytest.raises(TrainingError, match="no middle"):
        rates(layer_drop={"middle": (0.5,)})
    with pytest.raises(TrainingError, match="one stack"):
        rates(schedule="learned")
