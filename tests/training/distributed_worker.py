"""Trains tiny supernets for some steps, as one of several processes or alone, and saves their weights.

Of ``classification`` all rows are of one length; of ``tokens`` rows differ in tokens and in labels.
"""

import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.tasks.tokens import TokenClassification
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from tests.tiny import VOCABULARY, tiny_model
from tests.training.test_trainer import trainer_for, without_dropout

ROWS, LENGTH, STEPS = 240, 12, 20
CASES = [("lengthdrop", "classification"), ("layerdrop", "classification"), ("lengthdrop", "tokens")]
KINDS = {
    "classification": ("SequenceClassification", TextClassification),
    "tokens": ("TokenClassification", TokenClassification),
}


def rows_of(kind: str) -> tuple[dict[str, list[int] | int], ...]:
    """Rows of one length, so that a batch cut in two is two batches; or unlike in tokens and in labels."""
    rng = np.random.default_rng(0)
    features = []
    for row in range(ROWS):
        length = LENGTH if kind == "classification" else int(rng.integers(3, LENGTH + 1))
        ids = rng.integers(5, VOCABULARY, length).tolist()
        labels: list[int] | int = row % 3
        if kind == "tokens":
            # Batches hold rows of like length: that ranks differ is that not every token counts.
            labels = rng.choice([-100, 0, 1, 2], length, p=(0.4, 0.2, 0.2, 0.2)).tolist()
        features.append({"input_ids": ids, "attention_mask": [1] * length, "labels": labels})
    return tuple(features)


def main(folder: Path, batch: int) -> None:
    """Train every case in a folder of its own."""
    for strategy, kind in CASES:
        own = folder / f"{strategy}-{kind}"
        own.mkdir(parents=True, exist_ok=True)
        train(own, batch, strategy, kind)


def train(folder: Path, batch: int, strategy: str, kind: str) -> None:
    """Dropout is off, so that processes differ in nothing but the rows they see."""
    head, task = KINDS[kind]
    model = tiny_model("bert", labels=3, head=head).double()
    encoded, supernet = Encoded(rows_of(kind), LENGTH), without_dropout(Supernet(model))
    setting = Setting({"encoder": StackSetting(4, (0.5,) * 4, heads=2)}, LENGTH, Fraction(1, 3))
    if strategy == "layerdrop":
        setting = Setting.of(supernet, LENGTH, layer_drop=(0.5,), schedule="learned")
    trainer = trainer_for(
        folder,
        make_strategy(strategy, setting),
        supernet,
        {"task": task({}, ("a", "b", "c"), {}), "train": encoded, "search": encoded},
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        learning_rate=0.05,
        # A bound would hide a gradient of the wrong size.
        max_grad_norm=0.0,
        # Adam would blow up rounding where a gradient is zero but for it (key biases).
        optim="sgd",
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
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
    main(Path(sys.argv[1]), int(sys.argv[2]))
