"""The reference code's search: its spacing, its parents, its bound, its rounds."""

import math

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.search.loop import CostFunction, StrategyContext, search
from ldsearch.search.reference import Reference, spaced_rates
from ldsearch.space import LengthGenes, Space
from ldsearch.space.lengths import as_rate, constant_ratio_lengths
from tests.search.scoring import measure, tokens_of

TRAINED = Space.of_lengths(LengthGenes.build(6, 64, 0.36))
SPACE = TRAINED.widened()
COST = Macs(EncoderShape(6, 128, 512), Workload.from_lengths([64, 40, 13], 64))


def reference(seed: int = 0, space: Space = SPACE, cost: CostFunction = COST, **fields) -> Reference:
    return Reference(StrategyContext(space, cost, seed), **fields)


def some_score(subnet) -> float:
    return float(np.sqrt(tokens_of(subnet)) @ [1, 5, 1, 4, 1, 0])


def test_the_first_rates_are_spaced_by_the_tokens_of_twelve_blocks_and_384():
    def share(rate: float) -> float:
        tokens, total = 384, 0
        for _ in range(12):
            tokens = math.ceil((1 - rate) * tokens - 1e-9)
            total += tokens
        return total / (12 * 384)

    rates = spaced_rates(as_rate(0.2), 20)
    # 0.2 leaves 308, 247, 198, 159, 128, 103, 83, 67, 54, 44, 36 and 29 tokens.
    shares = [1456 / 4608, *(share(float(rate)) for rate in rates), 1.0]
    assert np.diff(shares) == pytest.approx((1 - 1456 / 4608) / 21, abs=2e-3)


def test_the_first_genes_of_the_published_space_are_22_constant_ratios():
    space = Space.of_lengths(LengthGenes.build(12, 384, 0.2, levels=None, mode="absolute", pin_last=False))
    cost = Macs(EncoderShape(12, 768, 3072), Workload.padded(384), torchprofile=True)  # as the paper counts
    first = reference(space=space, cost=cost).propose(0, ())
    assert len(first) == 22
    assert first[0] == space.smallest()
    assert first[-1] == space.largest()
    ratios = {constant_ratio_lengths(384, 12, as_rate(step / 10_000)): step / 10_000 for step in range(2_001)}
    found = [ratios[subnet.encoder.lengths.tokens] for subnet in first[:-1]]
    assert found == sorted(found, reverse=True)
    assert cost(first[:1])[0] / cost(first[-1:])[0] == pytest.approx(1 / 3, abs=1e-3)  # the paper's 0.33x


def test_every_round_has_60_new_children_that_cost_no_less_than_the_smallest():
    strategy = reference(rounds=3)
    result = search(strategy, measure(some_score, COST), SPACE.full())
    subnets = [trial.subnet for trial in result.trials]
    assert len(subnets) == 1 + len(strategy.first) + 3 * 60
    assert COST(subnets).min() == COST([SPACE.smallest()])[0]
    # Only the cost is bounded: single lengths go below the smallest configuration's, down to the pinned last.
    floors = np.array(TRAINED.lengths.floors)
    assert floors[4] == floors[5]
    lengths = np.array([tokens_of(subnet) for subnet in subnets[1:]])
    assert (lengths < floors).any(axis=0).tolist() == [True] * 4 + [False] * 2
    assert strategy.propose(4, result.trials) == []


def test_children_are_parents_in_their_own_round():
    # One parent: without its children nothing could be crossed, and there were 30.
    (alone,) = measure(lambda s: math.nan, COST)([SPACE.largest()], 0)
    assert len(reference().propose(1, [alone])) == 60


def test_the_dearest_stays_a_parent_though_a_cheaper_one_is_better():
    space = Space.of_lengths(LengthGenes.build(2, 8, 0.5, levels=8, pin_last=False)).widened()
    cost = Macs(EncoderShape(2, 16, 32), Workload.padded(8))
    strategy = reference(space=space, cost=cost)
    strategy.settings = strategy.settings.__class__(mutants=0, crossovers=30)
    ends = [space.smallest(), space.largest()]
    evaluate = measure(lambda s: 1.0 if s == ends[0] else 0.0, cost)
    # (4, 2) and (8, 8), their average (6, 5), and averages with that, halves up.
    found = {subnet.encoder.lengths.tokens for subnet in strategy.propose(1, evaluate(ends, 0))}
    assert {(6, 5), (7, 7), (5, 4)} <= found
