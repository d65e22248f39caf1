"""Random search: proposals of the space, spread over its costs, the same for the same seed, and no more."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.search.constant_ratio import constant_ratio_line
from ldsearch.search.loop import search
from ldsearch.search.random_search import RandomSearch
from ldsearch.space import LengthSpace, load_space
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload

DEMO = load_space("demo")
COST = Macs(EncoderShape(6, 128, 512), Workload.from_lengths([64, 40, 13], 64))
ROOT = Path(__file__).parent.parent.parent


def proposals(count: int = 60, seed: int = 0, space: LengthSpace = DEMO, cost: Macs = COST) -> list[Subnet]:
    return RandomSearch(space, cost, seed, count).propose(0, ())


def positions(subnets: list[Subnet]) -> np.ndarray:
    """Costs between the space's two ends, as 0..1, ascending."""
    low, high = COST([DEMO.smallest(), DEMO.largest()])
    return np.sort((COST(subnets) - low) / (high - low))


@pytest.mark.parametrize("seed", range(5))
def test_it_proposes_as_many_as_asked_each_once_all_in_the_space_with_both_ends(seed):
    found = proposals(60, seed)
    assert len(found) == len(set(found)) == 60
    assert all(DEMO.contains(subnet) for subnet in found)
    assert {DEMO.smallest(), DEMO.largest()} <= set(found)


def test_in_a_widened_space_nothing_is_cheaper_than_the_smallest_though_single_lengths_are_shorter():
    wide = DEMO.widened()
    for found in (proposals(200, space=wide), constant_ratio_line(wide, COST, 30)):
        assert COST(found).min() == COST([DEMO.smallest()])[0]
        assert all(wide.contains(subnet) for subnet in found)
    assert not all(DEMO.contains(subnet) for subnet in proposals(200, space=wide))
    assert constant_ratio_line(wide, COST, 30) == constant_ratio_line(DEMO, COST, 30)


@pytest.mark.parametrize("pin", [True, False])
def test_it_pins_the_last_length_where_the_space_does(pin):
    space = LengthSpace.build(4, 32, 0.4, levels=16, pin_last=pin)
    found = proposals(40, space=space, cost=Macs(EncoderShape(4, 16, 32), Workload.padded(32)))
    assert all(space.contains(subnet) for subnet in found)
    lengths = [subnet.encoder.lengths.tokens for subnet in found if subnet.encoder.lengths]
    last = {tokens[-1] for tokens in lengths}
    assert (last == {space.floors[-1]}) == pin
    # The other lengths are free: each takes more than one value.
    assert all(len({tokens[block] for tokens in lengths}) > 1 for block in range(3))


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_spread_over_the_whole_range_where_uniform_draws_crowd_in_a_part_of_it(seed):
    count = 60
    ours = positions(proposals(count, seed))
    rng = np.random.default_rng(seed)
    uniform = positions([DEMO.smallest(), DEMO.largest(), *(DEMO.sample(rng) for _ in range(count - 2))])
    parts = [np.histogram(found, count, (0, 1))[0] for found in (ours, uniform)]
    assert parts[0].max() <= 4
    assert parts[0].max() < parts[1].max()
    assert np.diff(ours).max() < 0.1
    assert np.diff(ours).max() < 0.6 * np.diff(uniform).max()
    # A tenth of the proposals for each tenth of the range, give or take.
    tenths = np.histogram(ours, 10, (0, 1))[0]
    assert tenths.min() >= 3
    assert tenths.max() <= 9


def test_a_seed_means_the_same_proposals_and_another_seed_others():
    assert proposals(30, 3) == proposals(30, 3)
    common = set(proposals(30, 3)) & set(proposals(30, 4))
    assert len(common) < 10  # the ends, and what little chance


def test_another_process_proposes_the_same():
    program = (
        "from tests.search.test_random_search import proposals\n"
        "for subnet in proposals(30, 3): print(subnet.to_json())\n"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.stdout.splitlines() == [subnet.to_json() for subnet in proposals(30, 3)], done.stderr


def test_everything_is_proposed_at_once_whatever_was_measured():
    strategy = RandomSearch(DEMO, COST, 0, 20)
    first = strategy.propose(0, ())
    ledger = [
        Trial(s, "m", Score(0.5), {"macs": float(c)}, 1, "s", 0.0, "f")
        for s, c in zip(first, COST(first), strict=True)
    ]
    assert strategy.propose(0, ledger) == first
    assert all(strategy.propose(generation, ledger) == [] for generation in (1, 2, 50))


@pytest.mark.parametrize(
    ("blocks", "reference", "levels"), [(1, 8, 4), (2, 8, 4), (2, 16, 16), (1, 2, 2), (3, 6, 3)]
)
@pytest.mark.parametrize("pin", [True, False])
def test_a_small_space_gives_what_it_has_each_once(blocks, reference, levels, pin):
    space = LengthSpace.build(blocks, reference, 0.5, levels=levels, pin_last=pin)
    everything = set(space.enumerate())
    cost = Macs(EncoderShape(blocks, 16, 32), Workload.padded(reference))
    for count in (1, 2, 3, len(everything), len(everything) + 1, 200):
        found = proposals(count, space=space, cost=cost)
        assert len(found) == len(set(found)) == min(count, len(everything))
        assert set(found) <= everything


def test_none_and_one_are_numbers_of_proposals_too():
    assert proposals(0) == []
    assert proposals(1) == [DEMO.smallest()]
    assert set(proposals(2)) == {DEMO.smallest(), DEMO.largest()}


def test_a_search_by_it_measures_its_count_and_the_full_model_and_ends():
    def evaluate(subnets, generation):
        return [
            Trial(s, "m", Score(0.5), {"macs": float(c)}, 1, "s", 0.0, "f", generation)
            for s, c in zip(subnets, COST(subnets), strict=True)
        ]

    result = search(RandomSearch(DEMO, COST, 0, 25), evaluate, DEMO.full())
    assert (len(result.trials), result.stopped) == (26, "exhausted")
    assert result.trials[0].subnet == DEMO.full()
    assert len({trial.subnet for trial in result.trials}) == 26
