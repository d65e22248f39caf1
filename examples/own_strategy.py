"""A search strategy of your own, beside the default and random search on rows that chose nothing.

    python examples/own_strategy.py runs/reviews --budget 0.5

It never sees a model: what was measured goes in, sub-networks to measure come out. Proposals are a function
of (seed, generation, trials so far), so that a killed search goes on and several workers share one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import ldsearch
from ldsearch.search.strategies import SEARCHES, Search
from ldsearch.trials.trial import Trial


class Climb:
    """Steps down from the best trial of one cost range after the other: a small hill climb."""

    name = "climb"
    bands, children = 5, 6

    def __init__(self, context: ldsearch.StrategyContext):
        self.space, self.cost, self.context = context.space, context.cost, context
        self.low, self.high = self.cost([self.space.smallest(), self.space.largest()])

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[ldsearch.Subnet]:
        """Random neighbours below the best trials; nothing once all are known, which ends the search."""
        random = np.random.default_rng([self.context.seed, generation])
        known = {trial.subnet for trial in ledger}
        inside = [trial for trial in ledger if self.space.contains(trial.subnet)]
        if not inside:
            return [self.space.largest(), self.space.smallest()]
        share = (self.cost([t.subnet for t in inside]) - self.low) / max(self.high - self.low, 1e-9)
        band = np.minimum(share * self.bands, self.bands - 1).astype(int)
        asked = {}
        for one in sorted(set(band)):
            best = min((t for t, b in zip(inside, band, strict=True) if b == one), key=lambda t: t.score.loss)
            new = [s for s in self.space.lowered(best.subnet) if s not in known]
            below = [new[i] for i in np.flatnonzero(self.context.allowed(new))]
            asked |= dict.fromkeys(below[i] for i in random.permutation(len(below))[: self.children])
        return list(asked)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("supernet", type=Path)
    parser.add_argument("--budget", type=float, default=0.5, help="share of the full model's MACs")
    parser.add_argument("--evaluations", type=int, default=60)
    args = parser.parse_args()
    SEARCHES.register("climb", Search(Climb))
    both, asked = ("climb", "surrogate"), {"budget": (args.budget,), "evaluations": args.evaluations}
    found = ldsearch.compare(supernet=(args.supernet,), strategy=both, seeds=1, **asked)
    for cell in found["cells"]:
        if cell["limit"] == "evaluations" and cell["strategy"] in both:
            gain = "{gain:+.4f} ({gain_low:+.4f} to {gain_high:+.4f}) over random search".format(**cell)
            print(f"{cell['strategy']}: {cell['score']:.4f}, {gain}")
