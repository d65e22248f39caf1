"""Trains a tiny supernet for some steps, as one of several processes or alone, and saves its weights."""

import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from transformers import BertTokenizer, TrainingArguments

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from tests.tiny import VOCABULARY, tiny_model

ROWS, LENGTH, STEPS = 240, 12, 20


def main(folder: Path, batch: int, strategy: str) -> None:
    """Dropout is off, so that processes differ in nothing but the rows they see."""
    model = tiny_model("bert", labels=3)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    rng = np.random.default_rng(0)
    # Of one length, so that a batch cut in two is two batches.
    features = tuple(
        {
            "input_ids": rng.integers(5, VOCABULARY, LENGTH).tolist(),
            "attention_mask": [1] * LENGTH,
            "labels": row % 3,
        }
        for row in range(ROWS)
    )
    encoded = Encoded(features, LENGTH)
    supernet = Supernet(model)
    setting = Setting({"encoder": StackSetting(4, (0.5,) * 4, heads=2)}, LENGTH, Fraction(1, 3))
    if strategy == "layerdrop":
        setting = Setting.of(supernet, LENGTH, layer_drop=(0.5,), schedule="learned")
    trainer = SupernetTrainer(
        supernet,
        make_strategy(strategy, setting),
        TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=2,
            max_steps=STEPS,
            learning_rate=0.05,
            # Adam would blow up rounding where a gradient is zero but for it (key biases).
            optim="sgd",
            use_cpu=True,
            ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        ),
        task=TextClassification({}, ("a", "b", "c"), {}),
        train=encoded,
        search=encoded,
        tokenizer=BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}),
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn: list[Subnet] = []
    named = trainer.strategy.passes
    trainer.strategy.passes = lambda draws, progress: [
        drawn.append(one.subnet) or one for one in named(draws, progress)
    ]
    trainer.train()
    rank = int(os.environ.get("RANK", "0"))
    moved = any(not torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    result = {"weights": model.state_dict(), "drawn": [one.to_json() for one in drawn], "moved": moved}
    result["rates"] = torch.tensor(setting.now.stacks["encoder"].layer_rates)
    torch.save(result, folder / f"rank-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
