"""Trials of made-up scores, for searches without a model."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ldsearch.search.loop import CostFunction, Evaluate, StrategyContext
from ldsearch.space import DepthGenes, Space
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Score, Trial


def tokens_of(subnet: Subnet, reference: int = 64) -> tuple[int, ...]:
    """Tokens that leave each block."""
    stack = subnet.encoder
    return stack.lengths.tokens if stack.lengths else (reference,) * len(stack.blocks)


def blocks_of(subnet: Subnet) -> tuple[int, ...]:
    """The blocks of its only stack."""
    (stack,) = subnet.stacks().values()
    return stack.blocks


def depths(blocks: int, *keep: int, pinned: tuple[int, ...] = ()) -> DepthGenes:
    """So many of a stack's blocks."""
    return DepthGenes("decoder", blocks, keep, pinned)


def among(*genes: DepthGenes, **fields: Any) -> StrategyContext:
    """The choices of blocks of each stack; each that runs costs as much."""
    return StrategyContext(Space("depths", "a test", genes), number_of_blocks, **fields)


BLOCKS = 10
DEPTHS = Space("depth", "a test", (DepthGenes("encoder", BLOCKS, tuple(range(1, BLOCKS + 1))),))
WORTH = 1.0 + np.random.default_rng(3).random(BLOCKS)


def worth(subnet: Subnet) -> float:
    """Every block adds its own."""
    return float(WORTH[list(blocks_of(subnet))].sum())


def number_of_blocks(subnets: Sequence[Subnet]) -> np.ndarray:
    """A cost: one for each block that runs."""
    return np.array([float(len(blocks_of(subnet))) for subnet in subnets])


def measure(score: Callable[[Subnet], float], cost: CostFunction, higher: bool = True) -> Evaluate:
    """Trials with these scores and the cost as MACs."""

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        return [
            Trial(s, "made-up", Score(score(s), higher), {"macs": float(c)}, 1, "s", 0.0, "f", generation)
            for s, c in zip(subnets, cost(subnets) if subnets else [], strict=True)
        ]

    return evaluate
