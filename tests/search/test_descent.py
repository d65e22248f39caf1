"""Greedy descent: the best of every cost where blocks add up, whatever the order of the ledger; its end."""

import math
import random

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.search.descent import Descent
from ldsearch.search.loop import SearchResult, search
from ldsearch.space import LengthSpace
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload

SPACE = LengthSpace.build(4, 32, 0.4, levels=8)
COST = Macs(EncoderShape(4, 128, 512), Workload.from_lengths([32, 20, 7], 32))


def tokens_of(subnet) -> tuple[int, ...]:
    lengths = subnet.encoder.lengths
    return lengths.tokens if lengths else (32,) * len(subnet.encoder.blocks)


def tokens_cost(subnets) -> np.ndarray:
    return np.array([float(sum(tokens_of(subnet))) for subnet in subnets])


def measure(score, cost=tokens_cost):
    def evaluate(subnets, generation):
        return [
            Trial(s, "kl", Score(score(s), False), {"macs": float(c)}, 1, "search", 0.0, "f", generation)
            for s, c in zip(subnets, cost(subnets), strict=True)
        ]

    return evaluate


def run(score, space=SPACE, cost=tokens_cost) -> SearchResult:
    return search(Descent(space, cost), measure(score, cost), space.full(), patience=None)


def divergence(subnet) -> float:
    """Additive and convex: each block loses more with every level, later blocks less."""
    dropped = 1 - np.array(tokens_of(subnet)) / 32
    return float(np.array([9.0, 3.0, 1.0, 0.0]) @ dropped**2)


@pytest.mark.parametrize("space", [SPACE, SPACE.widened()])
def test_every_configuration_on_the_way_is_the_best_of_its_cost(space):
    everything: dict[int, float] = {}
    # Of the full model's last length nothing is read, so the longest of the space is as good and cheaper.
    for subnet in space.enumerate():
        cost = sum(tokens_of(subnet))
        everything[cost] = min(everything.get(cost, math.inf), divergence(subnet))
    front = run(divergence, space).frontier
    least = sum(tokens_of(space.smallest()))
    assert [sum(tokens_of(t.subnet)) for t in front] == sorted(c for c in everything if c >= least)
    for trial in front:
        assert trial.score.value == pytest.approx(everything[sum(tokens_of(trial.subnet))])


def test_it_ends_at_the_least_cost_and_proposes_nothing_cheaper_or_twice():
    result = run(divergence, SPACE.widened(), COST)
    assert result.stopped == "exhausted"
    asked = [trial.subnet for trial in result.trials]
    assert len(set(asked)) == len(asked)
    assert COST(asked).min() >= COST([SPACE.smallest()])[0]
    last = min(result.trials, key=lambda trial: trial.costs["macs"])
    # Nothing that is one level shorter is dear enough: it went on as far as it could.
    assert Descent(SPACE.widened(), COST)._children(last.subnet) == []


def test_proposals_depend_on_what_was_measured_and_not_on_its_order():
    result = run(divergence)
    ledger = list(result.trials)
    asked = {g: Descent(SPACE, tokens_cost).propose(g, ledger) for g in range(6)}
    random.Random(0).shuffle(ledger)
    assert {g: Descent(SPACE, tokens_cost).propose(g, ledger) for g in reversed(range(6))} == dict(
        sorted(asked.items(), reverse=True)
    )


def test_what_has_no_score_is_not_gone_on_from():
    def score(subnet) -> float:
        return math.nan if tokens_of(subnet)[0] < 32 else divergence(subnet)

    assert all(tokens_of(t.subnet)[0] >= 28 for t in run(score).trials)
