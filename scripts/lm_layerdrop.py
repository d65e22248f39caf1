"""LayerDrop for a small language model: pruned by three strategies, against plain and shallow models.

Fan, Grave & Joulin 2019, Table 8 and Fig. 6, at a scale for two cores: 8-block Llamas on WikiText-2, trained
plainly and with LayerDrop at several rates; every depth of Every Other; half the blocks by Every Other, by
search on the search rows (all 70 choices) and by learned drop rates; shallow models from scratch with the
same steps; and the pruned models after a short fine-tuning without LayerDrop. Scores are nats per token on
report rows, which chose nothing; differences are paired over blocks of text. Finished trainings and
measurements are used again. The last line is one JSON object.

    python scripts/lm_layerdrop.py --data path/to/wikitext2 --out results/language_model
"""

import argparse
import gzip
import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import TrainSupernet
from ldsearch.search.rules import every_other, strongest
from ldsearch.search.signals import SIGNALS
from ldsearch.subnet import Subnet
from ldsearch.tasks.metrics import ratio
from ldsearch.training.recover import train_fixed
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.intervals import Statistics

BLOCKS, HALF = 8, 4
MODEL = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 384,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def subset(options: argparse.Namespace) -> str:
    """A folder with all training lines, and the first held-out ones."""
    folder: Path = options.runs / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in {"train": None, "validation": options.lines, "test": 2 * options.lines}.items():
        with gzip.open(Path(options.data) / f"{split}.txt.gz", "rt", encoding="utf-8") as text:
            (folder / f"{split}.txt").write_text("".join(list(text)[:lines]), encoding="utf-8")
    return str(folder)


def train(options: argparse.Namespace, name: str, blocks: int, rate: float) -> Path:
    """The folder of a training, finished now or before."""
    folder: Path = options.runs / name
    if not (folder / "supernet.json").is_file():
        print(f"training {name}", flush=True)
        config = options.runs / f"config-{blocks}.json"
        options.runs.mkdir(parents=True, exist_ok=True)
        write_json(config, {**MODEL, "num_hidden_layers": blocks})
        train_supernet(
            folder,
            TrainSupernet(
                task="causal",
                data=subset(options),
                model=str(config),
                strategy="layerdrop" if rate else "plain",
                layer_drop=(rate,) if rate else None,
                max_length=options.tokens,
                trainer={"bf16": True, "max_steps": options.steps, **trainer_flags(2e-3)},
            ),
        )
    return folder


def trainer_flags(rate: float) -> dict[str, Any]:
    """What trainings and fine-tunings give the Trainer alike."""
    return {
        "learning_rate": rate,
        "logging_steps": 100,
        "save_strategy": "steps",
        "save_steps": 200,
        "disable_tqdm": "True",
    }


def kept(blocks: tuple[int, ...]) -> Subnet:
    """A decoder's."""
    return Subnet.of_blocks({"decoder": blocks})


def by_search(bench: Bench) -> tuple[int, ...]:
    """The best half of the blocks on the search rows, of all."""
    choices = list(itertools.combinations(range(BLOCKS), HALF))
    trials = bench.evaluator([kept(blocks) for blocks in choices])
    losses = [trial.score.loss for trial in trials]
    return choices[losses.index(min(losses))]


def chosen_halves(bench: Bench) -> dict[str, tuple[int, ...]]:
    """Half the blocks by each strategy."""
    learned = SIGNALS["learned"](bench, HALF)
    return {
        "every-other": every_other(BLOCKS, HALF),
        "search": by_search(bench),
        "learned": strongest(learned, HALF),
    }


def main() -> None:
    """Train, prune, fine-tune, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with WikiText-2")
    parser.add_argument("--out", type=Path, required=True, help="where lm_layerdrop.json goes")
    parser.add_argument("--runs", type=Path, default=Path("runs/lm"), help="where models go")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=64, help="of a block of text")
    parser.add_argument("--lines", type=int, default=300, help="of the validation rows; twice that of test")
    parser.add_argument("--fine-tuning", type=int, default=100, help="steps of a pruned model")
    options = parser.parse_args()

    rates = {"plain": 0.0, "layerdrop-0.2": 0.2, "layerdrop-0.5": 0.5}
    benches = {name: Bench.open(train(options, name, BLOCKS, rate)) for name, rate in rates.items()}
    scratch = {
        depth: Bench.open(train(options, f"scratch-{depth}", depth, 0.0)) for depth in (HALF, HALF // 2)
    }

    def nats(bench: Bench, subnet: Subnet) -> tuple[float, Statistics]:
        held = bench.held_out
        assert held is not None
        rows = held.statistics(subnet)
        return round(float(ratio(rows.mean(axis=0))), 4), rows

    by_depth = {
        name: {depth: nats(bench, kept(every_other(BLOCKS, depth)))[0] for depth in range(BLOCKS, 0, -1)}
        for name, bench in benches.items()
    }
    print(by_depth, flush=True)
    halves, tuned = {}, {}
    from_scratch = nats(scratch[HALF], scratch[HALF].full)
    for name, bench in benches.items():
        for strategy, blocks in chosen_halves(bench).items():
            value, rows = nats(bench, kept(blocks))
            gap = bench.difference(rows, from_scratch[1])
            halves[f"{name}, {strategy}"] = {"blocks": blocks, "nats": value, "minus_scratch": asdict(gap)}
            print(name, strategy, halves[f"{name}, {strategy}"], flush=True)
        subnet = kept(every_other(BLOCKS, HALF))
        folder = options.runs / f"{name}-fine-tuned"
        flags = {"max_steps": options.fine_tuning, **trainer_flags(5e-4)}
        tuning = TrainSupernet(teacher="none", trainer=flags)
        after = Bench.open(train_fixed(bench, folder, subnet, tuning))
        value, rows = nats(after, subnet)
        tuned[name] = {"nats": value, "minus_scratch": asdict(bench.difference(rows, from_scratch[1]))}
        print(name, "fine-tuned", tuned[name], flush=True)
    result = {
        "question": "nats per token (lower is better) on rows that neither trained nor chose anything",
        "steps": options.steps,
        "tokens_a_step": 32 * options.tokens,
        "every_other_by_rate_and_depth": by_depth,
        "half_by_strategy": halves,
        "half_after_fine_tuning": tuned,
        "from_scratch": {depth: nats(bench, bench.full)[0] for depth, bench in scratch.items()},
        "interval": "of perplexities, paired over blocks of text",
        "versions": versions(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "lm_layerdrop.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
