"""Random sub-networks of every gene there is."""

import numpy as np

from ldsearch.space.space import grouped
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack

REFERENCE = 12
DRAWS = 10  # of a family


def drawn_blocks(rng: np.random.Generator, blocks: int, fewest: int = 0) -> Stack:
    """Whole ones, at least so many."""
    count = int(rng.integers(fewest, blocks + 1))
    return Stack(tuple(sorted(rng.permutation(blocks)[:count].tolist())))


def drawn_stack(rng: np.random.Generator, blocks: int, heads: int, fewest: int = 0) -> Stack:
    """Half of the blocks whole, two thirds of the stacks with lengths."""
    runs = drawn_blocks(rng, blocks, fewest).blocks
    off = {block: drawn_groups(rng, heads) if rng.random() < 0.5 else WHOLE for block in runs}
    if rng.random() < 1 / 3:
        return grouped(runs, off)
    tokens = []
    left = REFERENCE
    for block in runs:
        left = int(rng.integers(1, left + 1)) if off[block].runs("attention") else left
        tokens.append(left)
    return grouped(
        runs, off, Lengths(tuple(tokens), REFERENCE, "ratio" if rng.random() < 0.5 else "absolute")
    )


def drawn_groups(rng: np.random.Generator, heads: int) -> Groups:
    """Some heads off but never all, the feed-forward layer whole, half or of any width, sub-layers off."""
    count = int(rng.integers(heads))
    return Groups(
        heads_off=tuple(sorted(rng.permutation(heads)[:count].tolist())),
        ffn_share=float(rng.choice([1.0, 0.5, rng.uniform(0.01, 0.99)])),
        sublayers_off=tuple(name for name in ("attention", "feed_forward") if rng.random() < 0.25),
    )
