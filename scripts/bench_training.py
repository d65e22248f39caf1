"""What a training step costs: LayerDrop at several rates (Fan et al. 2019, Fig. 7), and the sandwich.

Steps of the real trainer, optimizer step included, on random tokens: a BERT of MiniLM's width. Every round
runs one step of each setting, so that a noisy machine is noisy for all; a step's draws are those of the
strategy. Ratios are to a plain step of the same model and batch. The last line is one JSON object.

    python scripts/bench_training.py --out results/training
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, TrainingArguments

from ldsearch.costs.macs import Macs
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.space.lengths import default_bound
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.training.drop_rates import constant
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.workload import Workload

WIDTH, HEADS, FEED_FORWARD, VOCABULARY = 384, 12, 1536, 8_000
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75)
SANDWICHES = ("paper", "shares")


@dataclass
class Timed:
    """One setting: its trainer, and what its steps took and ran.

    Args:
        trainer: Makes the steps.
        macs: Forward MACs of a pass.
        seconds: Of each step.
        executed: Forward MACs of each step, as a share of a plain step's.
    """

    trainer: SupernetTrainer
    macs: Macs
    seconds: list[float]
    executed: list[float]

    def step(self, count: int) -> None:
        """One optimizer step."""
        trainer = self.trainer
        trainer.state.global_step = count
        batch = trainer.data_collator(
            [trainer.train_dataset[row] for row in range(trainer.args.train_batch_size)]
        )
        passes = trainer.strategy.passes(trainer._next_draws(), 0.99)
        start = time.perf_counter()
        trainer.training_step(trainer.supernet, batch)
        torch.nn.utils.clip_grad_norm_(trainer.supernet.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - start)
        full = self.macs([trainer.supernet.full])[0]
        shares = [self.macs([one.subnet])[0] / one.rows[1] for one in passes]
        self.executed.append(float(sum(shares) / full))


def timed(strategy: str, blocks: int, rate: float, sandwich: str, options: argparse.Namespace) -> Timed:
    """A setting on its own model and random tokens."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=blocks,
        num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD,
        num_labels=2,
    )
    supernet = Supernet(BertForSequenceClassification(config))
    rng = np.random.default_rng(0)
    features = tuple(
        {
            "input_ids": rng.integers(5, VOCABULARY, options.tokens).tolist(),
            "attention_mask": [1] * options.tokens,
            "labels": row % 2,
        }
        for row in range(options.batch)
    )
    encoded = Encoded(features, options.tokens)
    setting = Setting(
        stacks={"encoder": StackSetting(blocks, constant(rate, blocks))},
        reference=options.tokens,
        drop_bound=default_bound(blocks),
        sandwich=sandwich,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=options.batch,
        bf16=True,
        use_cpu=True,
        report_to="none",
        remove_unused_columns=False,
    )
    trainer = SupernetTrainer(
        supernet,
        make_strategy(strategy, setting),
        arguments,
        task=TextClassification({}, ("a", "b"), {}),
        train=encoded,
        search=encoded,
        tokenizer=BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}),
    )
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1
    # As training does it: this is what puts the forward passes under bf16 autocast.
    trainer.accelerator.prepare(supernet)
    return Timed(trainer, Macs(supernet.shape, Workload.padded(options.tokens)), [], [])


def rounds(settings: dict[str, Timed], count: int) -> None:
    """Interleaved steps; the first two of each warm up and are not counted."""
    for step in range(count + 2):
        for one in settings.values():
            one.step(step)
    for one in settings.values():
        del one.seconds[:2], one.executed[:2]


def ratios(settings: dict[str, Timed], plain: str) -> dict[str, dict[str, float]]:
    """Mean step time over the plain one's: single draws differ, so a median would be one draw's."""
    base = np.mean(settings[plain].seconds)
    return {
        name: {
            "step_seconds": round(float(np.mean(one.seconds)), 4),
            "ratio": round(float(np.mean(one.seconds) / base), 3),
            "median_of_paired_ratios": round(
                float(np.median(np.array(one.seconds) / np.array(settings[plain].seconds))), 3
            ),
            "macs_ratio": round(float(np.mean(one.executed)), 3),
        }
        for name, one in settings.items()
    }


def main() -> None:
    """Time, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where bench_training.json goes")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()

    drop = {f"p = {rate}": timed("layerdrop", 12, rate, "shares", options) for rate in RATES}
    rounds(drop, options.rounds)
    sandwich = {"plain": timed("plain", 6, 0.2, "shares", options)}
    sandwich |= {name: timed("lengthdrop", 6, 0.2, name, options) for name in SANDWICHES}
    rounds(sandwich, options.rounds)
    result = {
        "question": "time of a training step, optimizer step included, beside a plain step",
        "model": f"BERT, width {WIDTH}, feed-forward {FEED_FORWARD}, vocabulary {VOCABULARY}, bf16 autocast",
        "batch": options.batch,
        "tokens": options.tokens,
        "rounds": options.rounds,
        "threads": torch.get_num_threads(),
        "layerdrop_12_blocks": ratios(drop, "p = 0.0"),
        "sandwich_6_blocks": ratios(sandwich, "plain"),
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "bench_training.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
