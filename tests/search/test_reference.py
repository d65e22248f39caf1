"""The reference code's search: its spacing, its parents, its bound, its rounds."""

import math

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.search.loop import search
from ldsearch.search.reference import Reference, spaced_rates
from ldsearch.space import LengthSpace
from ldsearch.space.length_drop import as_rate, constant_ratio_lengths
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload

SPACE = LengthSpace.build(6, 64, 0.36)
COST = Macs(EncoderShape(6, 128, 512), Workload.from_lengths([64, 40, 13], 64))


def tokens_of(subnet):
    return subnet.encoder.lengths.tokens if subnet.encoder.lengths else (64,) * 6


def measure(score, cost=COST):
    def evaluate(subnets, generation):
        return [
            Trial(s, "accuracy", Score(score(s)), {"macs": float(c)}, 1, "search", 0.0, "f", generation)
            for s, c in zip(subnets, cost(subnets), strict=True)
        ]

    return evaluate


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
    space = LengthSpace.build(12, 384, 0.2, levels=None, mode="absolute", pin_last=False)
    cost = Macs(EncoderShape(12, 768, 3072), Workload.padded(384), torchprofile=True)  # as the paper counts
    first = Reference(space, cost, seed=0).propose(0, ())
    assert len(first) == 22
    assert first[0] == space.smallest()
    assert first[-1] == space.largest()
    ratios = {constant_ratio_lengths(384, 12, as_rate(step / 10_000)): step / 10_000 for step in range(2_001)}
    found = [ratios[subnet.encoder.lengths.tokens] for subnet in first[:-1]]
    assert found == sorted(found, reverse=True)
    assert cost(first[:1])[0] / cost(first[-1:])[0] == pytest.approx(1 / 3, abs=1e-3)  # the paper's 0.33x


def test_every_round_has_60_new_children_that_cost_no_less_than_the_smallest():
    strategy = Reference(SPACE, COST, seed=0, rounds=3)
    result = search(strategy, measure(some_score), SPACE.full())
    subnets = [trial.subnet for trial in result.trials]
    assert len(subnets) == len(set(subnets)) == 1 + len(strategy.first) + 3 * 60
    assert all(strategy.space.contains(subnet) for subnet in subnets[1:])
    assert COST(subnets).min() == COST([SPACE.smallest()])[0]
    # Only the cost is bounded: single lengths go below the smallest configuration's, down to the pinned last.
    floors = np.array(SPACE.floors)
    assert floors[4] == floors[5]
    lengths = np.array([tokens_of(subnet) for subnet in subnets[1:]])
    assert (lengths < floors).any(axis=0).tolist() == [True] * 4 + [False] * 2
    assert strategy.propose(4, result.trials) == []


def test_a_widened_space_is_the_same_question():
    space, result = Reference(SPACE, COST, 3), []
    for one in (space, Reference(SPACE.widened(), COST, 3)):
        result.append(search(one, measure(some_score), SPACE.full(), evaluations=200).trials)
    assert [t.subnet for t in result[0]] == [t.subnet for t in result[1]]


def test_children_are_parents_in_their_own_round():
    # One parent: without its children nothing could be crossed, and there were 30.
    (alone,) = measure(lambda s: math.nan)([SPACE.largest()], 0)
    assert len(Reference(SPACE, COST, seed=0).propose(1, [alone])) == 60


def test_the_dearest_stays_a_parent_though_a_cheaper_one_is_better():
    space = LengthSpace.build(2, 8, 0.5, levels=8, pin_last=False)
    cost = Macs(EncoderShape(2, 16, 32), Workload.padded(8))
    strategy = Reference(space, cost, seed=0)
    strategy.settings = strategy.settings.__class__(mutants=0, crossovers=30)
    ends = [space.smallest(), space.largest()]
    evaluate = measure(lambda s: 1.0 if s == ends[0] else 0.0, cost)
    # (4, 2) and (8, 8), their average (6, 5), and averages with that, halves up.
    found = {subnet.encoder.lengths.tokens for subnet in strategy.propose(1, evaluate(ends, 0))}
    assert {(6, 5), (7, 7), (5, 4)} <= found


def test_proposals_depend_on_seed_round_and_ledger_only():
    first, second = Reference(SPACE, COST, seed=0), Reference(SPACE, COST, seed=0)
    ledger = measure(some_score)([SPACE.full(), *first.propose(0, ())], 0)
    asked = {generation: first.propose(generation, ledger) for generation in (1, 2, 3)}
    assert {generation: second.propose(generation, ledger) for generation in (3, 1, 2)} == asked
    assert asked[1] != asked[2]
    assert Reference(SPACE, COST, seed=1).propose(1, ledger) != asked[1]


def test_a_small_space_ends():
    space = LengthSpace.build(2, 8, 0.5, levels=4, pin_last=False)
    cost = Macs(EncoderShape(2, 16, 32), Workload.padded(8))
    strategy = Reference(space, cost, seed=0)
    result = search(strategy, measure(lambda s: 0.0, cost), space.full())
    least = cost([space.smallest()])[0]
    dear_enough = {subnet for subnet in strategy.space.enumerate() if cost([subnet])[0] >= least}
    assert {trial.subnet for trial in result.trials} == {space.full(), *dear_enough}
