"""Search on validation data: every choice once, the best one on a planted model, too many refused."""

from itertools import combinations

import pytest

from ldsearch.errors import SpaceError
from ldsearch.search.loop import search
from ldsearch.search.validation import MOST, Validation
from ldsearch.space.blocks import DepthSpace
from ldsearch.subnet import Stack, Subnet
from ldsearch.trial import Score, Trial
from tests.planted import batches, carriers_and_both


def of(blocks: tuple[int, ...], stack: str = "encoder") -> Subnet:
    return Subnet(**{stack: Stack(blocks)})


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_every_choice_is_proposed_once_and_then_nothing(stack):
    space = DepthSpace("d", "s", 8, (2, 4), stack=stack)
    asked = Validation(space).propose(0, ())
    brute = [of(blocks, stack) for keep in (2, 4) for blocks in combinations(range(8), keep)]
    assert len(asked) == len(set(asked)) == 28 + 70
    assert set(asked) == set(brute)
    assert Validation(space).propose(1, ()) == []


def test_pinned_blocks_are_in_every_choice():
    asked = Validation(DepthSpace("d", "s", 6, (3,), pinned=(0, 2))).propose(0, ())
    assert set(asked) == {of(tuple(sorted((0, 2, block)))) for block in (1, 3, 4, 5)}


def test_it_finds_the_blocks_that_carry_a_planted_task():
    network, data = carriers_and_both(), batches(8, seed=3)
    carriers = tuple(sorted({*range(network.blocks)} - network.useless))

    def measured(subnet: Subnet) -> float:
        right = [
            network(network.inputs(batch), subnet).logits.argmax(dim=-1) == batch["labels"] for batch in data
        ]
        return float(sum(row.sum() for row in right)) / sum(len(row) for row in right)

    def evaluate(subnets: list[Subnet], generation: int) -> list[Trial]:
        return [
            Trial(s, "accuracy", Score(measured(s)), {"macs": float(len(s.encoder.blocks))}, 1, "s", 0.0, "f")
            for s in subnets
        ]

    space = DepthSpace("d", "s", network.blocks, (len(carriers),))
    found = search(Validation(space), evaluate, network.full)
    best = max(found.candidates, key=lambda trial: trial.score.value)
    assert best.subnet == of(carriers)
    assert sum(trial.score.value == best.score.value for trial in found.candidates) == 1


def test_more_than_can_be_measured_are_refused_in_one_line():
    space = DepthSpace("d", "s", 17, (8,))
    assert space.size() == 24_310 > MOST
    with pytest.raises(SpaceError, match=r"24,310 choices of blocks are too many .* use beam, "):
        Validation(space)


def test_eight_of_sixteen_blocks_are_few_enough():
    assert len(set(Validation(DepthSpace("d", "s", 16, (8,))).propose(0, ()))) == 12_870
