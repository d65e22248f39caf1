"""What choices from noisy scores lose: the default search on planted sub-networks of known true scores.

    python scripts/planted_regret.py --seeds 40
    python scripts/planted_regret.py --seeds 20 --rough 0.003

No model: an answer is right where a sub-network's ability exceeds the difficulty of the row, which all share,
and a remainder, alike for like lengths or each sub-network's own. Minutes on one core. The last line is one
JSON object.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import norm

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.search.evolve import Surrogate, fit_process, latent
from ldsearch.search.loop import StrategyContext, search
from ldsearch.space import LengthGenes, Space
from ldsearch.subnet import Subnet
from ldsearch.trials.goal import AtLeast, Budget, NoWorse
from ldsearch.trials.intervals import paired_bootstrap
from ldsearch.trials.trial import Score, Trial

SPACE = Space.of_lengths(LengthGenes.build(6, 64, 0.36))
COST = Macs(EncoderShape(6, 384, 1536), Workload.from_lengths([64, 40, 13], 64))
SUBNETS = list(SPACE.enumerate())
FEATURES = np.array([SPACE.features(subnet) for subnet in SUBNETS])
SHARES = COST(SUBNETS) / COST([SPACE.full()])[0]
INDEX = {subnet: i for i, subnet in enumerate(SUBNETS)} | {SPACE.full(): SUBNETS.index(SPACE.largest())}
FULL, LOSS, BUDGET, MARGINS = 0.9, 0.03, 0.5, (0.005, 0.02)
EVALUATIONS = 40
SHARED = 0.95  # of the variance of what makes a row hard


class Noisy(Surrogate):
    """The search as it was: raw scores are the best known, and noise is part of what a child promises."""

    def _predicted(self, known, scores, unknown):
        mean, deviation = fit_process(known, scores).predict(unknown, return_std=True)
        return scores, mean + deviation


def true_scores(seed: int, rough: float) -> np.ndarray:
    """From ``FULL`` down to ``LOSS`` less: diminishing returns of each length, and of neighbours together.

    Of all but the full model with deviations of their own, of so much, that no features explain.
    """
    rng = np.random.default_rng([seed, 0])
    steepness = rng.uniform(1, 4, FEATURES.shape[1])
    single = (1 - np.exp(-steepness * FEATURES)) @ rng.dirichlet(np.full(FEATURES.shape[1], 0.7))
    pairs = (FEATURES[:, :-1] * FEATURES[:, 1:]) @ rng.dirichlet(np.full(FEATURES.shape[1] - 1, 0.7))
    worth = 0.7 * single + 0.3 * pairs
    # Squared: as measured supernets do, most lose little until much is dropped.
    lost = LOSS * ((worth.max() - worth) / np.ptp(worth)) ** 2
    return FULL - lost + rough * (lost > 0) * rng.standard_normal(len(lost))


def answers(truth: np.ndarray, seed: int, rows: int, alike: bool) -> Callable[[int], np.ndarray]:
    """Whether a sub-network, by its index, is right on each row: shape (rows,), 1 or 0."""
    rng = np.random.default_rng([seed, 1])
    hard, base, *slopes = rng.standard_normal((2 + FEATURES.shape[1], rows))
    ability = norm.ppf(truth)

    @cache
    def right(index: int) -> np.ndarray:
        dropped = 1 - FEATURES[index]
        own = (base + dropped @ np.array(slopes)) / np.sqrt(1 + dropped @ dropped)
        if not alike:
            own = np.random.default_rng([seed, 2, index]).standard_normal(rows)
        return (np.sqrt(SHARED) * hard + np.sqrt(1 - SHARED) * own < ability[index]).astype(float)

    return right


def outcome(strategy: type[Surrogate], seed: int, rows: int, alike: bool, rough: float) -> dict[str, float]:
    """What the choices of one search truly cost and lose."""
    truth = true_scores(seed, rough)
    right = answers(truth, seed, rows, alike)

    def evaluate(subnets: list[Subnet], generation: int) -> list[Trial]:
        scores = [Score(float(right(INDEX[subnet]).mean())) for subnet in subnets]
        costs = [{"macs": float(SHARES[INDEX[subnet]])} for subnet in subnets]
        return [
            Trial(subnet, "accuracy", score, cost, rows, "search", 0.0, "", generation)
            for subnet, score, cost in zip(subnets, scores, costs, strict=True)
        ]

    @cache
    def bound(subnet: Subnet) -> float:
        return paired_bootstrap(right(INDEX[SPACE.full()]), right(INDEX[subnet]), level=0.9).high

    built = strategy(StrategyContext(SPACE, COST, seed, EVALUATIONS))
    found = search(built, evaluate, SPACE.full(), evaluations=EVALUATIONS, patience=None)
    found.proposed &= set(INDEX)
    full, candidates = found.trials[0], found.candidates
    features = np.array([SPACE.features(trial.subnet) for trial in candidates])
    means, _ = latent(fit_process(features, np.array([t.score.value for t in candidates])), features)
    denoised = [replace(t, score=Score(float(m))) for t, m in zip(candidates, means, strict=True)]
    reachable, result = truth[SHARES <= BUDGET].max(), {}
    takes = {"score": AtLeast(None), **{f"evidence {margin}": NoWorse(margin) for margin in MARGINS}}
    for name, take in takes.items():
        chosen = INDEX[take.choose(candidates, full, bound).subnet]
        margin = take.margin if isinstance(take, NoWorse) else MARGINS[0]
        cheapest = SHARES[truth >= FULL - margin].min()
        result[f"{name}: loss"] = FULL - truth[chosen]
        result[f"{name}: beyond"] = float(FULL - truth[chosen] > margin)
        result[f"{name}: cost"] = SHARES[chosen]
        result[f"{name}: excess"] = SHARES[chosen] - cheapest
    for name, known in (("best score", candidates), ("posterior mean", denoised)):
        chosen = INDEX[Budget.parse(f"{BUDGET:g}").choose(known, full).subnet]
        result[f"{name}: regret"] = reachable - truth[chosen]
    return result


def describe(found: dict) -> list[str]:
    """The tables of one file: means over seeds, after them their standard errors."""

    def shown(cell: dict, name: str, scale: float = 1.0, digits: int = 3) -> str:
        mean, error = cell["means"][name], cell["errors"][name]
        return f"{scale * mean:.{digits}f} ± {scale * error:.{digits}f}"

    head, rule = "| rows | remainders | search |", "|---|---|---|"
    starts = [f"| {cell['rows']} | {cell['remainders']} | {cell['search']} |" for cell in found["cells"]]
    words = f"deviations of {100 * found['rough']:g} points that no features explain"
    lines = [f"### {found['seeds']} seeds, {words}", ""]
    lines += [f"{head} choice | true loss (points) | too much | cost | above the cheapest |"]
    lines += [f"{rule}---|---|---|---|---|"]
    for start, cell in zip(starts, found["cells"], strict=True):
        for name, words in {"score": "full", **{f"evidence {m}": f"full-{m}" for m in MARGINS}}.items():
            lines.append(
                f"{start} `{words}` | {shown(cell, f'{name}: loss', 100, 2)} | "
                f"{cell['means'][f'{name}: beyond']:.0%} | {cell['means'][f'{name}: cost']:.3f} | "
                f"{shown(cell, f'{name}: excess')} |"
            )
    lines += ["", f"{head} best score (points) | posterior mean (points) |", f"{rule}---|---|"]
    for start, cell in zip(starts, found["cells"], strict=True):
        regrets = [shown(cell, f"{name}: regret", 100, 2) for name in ("best score", "posterior mean")]
        lines.append(f"{start} {' | '.join(regrets)} |")
    return [*lines, ""]


def write_page(out: Path) -> None:
    """The tables of every JSON in the folder, below what ``README.md`` says by hand."""
    page = out / "README.md"
    above = page.read_text(encoding="utf-8").partition("## Tables")[0] if page.is_file() else ""
    parts = [f"{above}## Tables", ""]
    for path in sorted(out.glob("rough_*.json"), key=lambda path: float(path.stem.partition("_")[2])):
        parts += describe(json.loads(path.read_text(encoding="utf-8")))
    page.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def main() -> None:
    """Run every search and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/regret"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rough", type=float, default=0.0, help="Standard deviation, as a share of 1.")
    options = parser.parse_args()
    cells = []
    for rows, alike in product((436, 2_000), (True, False)):
        for name, strategy in (("noisy", Noisy), ("denoised", Surrogate)):
            runs = [outcome(strategy, seed, rows, alike, options.rough) for seed in range(options.seeds)]
            values = {key: [float(run[key]) for run in runs] for key in runs[0]}
            means = {key: float(np.mean(own)) for key, own in values.items()}
            errors = {key: float(np.std(own, ddof=1) / np.sqrt(len(own))) for key, own in values.items()}
            kind = "alike" if alike else "own"
            cells.append({"rows": rows, "remainders": kind, "search": name, "means": means, "errors": errors})
    found = {"seeds": options.seeds, "rough": options.rough, "cells": cells}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"rough_{options.rough:g}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page(options.out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
