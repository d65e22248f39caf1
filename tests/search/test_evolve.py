"""Evolution: its operators, its initial population, its end; rules without a search."""

import itertools
import math

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.search.constant_ratio import ConstantRatio, constant_ratio_line
from ldsearch.search.every_other import EveryOther
from ldsearch.search.evolve import Evolve, EvolveSettings
from ldsearch.search.loop import search
from ldsearch.space import LengthSpace, load_space
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload

DEMO = load_space("demo")
COST = Macs(EncoderShape(6, 128, 512), Workload.from_lengths([64, 40, 13], 64))
FULL = float(COST([DEMO.full()])[0])


def measure(score):
    def evaluate(subnets, generation):
        return [
            Trial(s, "accuracy", Score(score(s)), {"macs": float(c)}, 1, "search", 0.0, "f", generation)
            for s, c in zip(subnets, COST(subnets), strict=True)
        ]

    return evaluate


def tokens_of(subnet: Subnet, blocks: int = 6, reference: int = 64) -> tuple[int, ...]:
    lengths = subnet.encoder.lengths
    return lengths.tokens if lengths else (reference,) * blocks


def test_the_initial_population_spreads_its_costs_evenly_between_the_ends():
    line = constant_ratio_line(DEMO, COST, 22)
    shares = COST(line) / FULL
    assert line[0] == DEMO.smallest()
    assert line[-1] == DEMO.largest()
    assert len(line) >= 18  # the grid cannot tell all 22 apart
    assert np.diff(shares).max() < 0.06
    assert (np.diff(shares) > 0).all()


@pytest.mark.parametrize("space", [DEMO, load_space("length-adaptive-6x128")])
def test_mutation_never_raises_a_length_and_reaches_every_length(space):
    rng = np.random.default_rng(0)
    gene = space.encode(space.sample(rng))
    seen = [set() for _ in gene]
    for _ in range(3_000):
        gene = space.mutate(gene, 0.5, rng)
        assert all(a >= b for a, b in itertools.pairwise(gene))
        assert space.contains(space.decode(gene))
        for levels, level in zip(seen, gene, strict=True):
            levels.add(level)
    free = len(space.levels) - space.floor_levels[0]
    assert len(seen[0]) == free


def test_mutation_draws_between_the_next_length_and_the_one_before():
    space = LengthSpace.build(3, 20, 0.5, levels=20, pin_last=False)
    gene = space.encode(Subnet.of_encoder(range(3), (16, 14, 9), 20))
    rng = np.random.default_rng(0)
    mutants = np.array([space.mutate(gene, 0.5, rng) for _ in range(4_000)]) + 1
    first = mutants[:, 0]
    assert set(first) == set(range(14, 21))  # from the second length up to the reference
    assert np.mean(first == 16) == pytest.approx(0.5 + 0.5 / 7, abs=0.03)  # kept, or drawn


def test_crossover_averages_block_by_block_with_halves_rounded_up():
    space = LengthSpace.build(3, 20, 0.5, levels=20, pin_last=False)
    assert space.cross([19, 13, 8], [12, 12, 7], np.random.default_rng(0)) == (16, 13, 8)


def test_evolution_finds_a_planted_optimum_that_is_off_the_constant_ratio_line():
    # Only the second length matters: the best is a large second length at the least cost.
    planted = (64, 64, 20, 12, 8, 8)
    result = search(
        Evolve(DEMO, COST, seed=0),
        measure(lambda s: tokens_of(s)[1] / 64),
        DEMO.full(),
        evaluations=400,
    )
    best = [t for t in result.frontier if t.score.value == 1.0]
    assert [tokens_of(t.subnet) for t in best] == [planted]
    line = set(constant_ratio_line(DEMO, COST, 22))
    assert best[0].subnet not in line


def test_a_search_stops_when_it_stands_still_and_says_so():
    result = search(Evolve(DEMO, COST, seed=0), measure(lambda s: 0.5), DEMO.full(), evaluations=10_000)
    assert result.stopped == "converged"
    assert len(result.trials) < 200


def test_a_search_stops_at_its_evaluations():
    rng = np.random.default_rng(0)
    score = measure(lambda s: float(rng.random()))
    result = search(Evolve(DEMO, COST, seed=0), score, DEMO.full(), evaluations=47)
    assert (len(result.trials), result.stopped) == (47, "evaluations")
    assert len(result.areas) == 1 + max(trial.generation for trial in result.trials)
    with pytest.raises(ValueError, match="at least one"):
        search(Evolve(DEMO, COST, seed=0), score, DEMO.full(), evaluations=0)


def test_nan_scores_neither_stop_the_search_nor_reach_the_frontier():
    result = search(
        Evolve(DEMO, COST, seed=0),
        measure(lambda s: math.nan if tokens_of(s)[0] > 60 else tokens_of(s)[2] / 64),
        DEMO.full(),
        evaluations=120,
    )
    assert len(result.trials) == 120
    assert not any(math.isnan(t.score.value) for t in result.frontier)


@pytest.mark.parametrize("blocks", [1, 2])
def test_tiny_depths_end_too(blocks):
    space = LengthSpace.build(blocks, 8, 0.5, levels=4)
    cost = Macs(EncoderShape(blocks, 16, 32), Workload.padded(8))

    def evaluate(subnets, generation):
        return [
            Trial(s, "a", Score(0.0), {"macs": float(c)}, 1, "s", 0.0, "f", generation)
            for s, c in zip(subnets, cost(subnets), strict=True)
        ]

    result = search(Evolve(space, cost, seed=0), evaluate, space.full(), evaluations=1_000)
    assert {t.subnet for t in result.trials} == {space.full(), *space.enumerate()}


def test_parity_makes_sixty_children():
    strategy = Evolve(DEMO, COST, seed=0, settings=EvolveSettings.parity())
    evaluate = measure(lambda s: tokens_of(s)[0] / 64)
    ledger = evaluate([DEMO.full(), *strategy.propose(0, ())], 0)
    assert len(strategy.propose(1, ledger)) == 60


def test_proposals_depend_on_the_ledger_and_the_generation_only():
    strategy = Evolve(DEMO, COST, seed=0)
    ledger = measure(lambda s: tokens_of(s)[0] / 64)([DEMO.full(), *strategy.propose(0, ())], 0)
    assert strategy.propose(3, ledger) == strategy.propose(3, ledger)
    assert strategy.propose(3, ledger) == Evolve(DEMO, COST, seed=0).propose(3, ledger)
    assert strategy.propose(4, ledger) != strategy.propose(3, ledger)


def test_rules_propose_once():
    for rule in (EveryOther(6, [1, 3]), ConstantRatio(DEMO, COST, 8)):
        assert rule.propose(0, ()) == rule.subnets
        assert rule.propose(1, ()) == []
