"""What of the golden tables goes through the Python API: the only part that changes with it.

``golden.py`` writes what these functions give.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ldsearch import Bench
from ldsearch.errors import LdsearchError
from ldsearch.search.loop import StrategyContext, search
from ldsearch.search.strategies import SEARCHES
from ldsearch.space import load_space
from ldsearch.subnet import Subnet
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.trials.trial import Score, Trial

SPACES = ("length-adaptive-6x128", "layerdrop-16to8", "joint-6x128", "joint-groups-12x128")
EVALUATIONS = 60
SEEDS = (0, 1)
STEPS = 12  # whose passes are drawn
SCORED = 12  # sub-networks of each kind
# One setting of each kind of training strategy: the strategy, its stacks' drop rates, and other fields.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "layerdrop": ("layerdrop", {"rates": (0.3,) * 4}),
    "layerdrop-linear": ("layerdrop", {"rates": (0.0, 0.2, 0.4, 0.6), "min_layers": 2}),
    "layerdrop-groups": ("layerdrop", {"rates": (0.3,) * 4, "drop_groups": "head+ffn+sublayer+layer"}),
    "layerdrop-parity": ("layerdrop", {"rates": (0.3,) * 4, "teacher_drops": True}),
    "lengthdrop": ("lengthdrop", {"plain_share": 0.3, "rates": (0.0, 0.2, 0.2, 0.0)}),
    "lengthdrop-shares": ("lengthdrop", {"sandwich": "shares"}),
    "lengthdrop-parity": ("lengthdrop", {"teacher_drops": True, "length_mode": "absolute"}),
    "flexible": ("flexible-depth", {"decoder": 4}),
    "flexible-sampled": (
        "flexible-depth",
        {"decoder": 4, "assignment": "seq", "encoder_tasks": 2, "decoder_tasks": 1},
    ),
    "flexible-lengths": ("flexible-depth", {"depth_lengths": True}),
}


def proposals() -> dict[str, list[list[str]]]:
    """What every search proposes on planted scores and costs, generation by generation."""
    found = {}
    for space_name in SPACES:
        loaded = load_space(space_name)
        for name, strategy in SEARCHES.items():
            # As these were searched before spaces kept to what was trained.
            space = loaded.widened() if name == "lat" or len(loaded.varies) > 1 else loaded
            for seed in SEEDS:
                key = f"{name} on {space_name}, seed {seed}"
                try:
                    proposer = strategy.build(StrategyContext(space, planted_costs, seed, EVALUATIONS))
                except LdsearchError as error:
                    found[key] = [[str(error)]]
                    continue
                result = search(
                    proposer, planted, space.full(), evaluations=EVALUATIONS, patience=strategy.patience
                )
                generations: dict[int, list[str]] = {}
                for trial in result.trials:
                    generations.setdefault(trial.generation, []).append(words(trial.subnet))
                found[key] = [*generations.values(), [result.stopped]]
    return found


def words(subnet: Subnet) -> str:
    """A sub-network, short: blocks, tokens, and what is off."""
    parts = []
    for name, stack in json.loads(subnet.to_json()).items():
        if name != "version":
            rest = [stack[key] for key in sorted(stack) if key not in ("blocks", "lengths")]
            tokens = " ".join(map(str, stack.get("lengths", {}).get("tokens", [])))
            parts.append(f"{' '.join(map(str, stack['blocks']))}|{tokens}|{json.dumps(rest) if rest else ''}")
    return " / ".join(parts)


def shares(subnet: Subnet) -> list[tuple[int, float]]:
    """(block, what is left of it) of the encoder: tokens, and a quarter less for each group that is off."""
    stack = json.loads(subnet.to_json())["encoder"]
    lengths = stack.get("lengths")
    left = [1.0] * len(stack["blocks"])
    if lengths:
        left = [tokens / lengths["reference"] for tokens in lengths["tokens"]]
    off = [block for key in ("heads_off", "ffn_share", "sublayers_off") for block, _ in stack.get(key, [])]
    left = [part * 0.75 ** off.count(block) for block, part in zip(stack["blocks"], left, strict=True)]
    return list(zip(stack["blocks"], left, strict=True))


def planted_costs(subnets: Sequence[Subnet]) -> np.ndarray:
    """What is left of every block, and the square of it, as attention costs."""
    return np.array([sum(part + part**2 / 4 for _, part in shares(subnet)) for subnet in subnets])


def planted(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
    """Scores that rise with what is left, of some blocks more than of others, with noise of their own."""
    trials = []
    for subnet, cost in zip(subnets, planted_costs(subnets).tolist(), strict=True):
        useful = sum((1 + block % 3) * part**0.5 for block, part in shares(subnet))
        noise = int(hashlib.sha256(words(subnet).encode()).hexdigest()[:8], 16) / 2**32
        score = Score(1 - 1 / (1 + useful) + 0.01 * noise)
        trials.append(Trial(subnet, "planted", score, {"macs": cost}, 1, "search", 0.0, "", generation))
    return trials


def passes() -> dict[str, list[list[str]]]:
    """The passes of the first steps of every training strategy: sub-network, loss, weight, rows."""
    found = {}
    for name, (strategy, fields) in SETTINGS.items():
        others = dict(fields)
        rates, least = others.pop("rates", (0.0,) * 4), others.pop("min_layers", 0)
        stacks = {"encoder": StackSetting(4, rates, min_layers=least, heads=2)}
        if decoder := others.pop("decoder", 0):
            stacks["decoder"] = StackSetting(decoder, (0.0,) * decoder)
        made = make_strategy(strategy, Setting(stacks, 32, Fraction(2, 5), **others))
        found[name] = [
            [
                f"{words(one.subnet)} {one.loss} {one.weight:.6g} {one.rows[0]}:{one.rows[1]}"
                for one in made.passes(
                    lambda index, step=step: np.random.default_rng([0, step, 0, index]), step / STEPS
                )
            ]
            for step in range(STEPS)
        ]
    return found


def fixed_list(depths: Mapping[str, int], reference: int, shortens: bool) -> list[Subnet]:
    """The full model, blocks drawn at random and, where tokens can be dropped, lengths."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(2 * SCORED):
        fields: dict[str, Any] = {"version": 1}
        for stack, blocks in depths.items():
            count = int(rng.integers(1, blocks + 1))
            kept = sorted(rng.choice(blocks, count, replace=False).tolist())
            fields[stack] = {"blocks": kept}
            if shortens and stack == "encoder" and number % 2:
                tokens = sorted(rng.integers(2, reference + 1, count).tolist(), reverse=True)
                fields[stack]["lengths"] = {"mode": "ratio", "reference": reference, "tokens": tokens}
        found.append(Subnet.from_json(json.dumps(fields)))
    return list(dict.fromkeys([Subnet.full(**depths), *found]))


def scores(folders: Mapping[str, Path]) -> dict[str, Any]:
    """Scores, costs and per-example statistics of a fixed list of sub-networks of each trained model."""
    found: dict[str, Any] = {}
    for name, folder in folders.items():
        if not (folder / "supernet.json").is_file():
            continue
        for split in ("search", "report"):
            bench = Bench.open(folder, split)
            supernet = bench.supernet
            subnets = fixed_list(supernet.depths, 32, supernet.supports_lengths)
            trials = bench.evaluator(subnets)
            found[f"{name}, {split}"] = [
                {
                    "subnet": words(trial.subnet),
                    "score": trial.score.value,
                    "standard_error": trial.standard_error,
                    "costs": dict(trial.costs),
                    "examples": trial.examples,
                    "statistics": float(np.square(bench.evaluator.statistics(trial.subnet)).sum()),
                }
                for trial in trials
            ]
    return found
