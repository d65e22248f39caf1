"""Training models that write: flexible depth's one step, LayerDrop on both stacks, recomputed blocks."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, TrainingArguments

from ldsearch.errors import TrainingError
from ldsearch.space.assignments import configurations
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from ldsearch.tasks.base import Encoded
from ldsearch.tasks.sequences import SequenceToSequence
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from tests.tiny import padded_batch, tiny_decoder, tiny_encoder_decoder
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


def setting(rate: float = 0.0, **changes: object) -> Setting:
    stacks = {name: StackSetting(blocks, (rate,) * blocks) for name, blocks in DEPTHS.items()}
    return Setting(stacks, 16, Fraction(9, 25), **changes)


def trainer_for(
    folder: Path, supernet: Supernet, strategy: str, options: Setting, rows: int = 4, accumulated: int = 1
) -> SupernetTrainer:
    """Of one step on four examples with plain SGD."""
    return SupernetTrainer(
        supernet,
        make_strategy(strategy, options),
        TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulated,
            max_steps=1,
            optim="sgd",
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_grad_norm=0,
            report_to="none",
            use_cpu=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="no",
        ),
        task=SequenceToSequence({}, (), {}),
        train=examples(4),
        search=examples(2),
        tokenizer=word_tokenizer(),
    )


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_one_step_of_flexible_depth_is_the_sum_of_its_tasks_separate_gradients(name, tmp_path):
    supernet, reference = Supernet(still(name).double()), still(name).double()
    trainer = trainer_for(tmp_path, supernet, "flexible-depth", setting())
    batch = trainer.data_collator([dict(row) for row in examples(4)])
    tasks = configurations(DEPTHS, "optimal")
    assert len(tasks) == 6  # two depths of the encoder, three of the decoder
    before = {key: p.detach().clone() for key, p in supernet.model.named_parameters()}
    summed = {key: torch.zeros_like(p) for key, p in before.items()}
    for subnet in tasks.values():
        reference.zero_grad()
        # Stock loss of the stock model that the sub-network is, of its own weights.
        Supernet(reference).materialise(subnet)(**batch).loss.backward()
        for key, gradient in gradients(reference).items():
            summed[key] += gradient
    trainer.train()
    assert trainer.state.global_step == 1
    for key, parameter in supernet.model.named_parameters():
        taken = (before[key] - parameter.detach()) / RATE
        torch.testing.assert_close(taken, summed[key], atol=1e-6, rtol=1e-6, msg=key)
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in summed.values())


@pytest.mark.parametrize(("rows", "accumulated"), [(2, 2), (1, 4)])
def test_a_token_weighs_the_same_in_every_micro_batch_of_an_update(rows, accumulated, tmp_path):
    """As fairseq, which the papers use, normalises by the tokens of the whole update."""
    lengths = [len(row["labels"]) for row in examples(4)]
    assert max(lengths) > 2 * min(lengths)
    updated = []
    for split in ((4, 1), (rows, accumulated)):
        supernet = Supernet(still("bart").double())
        trainer_for(tmp_path, supernet, "plain", setting(), *split).train()
        updated.append(dict(supernet.model.named_parameters()))
    for key, parameter in updated[0].items():
        torch.testing.assert_close(updated[1][key] / RATE, parameter / RATE, atol=1e-5, rtol=0, msg=key)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_what_is_trained_at_a_depth_is_what_runs_at_it(name, tmp_path, monkeypatch):
    supernet, seen = Supernet(still(name)), []
    options = setting(batch_share=0.5)
    trainer, run = trainer_for(tmp_path, supernet, "flexible-depth", options), Supernet.forward

    def watched(self, batch, subnet, between=None):
        output = run(self, batch, subnet, between)
        seen.append((batch, subnet, self.training, output.logits.detach()))
        return output

    monkeypatch.setattr(Supernet, "forward", watched)
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer.data_collator([dict(row) for row in examples(4)])
    trainer.training_step(supernet, dict(batch))
    trained = [*seen]
    assert {subnet for _, subnet, _, _ in trained} == {*configurations(DEPTHS, "optimal").values()}
    assert all(training for _, _, training, _ in trained)
    rows = trained[0][0]["input_ids"]
    assert any(torch.equal(rows, batch["input_ids"][offset::2]) for offset in (0, 1))
    for read, subnet, _, logits in trained:
        assert torch.equal(read["input_ids"], rows)
        torch.testing.assert_close(inference(supernet, read, subnet), logits, atol=1e-5, rtol=1e-5)
        own = supernet.materialise(subnet).eval()
        with torch.inference_mode():
            torch.testing.assert_close(own(**read).logits, logits, atol=1e-5, rtol=1e-5)


def test_layerdrop_drops_blocks_of_both_stacks_each_by_itself(tmp_path):
    """And gradients reach what ran: nobody else has any."""
    supernet = Supernet(still("bart"))
    drawn = make_strategy("layerdrop", setting(0.5))
    passes = [drawn.passes(lambda i, s=s: np.random.default_rng([s, i]), 0.0) for s in range(400)]
    runs = np.array(
        [
            [
                block in one.subnet.stacks()[name].blocks
                for name, depth in DEPTHS.items()
                for block in range(depth)
            ]
            for (one,) in passes
        ]
    )
    # 400 fair coins a block: within four standard deviations of a half, and no two blocks alike.
    assert (np.abs(runs.mean(axis=0) - 0.5) < 0.1).all()
    assert (np.abs(np.corrcoef(runs.T) - np.eye(7)) < 0.2).all()
    trainer = trainer_for(tmp_path, supernet, "layerdrop", setting(0.5))
    trainer.current_gradient_accumulation_steps = 1
    trainer.training_step(supernet, dict(trainer.data_collator([dict(row) for row in examples(4)])))
    (one,) = trainer.strategy.passes(lambda i: np.random.default_rng([42, 0, 0, i]), 0.0)
    assert 0 < sum(len(stack.blocks) for stack in one.subnet.stacks().values()) < 7
    for name, stack in one.subnet.stacks().items():
        for block, layer in enumerate(supernet.layers_of(name)):
            assert {p.grad is not None for p in layer.parameters()} == {block in stack.blocks}, (name, block)


RECOMPUTED: list[tuple[Callable[[], PreTrainedModel], Subnet, dict[str, int]]] = [
    (lambda: tiny_decoder("llama"), Subnet(decoder=Stack((1, 3))), {"decoder": 3}),
    (lambda: tiny_encoder_decoder("t5"), Subnet(Stack((1, 2)), Stack((1, 3))), {"encoder": 2, "decoder": 3}),
    (
        lambda: tiny_encoder_decoder("bart"),
        Subnet(Stack((0, 2), Lengths((6, 3), 8)), Stack((1, 3))),
        {"encoder": 2, "decoder": 3},
    ),
]


@pytest.mark.parametrize(("make", "subnet", "watched"), RECOMPUTED, ids=["llama", "t5", "bart"])
def test_recomputed_blocks_have_the_same_gradients(make, subnet, watched):
    found, runs = [], []
    for recompute in (False, True):
        supernet = Supernet(make()).train()
        if recompute:
            supernet.gradient_checkpointing_enable()
        calls = dict.fromkeys(watched, 0)

        def count(name, calls=calls):
            calls[name] += 1

        for name, block in watched.items():
            # Inside the block, whose copies share it; the last modules are not run again.
            inside = next(m for m in supernet.layers_of(name)[block].modules() if "Norm" in type(m).__name__)
            inside.register_forward_hook(lambda module, inputs, output, name=name: count(name))
        batch = {**padded_batch([8, 5]), "labels": padded_batch([6, 6], seed=1)["input_ids"]}
        torch.manual_seed(0)
        supernet(supernet.inputs(batch), subnet).logits.square().sum().backward()
        found.append(gradients(supernet.model))
        runs.append(calls)
    assert runs[0] == dict.fromkeys(watched, 1)
    assert runs[1] == dict.fromkeys(watched, 2)
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, msg=key)


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
