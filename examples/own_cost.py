"""Search for a cost of your own: joules, from what a meter showed for one block and for one token.

    python examples/own_cost.py runs/reviews --per-block 0.02 --per-token 0.0004 --share 0.5

A registered cost is a column of every table, an objective and a unit of budgets.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import ldsearch
from ldsearch.costs.named import COSTS


class Joules:
    """Of one input of usual length: so much for each block that runs, so much for each token in it."""

    name = "joules"

    def __init__(self, workload, per_block: float, per_token: float):
        lengths, counts = np.array(workload.histogram).T
        self.tokens = float(np.average(lengths, weights=counts))
        self.per_block, self.per_token = per_block, per_token

    def __call__(self, subnets: Sequence[ldsearch.Subnet]) -> np.ndarray:
        """Joules, shape (sub-networks,)."""
        return np.array([self.of_stack(subnet.encoder) for subnet in subnets])

    def of_stack(self, stack) -> float:
        """A block reads what left the one before it; of a shorter input the same share is left."""
        kept = stack.lengths.tokens if stack.lengths else (1,) * len(stack.blocks)
        whole = stack.lengths.reference if stack.lengths else 1
        read = [1.0, *(tokens / whole for tokens in kept[:-1])]
        return sum(self.per_block + self.per_token * self.tokens * share for share in read)


def main() -> None:
    """Search, and print what was found with its joules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("supernet", type=Path)
    parser.add_argument("--per-block", type=float, default=0.02, help="joules of a block without tokens")
    parser.add_argument("--per-token", type=float, default=0.0004, help="joules of a token in a block")
    parser.add_argument("--share", type=float, default=0.5, help="budget as a share of the full model's")
    parser.add_argument("--evaluations", type=int, default=100, help="sub-networks measured")
    args = parser.parse_args()
    COSTS.register("joules", lambda net, load: Joules(load, args.per_block, args.per_token))
    bench = ldsearch.Bench.open(args.supernet)
    budget = args.share * float(bench.cost("joules")([bench.full])[0])
    limit = {"objective": "joules", "budget": f"{budget:.6f}joules", "evaluations": args.evaluations}
    found = ldsearch.evolve(supernet=args.supernet, genes="depth+lengths", **limit, name="joules")
    print(ldsearch.Run.open("runs/joules").frontier[["joules", "macs_share", "held_out_score"]])
    print(f"chosen within {budget:.4f} joules: {found['subnet']}")


if __name__ == "__main__":
    main()
